"""What many durations come to, all of them at once: by numpy where it is loaded anyway, as it is by torch.

It takes a quarter of what Python's own functions do. They do where there is no numpy, and it is not loaded for this.
"""

from __future__ import annotations

import sys
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from operator import mul
from typing import Any, Final, NamedTuple

_UPPER_HALF: Final = slice(1 if sys.byteorder == "little" else 0, None, 2)
_INT64_LIMIT: Final = 2**63


class Batch(NamedTuple):
    """What some durations come to, in nanoseconds; there is at least one.

    Attributes:
        number: How many they are.
        total: Their sum.
        squares: The sum of their squares.
        least: The shortest.
        greatest: The longest.
        buckets: How many are in each bucket: the upper half of a duration as a 32-bit float, sign, exponent and 7
            bits, which sorts as it does.
    """

    number: int
    total: int
    squares: int
    least: int
    greatest: int
    buckets: Mapping[int, int]


def batch_of(durations: Sequence[int]) -> Batch:
    """Sums up durations."""
    numpy: Any = sys.modules.get("numpy")
    if not hasattr(numpy, "bincount"):  # not loaded, or not yet
        return by_python(durations)
    try:
        return by_numpy(numpy, durations)
    except OverflowError:
        return by_python(durations)


def by_python(durations: Sequence[int]) -> Batch:
    """As `batch_of`, without numpy."""
    return Batch(
        len(durations),
        sum(durations),
        sum(map(mul, durations, durations)),
        min(durations),
        max(durations),
        Counter(buckets_of(durations)),
    )


def by_numpy(numpy: Any, durations: Sequence[int]) -> Batch:
    """As `batch_of`, with numpy.

    Raises:
        OverflowError: Their squares do not add up to less than 2**63.
    """
    ns = numpy.frombuffer(array("q", durations), numpy.int64)
    greatest = int(ns.max())
    if greatest**2 * len(durations) >= _INT64_LIMIT:
        raise OverflowError
    buckets = ns.astype(numpy.float32).view(numpy.uint32) >> 16
    lowest = int(buckets.min())
    counts = numpy.bincount(buckets - lowest)
    (used,) = counts.nonzero()
    return Batch(
        len(durations),
        int(ns.sum()),
        int(ns.dot(ns)),
        int(ns.min()),
        greatest,
        dict(zip((used + lowest).tolist(), counts[used].tolist(), strict=True)),
    )


def buckets_of(durations: Sequence[int]) -> list[int]:
    """The bucket of each. All of it is done by C code, at a third of what a loop takes that shifts integers."""
    return memoryview(array("f", durations)).cast("B").cast("H")[_UPPER_HALF].tolist()
