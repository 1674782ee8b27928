"""Where the time goes that timing costs a training batch.

    python -m benchmarks.cost_parts [--batches 3010] [--markdown]

The preset `evaluation` in a real Trainer, as in `benchmarks.cost`. Some functions are timed by the wall clock from
within, which adds a fifth of a microsecond or so to each call; the median of five runs. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import functools
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from statistics import median
from typing import Any
from unittest import mock

import torch

from benchmarks.cost_batches import StampedLoader, TinyModule, fit, preset_callbacks
from benchmarks.quiet import silence_lightning
from benchmarks.tables import print_table
from lightning_timing import StopwatchCallback
from lightning_timing.callbacks import stopwatch as printing
from lightning_timing.callbacks.run_files import RunFiles
from lightning_timing.callbacks.trail import Trail
from lightning_timing.closed_iterations import ClosedIterations
from lightning_timing.record_writer import RecordWriter

RUNS = 5
PARTS: tuple[tuple[str, Any, str], ...] = (
    ("our hook at the start of a batch: which one it is", StopwatchCallback, "on_train_batch_start"),
    ("the turn to the next batch, with all that waits for it", Trail, "turn"),
    ("- of that, working off iterations: figures and rows", ClosedIterations, "work_off"),
    ("- - of that, a row of the record", RunFiles, "write_iteration"),
    ("- of that, the report that is printed every 1,000 batches", printing, "print_report"),
    ("writing the record, on a thread of its own", RecordWriter, "_write"),
)


def parts_of(batches: int) -> dict[str, float]:
    """Microseconds a batch in each part, in one training."""
    spent: defaultdict[str, int] = defaultdict(int)

    def timed(original: Callable[..., Any], part: str) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            begin = time.perf_counter_ns()
            try:
                return original(*args, **kwargs)
            finally:
                spent[part] += time.perf_counter_ns() - begin

        return call

    with ExitStack() as patches:
        for part, owner, method in PARTS:
            patches.enter_context(mock.patch.object(owner, method, timed(getattr(owner, method), part)))
        fit(StampedLoader(batches, ()), TinyModule(), preset_callbacks("evaluation"))
    return {part: spent[part] / batches / 1e3 for part, _, _ in PARTS}


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=3010, help="in each training; ten are warm-up")
    parser.add_argument("--markdown", action="store_true", help="for the documentation")
    arguments = parser.parse_args()
    silence_lightning()
    torch.set_num_threads(1)
    runs = [parts_of(arguments.batches) for _ in range(RUNS)]
    rows = [[part, f"{median(run[part] for run in runs):.1f} us"] for part in runs[0]]
    print_table("Of a training batch", ["part", "time"], rows, markdown=arguments.markdown)
    return 0


if __name__ == "__main__":
    sys.exit(main())
