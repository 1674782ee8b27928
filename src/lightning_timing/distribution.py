"""The distribution of one measurement's intervals, in bounded memory however long the run."""

from __future__ import annotations

import math
import struct
import sys
from array import array
from collections import Counter
from collections.abc import Sequence
from operator import mul
from typing import Final, NamedTuple

EXACT_INTERVALS: Final = 1024
"""Up to this many intervals percentiles are exact; beyond it they come from a histogram, within 0.4 %."""

_UPPER_HALF: Final = slice(1 if sys.byteorder == "little" else 0, None, 2)


class _Folded(NamedTuple):
    """What is kept of the durations that were folded in, besides the histogram. In nanoseconds."""

    number: int = 0
    total: int = 0
    squares: int = 0
    extremes: tuple[int, ...] = ()

    def plus(self, durations: list[int]) -> _Folded:
        """Returns these statistics with those of further durations added."""
        all_extremes = (*durations, *self.extremes)
        return _Folded(
            number=self.number + len(durations),
            total=self.total + sum(durations),
            squares=self.squares + sum(map(mul, durations, durations)),
            extremes=(min(all_extremes), max(all_extremes)) if all_extremes else (),
        )


class Distribution:
    """Count, sum, spread, extremes and percentiles of a stream of durations in integer nanoseconds.

    Durations wait in `pending` and are folded into a log-linear histogram, 128 buckets to a factor of two, when there
    are more than `EXACT_INTERVALS` of them; so adding one is a list append, and a bucket's middle is at most 1/256 off.
    Count, sum and standard deviation are exact at any length, since they are kept as integers.

    Any thread may add to `pending`, but only one at a time may fold. Another thread that asks for figures during a fold
    may see its durations twice.

    Attributes:
        pending: Durations that are not folded in yet. Append to it, and call `fold_if_full` from time to time.
    """

    __slots__ = ("_buckets", "_folded", "pending")

    def __init__(self) -> None:
        self.pending: list[int] = []
        self._buckets: Counter[int] = Counter()
        self._folded = _Folded()

    # Each reads `pending` before what is folded in: a duration that has left `pending` is in the histogram by then.

    @property
    def count(self) -> int:
        """Number of durations."""
        return len(self.pending) + self._folded.number

    @property
    def total_ns(self) -> int:
        """Sum of the durations, in nanoseconds."""
        return sum(self.pending) + self._folded.total

    @property
    def min_ns(self) -> int | None:
        """The shortest duration, in nanoseconds; None where there is none."""
        return min((*self.pending, *self._folded.extremes), default=None)

    @property
    def max_ns(self) -> int | None:
        """The longest duration, in nanoseconds; None where there is none."""
        return max((*self.pending, *self._folded.extremes), default=None)

    @property
    def std_ns(self) -> float | None:
        """Sample standard deviation of the durations, in nanoseconds; None for fewer than two."""
        pending = self.pending[:]
        n, total, squares, _ = self._folded.plus(pending)
        return None if n < 2 else math.sqrt((n * squares - total**2) / (n * (n - 1)))

    def percentiles_ns(self, *percents: float) -> list[float] | None:
        """Returns percentiles, in nanoseconds; None where there is no duration.

        Args:
            percents: From 0 to 100. While exact, interpolated linearly between the two nearest durations.
        """
        pending, buckets = self.pending[:], self._buckets.copy()
        if not buckets:
            return [_interpolate(sorted(pending), percent) for percent in percents] if pending else None
        buckets.update(_buckets_of(pending))
        ordered = sorted(buckets.items())
        count = sum(buckets.values())
        lowest, highest = self.min_ns or 0, self.max_ns or 0
        return [min(max(_between_ranks(ordered, count, percent), lowest), highest) for percent in percents]

    def add(self, ns: int) -> None:
        """Adds one duration, in nanoseconds."""
        self.pending.append(ns)
        self.fold_if_full()

    def fold_if_full(self) -> bool:
        """Folds the pending durations in when there are too many to keep. Returns whether it did."""
        if len(self.pending) <= EXACT_INTERVALS:
            return False
        pending = self.pending[:]
        self._buckets.update(_buckets_of(pending))
        self._folded = self._folded.plus(pending)
        del self.pending[: len(pending)]  # not those that came meanwhile
        return True


def _buckets_of(durations: Sequence[int]) -> list[int]:
    """Returns the bucket of each duration: the upper half of it as a 32-bit float.

    That is sign, exponent and 7 bits of the fraction, so buckets sort as durations do. C code does all of it, in a
    third of the time of a loop that shifts integers.
    """
    return memoryview(array("f", durations)).cast("B").cast("H")[_UPPER_HALF].tolist()


def _middle_of(bucket: int) -> float:
    lower, upper = struct.unpack("=2f", struct.pack("=2I", bucket << 16, bucket + 1 << 16))
    return float(lower + upper) / 2


def _between_ranks(ordered: list[tuple[int, int]], count: int, percent: float) -> float:
    """Interpolates a percentile linearly between the two nearest ranks, as `_interpolate` does for exact durations."""
    rank = percent / 100 * (count - 1)
    lower = math.floor(rank)
    below, above = _of_rank(ordered, lower), _of_rank(ordered, lower + 1)
    return below + (above - below) * (rank - lower)


def _of_rank(ordered: list[tuple[int, int]], rank: int) -> float:
    """Returns the middle of the bucket that holds the duration of the given rank."""
    seen = 0
    for bucket, in_bucket in ordered:
        seen += in_bucket
        if seen > rank:
            return _middle_of(bucket)
    return _middle_of(ordered[-1][0])


def _interpolate(ordered: list[int], percent: float) -> float:
    rank = percent / 100 * (len(ordered) - 1)
    below = math.floor(rank)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (rank - below)
