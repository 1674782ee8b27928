"""Fits on two ranks without our callbacks and with all of them: `undisturbed_ranks.py FOLDER`.

Each rank writes to `FOLDER/rank<N>.json` how often the ranks talked to each other from the start of the training on,
when each of the runs was over for it while a rank took long to end its record, and what was asked of CUDA's profiler at
which batch.
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

BATCHES = 8
SLOW_END_S = 3.0
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
    """Counts its batches, and starts the count of talks anew when the training starts."""

    def __init__(self, counts: Counter[str]) -> None:
        super().__init__()
        self.counts = counts
        self.talks_before = 0
        self.batches = 0

    def on_train_start(self) -> None:
        self.talks_before = self.counts.total()
        self.counts.clear()

    def on_train_batch_end(self, *_: Any) -> None:
        self.batches += 1


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


def fit(folder: Path, module: Watched, callbacks: list[Any]) -> dict[str, int]:
    """Fits. Returns how often the ranks talked from the start of the training until the end of the call."""
    logger = CSVLogger(folder / "logs", name="", version="")
    trainer = trainer_of(folder, logger=logger, log_every_n_steps=2, callbacks=callbacks)
    trainer.fit(module, Loader(BATCHES))
    assert module.talks_before > 0, "nothing was counted, though ranks cannot start without talking"
    assert "barrier" not in vars(trainer.strategy), "the barrier is still watched"
    return dict(module.counts)


def over_after_slow_end(folder: Path, slow_rank: int, counts: Counter[str]) -> float:
    """Fits, with a rank that takes long to end its record.

    Returns:
        When it was over for this rank, by the clock that all processes of a machine share.
    """
    end = StopwatchCallback.end

    def end_slowly(*args: Any) -> None:
        time.sleep(SLOW_END_S)
        end(*args)

    if local_rank() == slow_rank:
        StopwatchCallback.end = end_slowly  # type: ignore[method-assign]  # until the run is over
    try:
        fit(folder, Watched(counts), [StopwatchCallback(ranks="all")])
        return time.monotonic()
    finally:
        StopwatchCallback.end = end  # type: ignore[method-assign]  # as it was


def main() -> None:
    folder = Path(sys.argv[1])
    counts = count_talks()
    timed = Watched(counts)
    everywhere, on_rank_1 = Runtime(timed), Runtime(timed)
    callbacks = [
        StopwatchCallback(num_warmup_iters=1, print_every_n_iters=2, ranks="all", log_to_logger=True),
        NVTXCallback(),
        CUDAProfilerCallback(start_step=3, num_steps=2, ranks="all", runtime=everywhere),
        CUDAProfilerCallback(start_step=1, num_steps=1, ranks=[1], runtime=on_rank_1),
    ]
    found = {
        "talks": [fit(folder / "bare", Watched(counts), []), fit(folder / "timed", timed, callbacks)],
        "everywhere": everywhere.calls,
        "on_rank_1": on_rank_1.calls,
        "over": [over_after_slow_end(folder / f"slow{rank}", rank, counts) for rank in range(2)],
    }
    (folder / f"rank{local_rank()}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
