"""One measurement in one stage: whether it is open, what it took in this iteration, and its figures so far."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from lightning_timing.distribution import Distribution

if TYPE_CHECKING:
    from lightning_timing.device_timer import Mark

NOBODY: Final = 0
"""Stands for no thread: no thread has the identifier 0."""
UNUSUAL: Final = -1
"""Marks an unusual `Measurement`: no thread has an identifier below 0."""


class Opening:
    """An open interval of an unusual `Measurement` on one thread.

    Attributes:
        begin_ns: When it began, on the recorder's clock.
        spoilt: Whether its sample is to be dropped when it ends.
        mark: The moment on the device's stream, where that is timed.
    """

    __slots__ = ("begin_ns", "mark", "spoilt")

    def __init__(self, begin_ns: int = 0, mark: Mark | None = None) -> None:
        self.begin_ns = begin_ns
        self.spoilt = False
        self.mark = mark


class Measurement:
    """A named interval of one stage, started and ended any number of times.

    The hot path works directly on the fields up to `append`, which hold one open interval of one thread. Where that
    does not suffice (several threads have it open at once, a sample must be dropped, the device is timed too) the
    measurement is unusual, and `openings` holds the open intervals by thread.

    Attributes:
        name: Its name.
        known_since_ns: When it was made, on the recorder's clock. Iterations that ended before may be counted later.
        parent: The enclosing measurement's name, or None; known from the first interval on.
        begin_ns: When the interval that is open on the fast path began, or the last one, on the recorder's clock.
        thread: The thread that opened it; `NOBODY`: none is open; `UNUSUAL`: every start and end takes the slow path.
        append: Adds a sample, in nanoseconds, to this iteration. Of a user's measurement it is replaced twice: first it
            also looks for the parent, then it notes where the interval lies as long as that is kept, and from then on
            it is the method of `current`.
        current: The samples since they were last taken, in nanoseconds: of the user's measurements, this iteration's;
            none of a phase, whose `Ledger` has them.
        openings: The open intervals by thread identifier, where it is unusual.
        carried: What earlier parts of the phase that is now open took, where it was paused, in nanoseconds.
        counted_in: Those that get its samples: itself, and what it is a part of, such as `callbacks` of `callbacks/X`.
        inside: Whether it belongs to the iterations, and so may have a share of them.
        outside_count: How many of the samples lie outside of the iterations all the same.
        outside_ns: Their sum, in nanoseconds, of which no iteration has a share.
        distribution: The samples of all measured iterations.
        device: The device's samples, where there are any.
        device_untimed: Intervals whose device time could not be had.
        device_overlapped_ns: Its host time in which the device is known to have had work; None where nothing is known.
    """

    __slots__ = (
        "append",
        "begin_ns",
        "carried",
        "counted_in",
        "current",
        "device",
        "device_overlapped_ns",
        "device_untimed",
        "distribution",
        "inside",
        "known_since_ns",
        "name",
        "openings",
        "outside_count",
        "outside_ns",
        "parent",
        "thread",
    )

    def __init__(self, name: str, parent: str | None = None, *, unusual: bool = False, inside: bool = True) -> None:
        self.name = name
        self.known_since_ns = 0
        self.parent = parent
        self.begin_ns = 0
        self.thread = UNUSUAL if unusual else NOBODY
        self.current: list[int] = []
        self.append: Callable[[int], None] = self.current.append
        self.openings: dict[int, Opening] = {}
        self.carried = 0
        self.counted_in: tuple[Measurement, ...] = (self,)
        self.inside = inside
        self.outside_count = 0
        self.outside_ns = 0
        self.distribution = Distribution()
        self.device: Distribution | None = None
        self.device_untimed = 0
        self.device_overlapped_ns: int | None = None

    @property
    def inside_count(self) -> int:
        """How many samples lie inside the iterations."""
        return self.distribution.count - self.outside_count if self.inside else 0

    def take_current(self) -> list[int]:
        """Removes and returns this iteration's samples. Safe while other threads append."""
        taken = self.current[:]
        del self.current[: len(taken)]
        return taken

    def carry(self, own_ns: int, paused: bool) -> int | None:
        """Adds a part of an interval that was paused to its earlier parts.

        Returns:
            The whole interval's time, in nanoseconds; None if it is paused again.
        """
        whole = own_ns + self.carried
        self.carried = whole if paused else 0
        return None if paused else whole

    @property
    def is_open_on_any(self) -> bool:
        """Whether an interval is open on any thread."""
        return self.thread > NOBODY or bool(self.openings)

    def opened_by(self, thread: int) -> bool:
        """Whether an interval is open on the given thread and its sample still counts."""
        opening = self.openings.get(thread)
        return self.thread == thread if opening is None else not opening.spoilt

    def is_open_on(self, thread: int) -> bool:
        """Whether an interval is open on the given thread, even if its sample is to be dropped."""
        return self.thread == thread or thread in self.openings

    def begun_at(self, thread: int) -> int:
        """Returns when the interval that is open on the given thread began, on the recorder's clock."""
        opening = self.openings.get(thread)
        return self.begin_ns if opening is None else opening.begin_ns

    def go_unusual(self) -> None:
        """Makes the measurement unusual: moves the open interval, if any, to `openings`."""
        opening = Opening()
        # Nothing is called from here on, so no thread sees it half moved, or starts it meanwhile.
        if self.thread > NOBODY:
            opening.begin_ns = self.begin_ns
            self.openings[self.thread] = opening
        self.thread = UNUSUAL

    def spoil(self, thread: int) -> None:
        """Marks the interval that is open on the given thread: its sample is dropped when it ends."""
        self.go_unusual()
        self.openings[thread].spoilt = True


UserTimes = tuple[Measurement, list[int]]
"""A measurement of the user's and how long each of its intervals in one iteration took, in nanoseconds."""


def take_times(measurements: Iterable[Measurement]) -> list[UserTimes]:
    """Removes and returns this iteration's samples of the user's measurements that have any."""
    return [(measurement, measurement.take_current()) for measurement in measurements if measurement.current]
