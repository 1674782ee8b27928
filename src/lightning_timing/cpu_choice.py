"""Chooses the measurement whose CPU usage is metered, and drives its meter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightning_timing.clocks import Clock
from lightning_timing.phases import ITERATION, TRAIN

if TYPE_CHECKING:
    from lightning_timing.cpu_usage import CpuUsageMeter
    from lightning_timing.figures import CpuUsage


class CpuChoice:
    """At most one measurement whose CPU usage is metered.

    Args:
        clock: Reads the time, in nanoseconds.

    Attributes:
        name: The measurement; None: none was chosen.
        is_warming_up: Whether intervals that begin now belong to the warm-up, and so do not count.
    """

    def __init__(self, clock: Clock) -> None:
        self.name: str | None = None
        self.is_warming_up = False
        self._rests = False
        self._stage: str | None = None
        self._clock = clock
        self._meter: CpuUsageMeter | None = None
        self._by_default = False

    def may_be(self, name: str) -> bool:
        """Whether a measurement may be chosen: no other one was chosen yet, or only by default."""
        return self.name in (None, name) or self._by_default

    def choose(self, name: str, by_default: bool = False) -> None:
        """Chooses a measurement that may be chosen, and starts sampling beside it.

        Args:
            name: The measurement.
            by_default: Whether a later choice may replace this one.

        Raises:
            ImportError: psutil is not installed.
        """
        if self._meter is None or self.name != name:
            from lightning_timing.cpu_usage import CpuUsageMeter

            self.stop()
            self._meter = CpuUsageMeter(name, clock=self._clock)
            self.name, self._by_default = name, by_default
            self._rests = name == ITERATION
        elif not by_default:
            self._by_default = False
        self._meter.start()

    def choose_stage(self, stage: str) -> None:
        """Chooses the stage whose iterations are metered. The first choice stays, unless training comes later."""
        if self._stage is None:
            self._stage = stage
        elif stage == TRAIN and self._stage != TRAIN:
            self._stage = stage
            if self.name == ITERATION:
                self.stop()
                self._meter = None
                self.choose(ITERATION, self._by_default)

    def is_due(self, stage: str) -> bool:
        """Whether the next iteration of a stage begins a stretch of iterations, which is metered as one interval."""
        return self._rests and self._stage in (None, stage)

    def begin(self) -> None:
        """Begins an interval of the chosen measurement, or a stretch of iterations."""
        self._rests = False
        if self._meter is not None:
            self._meter.begin()

    def end(self) -> None:
        """Ends the interval, or the stretch of iterations."""
        if self._meter is not None:
            self._meter.end()

    def rest(self) -> None:
        """Ends the stretch of iterations that is being metered, if any."""
        if self.name == ITERATION and not self._rests:
            self._rests = True
            self.end()

    def drop(self) -> None:
        """Forgets the interval that is open, if any, since its sample is dropped."""
        if self._meter is not None:
            self._meter.drop()

    def begin_stage(self, is_warming_up: bool) -> None:
        """Notes that the iterations of a stage begin, perhaps anew, and whether the first of them is warm-up."""
        self.is_warming_up = is_warming_up
        if self._meter is not None:
            self._meter.keep()

    def leave_out(self, is_warming_up: bool) -> None:
        """Forgets what was metered in an iteration that was warm-up, and notes whether the next one is.

        There is something to forget where it is known only now that the iteration is warm-up. None of its stage has
        counted then, so all that was metered since the stage began is forgotten.
        """
        if not self.is_warming_up and self._meter is not None:
            self._meter.forget()
        self._rests = self.name == ITERATION
        self.is_warming_up = is_warming_up

    def stop(self) -> None:
        """Ends the sampling, and forgets an interval that is still open: it has no sample. Takes some milliseconds."""
        if self._meter is not None:
            self._meter.drop()
            self._meter.stop()

    @property
    def reason(self) -> str | None:
        """Why a figure is unknown; None where nothing failed."""
        if self._meter is None:
            return None
        if self._meter.reason is not None:
            return self._meter.reason
        if self.name != ITERATION and not self._meter.was_used:
            return f"the CPU usage of {self.name!r} is unknown: nothing of that name was measured after warm-up"
        return None

    def result(self) -> CpuUsage | None:
        """Returns the figures so far; None where no measurement was chosen."""
        return None if self._meter is None else self._meter.result()
