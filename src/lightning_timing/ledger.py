"""The ledger of one iteration: every nanosecond goes to exactly one phase, the innermost that is open."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import NamedTuple

from lightning_timing.clocks import Clock
from lightning_timing.measurement import Measurement

Interval = tuple[str, int, int]
"""A measurement's name, start and end, in nanoseconds from the ledger's beginning."""


class _Frame:
    """An open phase: what it has claimed so far, in nanoseconds, and when it was entered."""

    __slots__ = ("begin", "measurement", "own")

    def __init__(self, measurement: Measurement | None, begin: int) -> None:
        self.measurement = measurement
        self.begin = begin
        self.own = 0


class Balance(NamedTuple):
    """A closed ledger, in nanoseconds.

    Attributes:
        begin_ns: When it began.
        total_ns: How long it ran.
        other_ns: What no phase claimed.
    """

    begin_ns: int
    total_ns: int
    other_ns: int


class Ledger:
    """A stack of open phases. At each boundary the time since the last one goes to the phase on top.

    So the samples of the phases and `other` add up to the whole exactly, whatever nests in what, and one reading of
    the clock serves both the phase that ends and the one that goes on.

    Args:
        clock: Read once at every boundary.
        before_reading: Called before the clock is read, where the device is to be synchronized there.

    Attributes:
        frames: The open phases, outermost first; the first stands for the whole. Empty while nothing is open.
        begin_ns: When the ledger was opened.
        last_ns: The last boundary.
        thread: The thread that opened it.
        intervals: The intervals so far, or None where they are not kept.
    """

    __slots__ = ("_before_reading", "_clock", "begin_ns", "frames", "intervals", "last_ns", "thread")

    def __init__(self, clock: Clock, before_reading: Callable[[], None] | None = None) -> None:
        self._clock = clock
        self._before_reading = before_reading
        self.frames: list[_Frame] = []
        self.begin_ns = 0
        self.last_ns = 0
        self.intervals: list[Interval] | None = None
        self.thread = get_ident()

    def read(self) -> int:
        """Reads the clock, with the device synchronized where that was asked for."""
        if self._before_reading is not None:
            self._before_reading()
        return self._clock()

    def begin(self, keep_intervals: bool) -> None:
        """Opens an empty ledger now."""
        self.begin_ns = self.last_ns = self.read()
        self.frames[:] = [_Frame(None, self.begin_ns)]
        self.intervals = [] if keep_intervals else None
        self.thread = get_ident()

    def enter(self, measurement: Measurement, since_last: bool = False) -> None:
        """Opens a phase inside the one on top.

        Args:
            measurement: Takes the sample when the phase is left.
            since_last: Open it as of the last boundary instead of now.
        """
        if not since_last:
            if self._before_reading is not None:
                self._before_reading()
            now = self._clock()
            self.frames[-1].own += now - self.last_ns
            self.last_ns = now
        self.frames.append(_Frame(measurement, self.last_ns))

    def leave(self, paused: bool = False) -> None:
        """Closes the phase on top; its sample is its own time, without the phases inside it.

        Args:
            paused: Keep the time for the next interval of the same measurement, which continues this one.
        """
        if self._before_reading is not None:
            self._before_reading()
        now = self._clock()
        frame = self.frames.pop()
        own = frame.own + now - self.last_ns
        self.last_ns = now
        measurement = frame.measurement
        if measurement is None:
            raise IndexError("no phase is open")
        if self.intervals is not None:
            self.intervals.append((measurement.name, frame.begin - self.begin_ns, now - self.begin_ns))
        own += measurement.carried
        if paused:
            measurement.carried = own
        else:
            measurement.carried = 0
            measurement.append(own)

    def close(self, at_last: bool = False) -> Balance:
        """Closes the ledger. Every phase has been left before.

        Args:
            at_last: Close it as of the last boundary instead of now.
        """
        end = self.last_ns if at_last else self.read()
        root = self.frames.pop()
        return Balance(self.begin_ns, end - self.begin_ns, root.own + end - self.last_ns)

    def drop(self) -> None:
        """Closes the ledger and forgets it."""
        self.frames.clear()

    def enclosing(self, begin_ns: int) -> tuple[str | None, int | None]:
        """The innermost phase that was open at the given moment and is open still, and when it began.

        Returns:
            Its name, None for the iteration itself, and its beginning in nanoseconds; both None where there is none.
        """
        for frame in reversed(self.frames):
            if frame.begin <= begin_ns:
                return (None if frame.measurement is None else frame.measurement.name), frame.begin
        return None, None
