"""A dataset that is timed where it runs: in a worker of a DataLoader, which spawned ones import this module for."""

from __future__ import annotations

import multiprocessing

import torch
from torch.utils.data import Dataset

from lightning_timing import NVTXRangeWrapper, Stopwatch, span


class TimedSamples(Dataset[torch.Tensor]):
    """Uses all that there is for user code. A sample says what came of it: see the attributes.

    Attributes:
        fields: What the numbers of a sample mean: whether it was made in a worker, whether the Stopwatch was enabled
            there, how many names it had measured, and how many intervals it measured after it was enabled by hand.
    """

    fields = ("in_worker", "enabled", "names", "measured_by_hand")

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        stopwatch = Stopwatch()
        enabled = stopwatch.is_enabled
        stopwatch.start_meas("sample")
        NVTXRangeWrapper().range_push("sample")
        with span(f"sample {index}"):
            pass
        NVTXRangeWrapper().range_pop("sample")
        stopwatch.end_meas("sample")
        stopwatch.finish_iter()
        names = sum(len(stage.measurements) for stage in stopwatch.summary().stages.values())
        in_worker = multiprocessing.parent_process() is not None
        return torch.tensor([float(in_worker), enabled, names, _measured_by_hand() if in_worker else 0])


def _measured_by_hand() -> int:
    """Enables the Stopwatch in this process, for the length of one measurement."""
    stopwatch = Stopwatch(num_warmup_iters=0)
    stopwatch.start_meas("by hand")
    stopwatch.end_meas("by hand")
    stopwatch.finish_iter()
    measured = stopwatch.summary().stages["train"].measurements["by hand"].count
    stopwatch.reset()
    return measured
