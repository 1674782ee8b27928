"""The ledger of an iteration that is timed on the device as well: an event at every boundary."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lightning_timing.clocks import Clock
from lightning_timing.ledger import Ledger
from lightning_timing.measurement import Measurement
from lightning_timing.phases import ITERATION, OTHER

if TYPE_CHECKING:
    from lightning_timing.device_timer import DeviceStretch, DeviceTimer, Mark


class DeviceLedger(Ledger):
    """A `Ledger` that records an event at each boundary, which ends the phase before it and begins the one after it.

    So the device times of the phases are exclusive too, and add up to that of the iteration.

    Args:
        clock: Read once at every boundary.
        phases: By name, the measurements of the phases that can be entered.
        timer: Takes the phases' parts on the device.
        before_reading: Called before the clock is read, where the device is to be synchronized there.
    """

    __slots__ = ("_carried", "_marks", "_stretches", "_timer")

    def __init__(
        self,
        clock: Clock,
        phases: Mapping[str, Measurement],
        timer: DeviceTimer[Any],
        before_reading: Callable[[], None] | None,
    ) -> None:
        super().__init__(clock, phases, before_reading)
        self._timer = timer
        self._stretches: list[list[DeviceStretch]] = []
        self._carried: dict[str, list[DeviceStretch]] = {}
        self._marks: list[Mark] = []

    def begin(self, keep_intervals: bool) -> None:
        """Opens an empty ledger now."""
        super().begin(keep_intervals)
        self._carried.clear()
        self._stretches[:] = [[]]
        self._marks = [self._timer.mark()]

    def enter(self, phase: str, since_last: bool = False) -> None:
        """Opens a phase inside the one on top."""
        super().enter(phase, since_last)
        if not since_last:
            self._cut()
        self._stretches.append([])

    def leave(self, paused: bool = False) -> None:
        """Closes the phase on top."""
        measurement = self._open[-1]
        super().leave(paused)
        self._cut()
        stretches = self._stretches.pop()
        stretches = self._carried.pop(measurement.name, []) + stretches
        if paused:
            self._carried[measurement.name] = stretches
            return
        for counted in measurement.counted_in:
            self._timer.add(counted.name, *stretches)

    def close(self, at_last: bool = False) -> None:
        """Closes the ledger, and adds the intervals of the iteration and of `other` to the timer."""
        super().close(at_last)
        if not at_last:
            self._cut()
        self._timer.add(ITERATION, (self._marks[0], self._marks[-1]))
        self._timer.add(OTHER, *self._stretches[0])

    @property
    def marks(self) -> Sequence[Mark]:
        """The boundaries on the device since the ledger was opened."""
        return self._marks

    def _cut(self) -> None:
        """Records an event, and gives the time on the device since the last one to the phase on top."""
        mark = self._timer.mark()
        self._stretches[-1].append((self._marks[-1], mark))
        self._marks.append(mark)
