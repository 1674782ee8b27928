"""The ledger of one iteration: every nanosecond goes to exactly one phase, the innermost that is open."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import get_ident

from lightning_timing.clocks import Clock
from lightning_timing.measurement import Measurement

Interval = tuple[str, int, int]
"""A measurement's name, start and end, in nanoseconds: on the clock, or from its iteration's beginning."""

PhaseTime = tuple[Measurement, int | None, int, int]
"""A phase's own time, None where it was paused, and its start and end on the clock, in nanoseconds.

A plain tuple, as there is one for each phase of each iteration.
"""


class Ledger:
    """A stack of open phases, each with the time that the phases inside it took.

    A phase's own time is its duration less that of the phases directly inside it; `other_ns` is the ledger's duration
    less that of the outermost phases. So own times and `other_ns` add up to the whole exactly, however phases nest.

    Args:
        clock: Read once at every boundary.
        before_reading: Called before the clock is read, where the device is to be synchronized there.

    Attributes:
        phases: By name, the measurements of the phases that can be entered.
        is_open: Whether it was begun and not closed.
        read: Reads the clock, with the device synchronized where that was asked for.
        begin_ns: When the ledger was opened.
        last_ns: The last boundary.
        total_ns: How long it ran; known when it is closed.
        other_ns: What no phase claimed; known when it is closed.
        times: The times of the phases that were left since it was opened, in that order.
        keeps_intervals: Whether the positions of the intervals are kept.
        thread: The thread that opened it.
    """

    __slots__ = (
        "_begins",
        "_inside",
        "_open",
        "begin_ns",
        "is_open",
        "keeps_intervals",
        "last_ns",
        "other_ns",
        "phases",
        "read",
        "thread",
        "times",
        "total_ns",
    )

    def __init__(
        self, clock: Clock, phases: Mapping[str, Measurement], before_reading: Callable[[], None] | None = None
    ) -> None:
        self.phases = phases
        self.is_open = False
        self.read = clock if before_reading is None else _reading_after(before_reading, clock)
        self.begin_ns = 0
        self.last_ns = 0
        self.total_ns = 0
        self.other_ns = 0
        self.times: list[PhaseTime] = []
        self.keeps_intervals = False
        self.thread = get_ident()
        # One entry for each open phase; the times inside begin with those of the whole ledger.
        self._open: list[Measurement] = []
        self._begins: list[int] = []
        self._inside: list[int] = [0]

    @property
    def depth(self) -> int:
        """How many phases are open."""
        return len(self._open)

    def begin(self, keep_intervals: bool) -> None:
        """Opens an empty ledger now."""
        if self._open:
            self.drop()
        self._inside[0] = 0
        self.times = []
        self.keeps_intervals = keep_intervals
        self.thread = get_ident()
        self.is_open = True
        self.begin_ns = self.last_ns = self.read()

    def enter(self, phase: str, since_last: bool = False) -> None:
        """Opens a phase inside the one on top.

        Args:
            phase: Its name.
            since_last: Open it as of the last boundary instead of now.
        """
        # Read first: a signal's handler may run meanwhile, which opens and closes phases of its own.
        begin = self.last_ns if since_last else self.read()
        if begin < self.last_ns:  # it came after the reading
            begin = self.last_ns
        self._open.append(self.phases[phase])
        self._inside.append(0)
        self._begins.append(begin)
        self.last_ns = begin

    def leave(self, paused: bool = False) -> None:
        """Closes the phase on top; its time is its own, without the phases inside it.

        Args:
            paused: Keep the time for the next interval of the same measurement, which continues this one.

        Raises:
            IndexError: No phase is open.
        """
        now = self.read()
        if now < self.last_ns:  # as in `enter`
            now = self.last_ns
        self.last_ns = now
        measurement = self._open.pop()
        begin = self._begins.pop()
        took = now - begin
        own = took - self._inside.pop()
        self._inside[-1] += took
        if paused or measurement.carried:
            self.times.append((measurement, measurement.carry(own, paused), begin, now))
        else:
            self.times.append((measurement, own, begin, now))

    def close(self, at_last: bool = False) -> None:
        """Closes the ledger. Every phase has been left before.

        Args:
            at_last: Close it as of the last boundary instead of now.
        """
        end = self.last_ns if at_last else self.read()
        if end < self.last_ns:  # as in `enter`
            end = self.last_ns
        self.is_open = False
        self.total_ns = end - self.begin_ns
        self.other_ns = self.total_ns - self._inside[0]

    def drop(self) -> None:
        """Closes the ledger and forgets it."""
        self.is_open = False
        self._open.clear()
        self._begins.clear()
        self._inside[:] = [0]

    def enclosing(self, begin_ns: int) -> tuple[str | None, int | None]:
        """Finds the innermost phase that was open at the given moment and still is, and when it began.

        Returns:
            Its name, None for the iteration itself, and its beginning in nanoseconds; both None where there is none.
        """
        for measurement, begin in zip(reversed(self._open), reversed(self._begins), strict=True):
            if begin <= begin_ns:
                return measurement.name, begin
        return (None, self.begin_ns) if self.is_open and self.begin_ns <= begin_ns else (None, None)


def _reading_after(before_reading: Callable[[], None], clock: Clock) -> Clock:
    def read() -> int:
        before_reading()
        return clock()

    return read
