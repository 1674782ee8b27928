"""Records of runs that differ in a known way, for tests of comparisons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from records import MS, end, header, outside, phases, rows, write_lines

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def noisy_ms(seed: int, *, iterations: int = 100, center: float = 10.0) -> list[float]:
    """Times round `center`, in milliseconds, with a noise of 2 %."""
    return [float(ms) for ms in center * np.random.default_rng(seed).lognormal(0, 0.02, iterations)]


def write_run(
    run_dir: Path, forward_ms: Sequence[float], *, rank: int = 0, stage: str = "train", **fields: Any
) -> Path:
    """A run with these times of `forward` and an `other` of 1 ms; `fields` replace those of its header."""
    many_ns = [phases(forward=round(ms * MS), other=MS) for ms in forward_ms]
    return write_lines(run_dir, [header(rank=rank, **fields), *rows(many_ns, stage=stage), end()], rank=rank)


def write_run_of_epochs(
    run_dir: Path, forward_ms: Sequence[float], first_wait_ms: float, *, epochs: int = 12, rank: int = 0, **fields: Any
) -> Path:
    """The same run after a warm-up of 10 iterations, each of its epochs having waited that long for its first batch."""
    many_ns = [phases(forward=round(ms * MS), other=MS) for ms in forward_ms]
    waits = [outside("first_data_wait", round(first_wait_ms * MS), start_ns=0, epoch=epoch) for epoch in range(epochs)]
    return write_lines(run_dir, [header(rank=rank, **fields), *rows(many_ns), *waits, end()], rank=rank)
