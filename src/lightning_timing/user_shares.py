"""Which iteration gets what the user measured, where iterations are told of later than they are."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import chain
from threading import get_ident

from lightning_timing.ledger import Interval
from lightning_timing.measurement import Measurement, take_samples
from lightning_timing.recording import NOTHING, UserShare


class UserShares:
    """Takes each iteration's share, when it is counted or, if that is later, when it ends.

    Args:
        always_in_iteration: Whether each iteration follows the one before at once, as in a plain loop.

    Attributes:
        are_placed: Whether intervals have positions of interest: True, False, or None between iterations, where it is
            not known yet.
        cut_at_ns: The last end of an iteration at which its share had been set apart.
    """

    def __init__(self, *, always_in_iteration: bool) -> None:
        self.are_placed: bool | None = False if always_in_iteration else None
        self.cut_at_ns: int | None = None
        self._placed: list[Interval] = []
        self._thread = get_ident()
        self._set_apart: deque[tuple[int, UserShare]] = deque()  # by the ends of iterations, which come in their order

    def begin_stage(self) -> None:
        """The loop of another stage begins, on this thread."""
        self._thread = get_ident()

    def begin_iterations(self, are_placed: bool) -> None:
        """An iteration has begun, and others follow it until `rest`.

        Args:
            are_placed: Whether intervals have positions of interest.
        """
        self.are_placed = are_placed

    def rest(self) -> None:
        """No iteration is open, and none follows for now."""
        self.are_placed = None

    def forget_places(self) -> None:
        """What was measured so far lies between iterations."""
        self._placed.clear()

    def place(self, name: str, begin_ns: int, end_ns: int) -> None:
        """Notes where an interval lies, if it is the loop's own thread that measured it."""
        if get_ident() == self._thread:
            self._placed.append((name, begin_ns, end_ns))

    def take(self, measurements: Iterable[Measurement]) -> UserShare:
        """Removes and returns what these have measured since the last share was taken."""
        placed: Sequence[Interval] = ()
        if self._placed:
            placed, self._placed = self._placed, []
        samples = take_samples(measurements)
        return UserShare(samples, placed) if samples or placed else NOTHING

    def set_apart(self, end_ns: int, measurements: Sequence[Measurement]) -> bool:
        """Takes the share of an iteration that has ended, until it is counted.

        Args:
            end_ns: When it ended, on the recorder's clock.
            measurements: All of its stage.

        Returns:
            Whether it did: not where one is open on this thread, which has to be told of at once.
        """
        thread = get_ident()
        for measurement in measurements:
            if measurement.opened_by(thread):
                return False
        self._set_apart.append((end_ns, self.take(measurements)))
        return True

    def of_iteration(self, end_ns: int) -> UserShare | None:
        """The share of the iteration that ended at a moment, if that had been set apart. It is not kept any longer.

        What was set apart before, at an end that proved to be none, is in it too: a loop in a hook has turns as well.
        """
        parts: list[UserShare] = []
        cut_at_ns = None
        while self._set_apart and self._set_apart[0][0] <= end_ns and cut_at_ns != end_ns:
            cut_at_ns, share = self._set_apart.popleft()
            parts.append(share)
        if cut_at_ns == end_ns:
            self.cut_at_ns = end_ns
            return parts[0] if len(parts) == 1 else _joined(parts)
        self._give_back(parts)
        return None

    def _give_back(self, parts: Iterable[UserShare]) -> None:
        """What was set apart is still to be taken."""
        for share in parts:
            self._placed[:0] = share.placed
            for measurement, samples in share.samples:
                measurement.current[:0] = samples


def _joined(parts: Sequence[UserShare]) -> UserShare:
    samples: dict[Measurement, list[int]] = {}
    for measurement, taken in chain.from_iterable(share.samples for share in parts):
        samples.setdefault(measurement, []).extend(taken)
    return UserShare(list(samples.items()), list(chain.from_iterable(share.placed for share in parts)))
