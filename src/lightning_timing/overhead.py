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
    """Returns the cost of a recorder's work so far.

    The time for closing an iteration, writing its row and printing is known: it lies between two readings of the clock.
    The boundaries inside iterations are counted, and each pair is taken to cost what a pair costs when it is tried out
    now, device events included; that takes a few milliseconds. Where the device is synchronized at each edge, the
    host's wait for it is not included.

    Returns:
        The cost, or None where nothing was measured.
    """
    measured_ns = recorder.measured_ns
    if not measured_ns:
        return None
    spent_ns = recorder.bookkeeping_ns + recorder.intervals_measured * _pair_ns(recorder.trial())
    return TimingOverhead(seconds=spent_ns / NS_IN_S, share=spent_ns / (measured_ns + recorder.bookkeeping_ns))


def _pair_ns(trial: Recorder) -> float:
    """Measures what entering and leaving a phase costs, in nanoseconds, by the fastest and least disturbed round."""
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
