"""Which measurement gets CPU usage, and the meter of it."""

from __future__ import annotations

from lightning_timing.clocks import Clock
from lightning_timing.cpu_usage import CpuUsageMeter
from lightning_timing.phases import ITERATION
from lightning_timing.record import CpuUsage


class CpuChoice:
    """At most one measurement whose CPU usage is metered.

    Args:
        clock: Reads the time, in nanoseconds.

    Attributes:
        name: The measurement; None: none was chosen.
        rests: Whether it is the iteration, and none is metered. A stretch of iterations is metered as one interval.
    """

    def __init__(self, clock: Clock) -> None:
        self.name: str | None = None
        self.rests = False
        self._clock = clock
        self._meter: CpuUsageMeter | None = None
        self._by_default = False

    def may_be(self, name: str) -> bool:
        """Whether a measurement may be chosen, as no other one was yet, or only by default."""
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
            self.stop()
            self._meter = CpuUsageMeter(name, clock=self._clock)
            self.name, self._by_default = name, by_default
            self.rests = name == ITERATION
        self._meter.start()

    def begin(self) -> None:
        """An interval of the chosen measurement, or a stretch of iterations, begins."""
        self.rests = False
        if self._meter is not None:
            self._meter.begin()

    def end(self) -> None:
        """It ends."""
        if self._meter is not None:
            self._meter.end()

    def rest(self) -> None:
        """A stretch of iterations, if they are metered, ends."""
        if self.name == ITERATION and not self.rests:
            self.rests = True
            self.end()

    def stop(self) -> None:
        """Ends the sampling. Takes some milliseconds."""
        if self._meter is not None:
            self._meter.stop()

    @property
    def reason(self) -> str | None:
        """Why a figure is unknown; None where none is."""
        return None if self._meter is None else self._meter.reason

    def result(self) -> CpuUsage | None:
        """The figures so far; None where no measurement was chosen."""
        return None if self._meter is None else self._meter.result()
