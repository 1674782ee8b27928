"""Iterations that wait for their device times."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from lightning_timing.device_ledger import DeviceLedger
from lightning_timing.device_timer import DeviceTimer, DeviceTimes
from lightning_timing.recording import MeasuredIteration
from lightning_timing.stage_record import StageRecord

Pending = tuple[StageRecord, MeasuredIteration | None]
"""The stage and the iteration; None for one that does not count."""


class DeferredIterations:
    """Hands iterations on once the device has got to their ends, some iterations later, with their device times.

    Args:
        timer: Knows what the device has got to.
    """

    def __init__(self, timer: DeviceTimer[Pending]) -> None:
        self.timer = timer
        self.on_iteration: Callable[[MeasuredIteration], None] | None = None

    def end_iteration(self, stage: StageRecord, measured: MeasuredIteration | None, ledger: DeviceLedger) -> None:
        """Takes an iteration, and hands on those that the device has got to by now."""
        if ledger.last_mark is not None:
            self.timer.end_iteration((stage, measured), ledger.last_mark)
        self._hand_on(self.timer.collect())

    def drain(self) -> None:
        """Waits for the device, for once, and hands on all that are left."""
        self._hand_on(self.timer.drain())

    def _hand_on(self, resolved: Iterable[DeviceTimes[Pending]]) -> None:
        for times in resolved:
            stage, measured = times.key
            if measured is None:
                continue
            stage.take_device_times(times.samples_ns, times.untimed, times.ahead_ns)
            if self.on_iteration is not None:
                device_ns = {name: sum(samples) for name, samples in times.samples_ns.items()}
                self.on_iteration(measured._replace(device_ns=device_ns))
