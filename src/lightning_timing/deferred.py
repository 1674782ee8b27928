"""Iterations that wait for their device times."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from lightning_timing.device_ledger import DeviceLedger
from lightning_timing.measured_iterations import MeasuredIteration
from lightning_timing.stage_totals import StageTotals

if TYPE_CHECKING:
    from lightning_timing.device_timer import DeviceTimer, DeviceTimes

Pending = tuple[StageTotals, MeasuredIteration | None, bool]
"""The stage; the iteration, None in warm-up and outside of iterations; and whether the device times count."""


class DeferredIterations:
    """Hands iterations on with their device times, once the device has reached their ends, some iterations later.

    Args:
        timer: Returns the iterations whose ends the device has reached.
    """

    def __init__(self, timer: DeviceTimer[Pending]) -> None:
        self.timer = timer
        self.on_iteration: Callable[[MeasuredIteration], None] | None = None

    def end_iteration(self, stage: StageTotals, measured: MeasuredIteration | None, ledger: DeviceLedger) -> None:
        """Adds an iteration, and hands on those whose ends the device has reached by now."""
        self.timer.end_iteration((stage, measured, measured is not None), ledger.marks[-1], ledger.marks)
        self._hand_on(self.timer.collect())

    def end_outside(self, stage: StageTotals) -> None:
        """Adds what was timed since the stage's last iteration, while no iteration was open."""
        self.timer.end_outside((stage, None, stage.warmup_left <= 0))

    def drain(self, *, may_hang: bool) -> None:
        """Waits for the device, this one time, and hands on all iterations that are left; see `DeviceTimer.drain`."""
        self._hand_on(self.timer.drain(may_hang=may_hang))

    def _hand_on(self, resolved: Iterable[DeviceTimes[Pending]]) -> None:
        for times in resolved:
            stage, measured, counts = times.key
            if counts:
                stage.take_device_times(times, of_iteration=measured is not None)
            if measured is not None and self.on_iteration is not None:
                device_ns = {name: sum(samples) for name, samples in times.samples_ns.items()}
                self.on_iteration(measured._replace(device_ns=device_ns))
