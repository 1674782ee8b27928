"""What one start and one end cost: pairs of calls in a tight loop, ten to a turn of it, collector off."""

from __future__ import annotations

import time
from collections.abc import Callable
from timeit import Timer
from typing import Any

import nvtx  # type: ignore[import-untyped]  # it ships no types
from lightning.pytorch.profilers import SimpleProfiler

from benchmarks.interleaved import Costs, interleaved
from lightning_timing import NVTXRangeWrapper, Stopwatch, span

PAIRS = 40_000
PAIRS_A_TURN = 10

SIMPLE = "SimpleProfiler.start/stop"
EMPTY = "empty method pair"
FLOOR = "a method pair that reads the clock and does no more"
ENABLED = "Stopwatch.start_meas/end_meas, enabled"
FINISH = "finish_iter alone, for each of its ten pairs"
DISABLED = "Stopwatch.start_meas/end_meas, disabled"
SPAN_ENABLED = "span, Stopwatch and NVTX enabled"
SPAN_DISABLED = "span, disabled"
NVTX_ENABLED = "NVTXRangeWrapper.range_push/range_pop, enabled"
ANNOTATE = "nvtx.annotate"


class Empty:
    """Methods that do nothing, as cheap as a disabled pair could be."""

    def start(self, name: str) -> None:
        """Does nothing."""

    def stop(self, name: str) -> None:
        """Does nothing."""


class Clocked:
    """Methods that read the clock: what no start and end can do without."""

    def __init__(self) -> None:
        self.clock = time.perf_counter_ns

    def start(self, name: str) -> None:
        """Reads the clock."""
        self.clock()

    def stop(self, name: str) -> None:
        """Reads the clock."""
        self.clock()


def pair_costs(repeats: int) -> Costs:
    """Nanoseconds a pair. Fresh objects in each repeat; SimpleProfiler's list of durations grows, as it does in use."""
    candidates: dict[str, Callable[[], float]] = {
        SIMPLE: lambda: _nanoseconds("p.start('forward'); p.stop('forward')", p=SimpleProfiler()),
        FLOOR: lambda: _nanoseconds("p.start('forward'); p.stop('forward')", p=Clocked()),
        EMPTY: lambda: _nanoseconds("p.start('forward'); p.stop('forward')", p=Empty()),
        ENABLED: _stopwatch_enabled,
        FINISH: _finish_alone,
        DISABLED: lambda: _nanoseconds("s.start_meas('forward'); s.end_meas('forward')", s=Stopwatch()),
        SPAN_ENABLED: _span_enabled,
        SPAN_DISABLED: lambda: _nanoseconds("with span('forward'): pass", span=span),
        NVTX_ENABLED: _nvtx_enabled,
        ANNOTATE: lambda: _nanoseconds("with annotate('forward'): pass", annotate=nvtx.annotate),
    }
    return interleaved(candidates, repeats)


def _stopwatch_enabled() -> float:
    """With `finish_iter` after every ten pairs, its cost included."""
    stopwatch = Stopwatch()
    stopwatch.enable(num_warmup_iters=0)
    try:
        pair = "s.start_meas('forward'); s.end_meas('forward')"
        return _nanoseconds(pair, after="s.finish_iter()", s=stopwatch)
    finally:
        stopwatch.reset()


def _finish_alone() -> float:
    """`finish_iter` after a single pair, less that pair: what a tenth of it is in a turn of ten pairs."""
    stopwatch = Stopwatch()
    stopwatch.enable(num_warmup_iters=0)
    try:
        pair = "s.start_meas('forward'); s.end_meas('forward')"
        with_finish = _nanoseconds(f"{pair}; s.finish_iter()", s=stopwatch)
        without = _nanoseconds(pair, s=stopwatch)
        return (with_finish - without) / PAIRS_A_TURN
    finally:
        stopwatch.reset()


def _span_enabled() -> float:
    stopwatch, ranges = Stopwatch(), NVTXRangeWrapper()
    stopwatch.enable(num_warmup_iters=0)
    ranges.enable()
    try:
        return _nanoseconds("with span('forward'): pass", after="s.finish_iter()", s=stopwatch, span=span)
    finally:
        ranges.disable()
        stopwatch.reset()


def _nvtx_enabled() -> float:
    ranges = NVTXRangeWrapper()
    ranges.enable()
    try:
        return _nanoseconds("r.range_push('forward'); r.range_pop('forward')", r=ranges)
    finally:
        ranges.disable()


def _nanoseconds(pair: str, after: str = "pass", **names: Any) -> float:
    """What a pair costs, `after` once in every ten pairs included. The names are locals of the loop, as `self` is."""
    given = "; ".join(f"{name} = given[{name!r}]" for name in names)
    turn = "\n".join([pair] * PAIRS_A_TURN + [after])
    turns = PAIRS // PAIRS_A_TURN
    timer = Timer(turn, setup=given, timer=time.thread_time, globals={"given": names})
    return 1e9 * timer.timeit(turns) / (turns * PAIRS_A_TURN)
