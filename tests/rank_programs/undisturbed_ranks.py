"""Fits on two ranks without our callbacks and with all of them: `undisturbed_ranks.py FOLDER`.

Each rank writes to `FOLDER/rank<N>.json` how often the ranks talked to each other in the training loop, when each of
the runs was over for it while a rank's storage was slow, and what was asked of CUDA's profiler at which batch.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Any

import torch.distributed
from lightning.pytorch.loggers import CSVLogger
from rank_programs.tiny_ranks import Loader, Module, local_rank, trainer_of
from torch.distributed import distributed_c10d

from lightning_timing import CUDAProfilerCallback, NVTXCallback, StopwatchCallback
from lightning_timing.callbacks.run_files import RunFiles

BATCHES = 8
SLOW_STORAGE_S = 3.0
TALKS = (
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "gather",
    "gather_object",
    "irecv",
    "isend",
    "monitored_barrier",
    "recv",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
    "scatter_object_list",
    "send",
)
"""Functions of `torch.distributed` in which ranks wait for each other."""


def count_talks() -> Counter[str]:
    """Counts from now on how often each of the functions is called in this process."""
    counts: Counter[str] = Counter()
    for name in TALKS:
        original = getattr(distributed_c10d, name)

        def counted(*args: Any, _name: str, _original: Callable[..., Any], **kwargs: Any) -> Any:
            counts[_name] += 1
            return _original(*args, **kwargs)

        talk = wraps(original)(partial(counted, _name=name, _original=original))
        setattr(distributed_c10d, name, talk)
        setattr(torch.distributed, name, talk)
    return counts


class Watched(Module):
    """Notes how often the ranks talked from the start of the training to its end, and counts its batches."""

    def __init__(self, counts: Counter[str]) -> None:
        super().__init__()
        self.counts = counts
        self.talks: dict[str, int] = {}
        self.batches = 0

    def on_train_start(self) -> None:
        self.counts.clear()

    def on_train_batch_end(self, *_: Any) -> None:
        self.batches += 1

    def on_train_end(self) -> None:
        self.talks = dict(self.counts)


class Runtime:
    """Stands for CUDA's runtime, and notes at which batch it was called."""

    def __init__(self, module: Watched) -> None:
        self.module = module
        self.calls: list[tuple[str, int]] = []

    def synchronize(self) -> None:
        self.calls.append(("synchronize", self.module.batches))

    def profiler_start(self) -> None:
        self.calls.append(("start", self.module.batches))

    def profiler_stop(self) -> None:
        self.calls.append(("stop", self.module.batches))


def fit(folder: Path, module: Watched, callbacks: list[Any]) -> float:
    """Fits. Returns when it was over for this rank, by the clock that all processes of a machine share."""
    logger = CSVLogger(folder / "logs", name="", version="")
    trainer = trainer_of(folder, logger=logger, log_every_n_steps=2, callbacks=callbacks)
    trainer.fit(module, Loader(BATCHES))
    return time.monotonic()


def over_with_slow_storage(folder: Path, slow_rank: int, counts: Counter[str]) -> float:
    """Fits with a record that one rank takes long to finish."""
    close = RunFiles.close_segment

    def close_slowly(*args: Any) -> None:
        time.sleep(SLOW_STORAGE_S)
        close(*args)

    if local_rank() == slow_rank:
        RunFiles.close_segment = close_slowly  # type: ignore[method-assign]  # until the run is over
    try:
        return fit(folder, Watched(counts), [StopwatchCallback(ranks="all")])
    finally:
        RunFiles.close_segment = close  # type: ignore[method-assign]  # as it was


def main() -> None:
    folder = Path(sys.argv[1])
    counts = count_talks()
    bare, timed = Watched(counts), Watched(counts)
    everywhere, on_rank_1 = Runtime(timed), Runtime(timed)
    fit(folder / "bare", bare, [])
    fit(
        folder / "timed",
        timed,
        [
            StopwatchCallback(num_warmup_iters=1, print_every_n_iters=2, ranks="all", log_to_logger=True),
            NVTXCallback(),
            CUDAProfilerCallback(start_step=3, num_steps=2, ranks="all", runtime=everywhere),
            CUDAProfilerCallback(start_step=1, num_steps=1, ranks=[1], runtime=on_rank_1),
        ],
    )
    found = {
        "bare": bare.talks,
        "timed": timed.talks,
        "everywhere": everywhere.calls,
        "on_rank_1": on_rank_1.calls,
        "over": [over_with_slow_storage(folder / f"slow{rank}", rank, counts) for rank in range(2)],
    }
    (folder / f"rank{local_rank()}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
