"""Assigns what the user measures to iterations, even where these are reported late (see `docs/architecture.md`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import chain
from threading import get_ident

from lightning_timing.ledger import Interval
from lightning_timing.measured_iterations import NOTHING, MeasuredByUser
from lightning_timing.measurement import Measurement, take_times


class UserCuts:
    """Takes what the user measured in each iteration: when it is counted or, if that is late, when it ends.

    Args:
        always_in_iteration: Whether each iteration follows the one before at once, as in a plain loop.

    Attributes:
        are_placed: Whether the positions of intervals are kept: True, False, or None between iterations, where it is
            not known yet.
        cut_at_ns: The end of the last iteration of which what was set apart has been taken.
    """

    def __init__(self, *, always_in_iteration: bool) -> None:
        self.are_placed: bool | None = False if always_in_iteration else None
        self.cut_at_ns: int | None = None
        self._placed: list[Interval] = []
        self._thread = get_ident()
        self._set_apart: deque[tuple[int, MeasuredByUser]] = deque()  # each by its iteration's end, in their order

    def begin_stage(self) -> None:
        """Notes that the loop of another stage begins, on this thread."""
        self._thread = get_ident()

    def begin_iterations(self, are_placed: bool) -> None:
        """Notes that an iteration has begun. Others follow it until `rest`.

        Args:
            are_placed: Whether the positions of intervals are kept.
        """
        self.are_placed = are_placed

    def rest(self) -> None:
        """Notes that no iteration is open and none follows for now."""
        self.are_placed = None

    def forget_places(self) -> None:
        """Forgets the positions noted so far, since they lie between iterations."""
        self._placed.clear()

    def place(self, name: str, begin_ns: int, end_ns: int) -> None:
        """Notes where an interval lies, if it is the loop's own thread that measured it."""
        if get_ident() == self._thread:
            self._placed.append((name, begin_ns, end_ns))

    def take(self, measurements: Iterable[Measurement]) -> MeasuredByUser:
        """Removes and returns what these measurements took, and all positions, since the last call."""
        placed: Sequence[Interval] = ()
        if self._placed:
            placed, self._placed = self._placed, []
        times = take_times(measurements)
        return MeasuredByUser(times, placed) if times or placed else NOTHING

    def set_apart(self, end_ns: int, measurements: Sequence[Measurement]) -> bool:
        """Sets apart what was measured in an iteration that has ended, until the iteration is counted.

        Args:
            end_ns: When it ended, on the recorder's clock.
            measurements: All measurements of its stage.

        Returns:
            Whether it did. Not where a measurement is open on this thread: that iteration has to be reported at once.
        """
        thread = get_ident()
        for measurement in measurements:
            if measurement.opened_by(thread):
                return False
        self._set_apart.append((end_ns, self.take(measurements)))
        return True

    def of_iteration(self, end_ns: int) -> MeasuredByUser | None:
        """Removes and returns what was set apart for the iteration that ended at `end_ns`; None where nothing was.

        It includes what was set apart earlier at moments that turned out to be no iteration's end, such as when a loop
        inside a hook turned to its next batch.
        """
        if not self._set_apart:  # as always where iterations are reported as they end
            return None
        parts: list[MeasuredByUser] = []
        cut_at_ns = None
        while self._set_apart and self._set_apart[0][0] <= end_ns and cut_at_ns != end_ns:
            cut_at_ns, part = self._set_apart.popleft()
            parts.append(part)
        if cut_at_ns == end_ns:
            self.cut_at_ns = end_ns
            return parts[0] if len(parts) == 1 else _joined(parts)
        self._give_back(parts)
        return None

    def _give_back(self, parts: Iterable[MeasuredByUser]) -> None:
        """Returns what was set apart to its measurements, to be taken again."""
        for part in parts:
            self._placed[:0] = part.placed
            for measurement, taken in part.times:
                measurement.current[:0] = taken


def _joined(parts: Sequence[MeasuredByUser]) -> MeasuredByUser:
    times: dict[Measurement, list[int]] = {}
    for measurement, taken in chain.from_iterable(part.times for part in parts):
        times.setdefault(measurement, []).extend(taken)
    return MeasuredByUser(list(times.items()), list(chain.from_iterable(part.placed for part in parts)))
