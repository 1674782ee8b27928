"""What the timing itself costs, from its own bookkeeping and a calibration of its hot path on this machine."""

from __future__ import annotations

import time
from typing import Final

from lightning_timing.clocks import NS_IN_S
from lightning_timing.record import TimingOverhead
from lightning_timing.recorder import Recorder

_CALIBRATION_PAIRS: Final = 100
_CALIBRATION_ROUNDS: Final = 5


def overhead_of(recorder: Recorder) -> TimingOverhead | None:
    """The cost of a recorder's work so far.

    Closing an iteration, its row and its print lie between two readings of the clock, and are known. The boundaries
    inside the iterations are counted, at what a pair of them costs when it is tried out now, device events included,
    which takes a few milliseconds. What the host waits where it synchronizes the device at each edge is not in it.

    Returns:
        The cost, or None where nothing was measured.
    """
    measured_ns = recorder.measured_ns
    if not measured_ns:
        return None
    spent_ns = recorder.bookkeeping_ns + recorder.intervals_measured * _pair_ns(recorder.trial())
    return TimingOverhead(seconds=spent_ns / NS_IN_S, share=spent_ns / (measured_ns + recorder.bookkeeping_ns))


def _pair_ns(trial: Recorder) -> float:
    """The cost of entering and leaving a phase: the fastest of some rounds, the others being disturbed."""
    fastest = float("inf")
    for _ in range(_CALIBRATION_ROUNDS):
        trial.begin_iteration()
        begin = time.perf_counter_ns()
        for _ in range(_CALIBRATION_PAIRS):
            trial.enter("forward")
            trial.leave()
        fastest = min(fastest, (time.perf_counter_ns() - begin) / _CALIBRATION_PAIRS)
        trial.drop_iteration()
    return fastest
