"""What the timing itself costs: its bookkeeping, which the recorder times, and its hot path, which is tried out."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, NamedTuple

from lightning_timing.clocks import NS_IN_S, Clock
from lightning_timing.no_op import nothing
from lightning_timing.phase_recorder import PhaseRecorder
from lightning_timing.record import TimingOverhead

_ROUNDS: Final = 9
_CALLS: Final = 20
_EVICTING: Final = bytes(2 << 20)
"""As large as the caches of one core on most machines, so that a copy of it evicts what they hold."""


class UnitCosts(NamedTuple):
    """What the code that runs inside the iterations costs each time, in nanoseconds.

    Attributes:
        phase_ns: Both ends of a phase.
        user_ns: Both ends of a measurement of the user's, the first of its name in an iteration.
        user_again_ns: The same of a further one, which finds the caches filled.
        iteration_ns: What runs once an iteration, beyond the recorder's bookkeeping.
    """

    phase_ns: int
    user_ns: int
    user_again_ns: int
    iteration_ns: int


def overhead_of(recorder: PhaseRecorder, try_out: Callable[[], UnitCosts]) -> TimingOverhead | None:
    """Adds up the cost of a recorder's work so far.

    Closing iterations, their rows and the printed report lie between two readings of the clock, and are known. What
    runs inside the iterations is counted, at what it costs when it is tried out, device events included. What the host
    waits where it synchronizes the device at each edge is not in it.

    Args:
        recorder: The recorder, at the end of a run.
        try_out: Tries the hot path out. Takes some milliseconds.

    Returns:
        The cost, or None where nothing was measured.
    """
    measured_ns = recorder.measured_ns
    if not measured_ns:
        return None
    each, counts = try_out(), recorder.counts_inside
    inside_ns = counts.phases * each.phase_ns + counts.iterations * each.iteration_ns
    inside_ns += counts.users * each.user_ns + counts.users_again * each.user_again_ns
    spent_ns = recorder.bookkeeping_ns + inside_ns
    return TimingOverhead(seconds=spent_ns / NS_IN_S, share=spent_ns / (measured_ns + recorder.bookkeeping_ns))


def cold_ns(tried: Callable[[], object], clock: Clock) -> int:
    """What a call costs in the middle of a training, whose own work has evicted from the caches what the call needs.

    That is three to five times what it costs in a loop. The median of some calls, less what reading the clock takes, in
    nanoseconds.
    """
    return max(0, _median_ns(tried, clock) - _median_ns(nothing, clock))


def hot_ns(tried: Callable[[], object], clock: Clock) -> int:
    """What a call costs right after others like it, in nanoseconds: in the fastest of a few loops."""
    fastest = math.inf
    for _ in range(_ROUNDS):
        begin = clock()
        for _ in range(_CALLS):
            tried()
        fastest = min(fastest, (clock() - begin) / _CALLS)
    return round(fastest)


def _median_ns(tried: Callable[[], object], clock: Clock) -> int:
    took = []
    for _ in range(_ROUNDS):
        bytearray(_EVICTING)
        begin = clock()
        tried()
        took.append(clock() - begin)
    return sorted(took)[_ROUNDS // 2]
