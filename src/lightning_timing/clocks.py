"""Clocks: how they are handed in, and the pairing that lets the clocks of several processes be lined up."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple

NS_IN_S: Final = 1e9
"""Nanoseconds in a second."""

Clock = Callable[[], int]
"""Reads a monotonic clock, in nanoseconds from an arbitrary origin."""

monotonic_ns: Clock = time.perf_counter_ns
"""The clock used where none is handed in: monotonic, of the highest resolution that the system has."""


class ClockPairing(NamedTuple):
    """One moment on two clocks, which places a process's monotonic readings on the wall clock.

    Attributes:
        monotonic_ns: The reading of the process's own monotonic clock, in nanoseconds.
        unix_ns: The wall clock at the same moment, in nanoseconds since 1970-01-01 UTC.
    """

    monotonic_ns: int
    unix_ns: int


def pair_clocks(clock: Clock) -> ClockPairing:
    """Reads both clocks as one moment: the wall clock between two readings of the monotonic one, at their middle."""
    before = clock()
    unix_ns = time.time_ns()
    return ClockPairing(monotonic_ns=(before + clock()) // 2, unix_ns=unix_ns)
