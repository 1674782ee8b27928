"""What a long run adds to memory and to the cost of an iteration, and what importing the package costs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import NamedTuple

import psutil
import torch

from benchmarks.cost_batches import StampedLoader, TinyModule, fit, preset_callbacks
from benchmarks.interleaved import Costs, interleaved
from benchmarks.quiet import silence_lightning

ITERATIONS = 200_000
SETTLED = 10_000

BARE_INTERPRETER = "python -c pass"
IMPORT = "import lightning_timing"


class Growth(NamedTuple):
    """A long run.

    Attributes:
        memory_mb: What it added to the process's resident memory, in 10^6 bytes.
        slowdown: Time of a batch over the last 10,000, relative to the first 10,000 after settling.
    """

    memory_mb: float
    slowdown: float


class NoLoss(TinyModule):
    """A step without a loss: Lightning's own loop is most of the iteration, and 200,000 of them take half a minute."""

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> None:  # type: ignore[override]  # None skips
        """Nothing."""


class MeteredLoader(StampedLoader):
    """Also notes the process's resident memory, in bytes, when the run has settled and at its end."""

    def __init__(self) -> None:
        last = SETTLED + ITERATIONS
        super().__init__(last + 1, (SETTLED, 2 * SETTLED, ITERATIONS, last))
        self.resident: dict[int, int] = {}

    def stamp(self, index: int) -> None:
        """Notes time and memory."""
        super().stamp(index)
        self.resident[index] = psutil.Process().memory_info().rss


def growth(preset: str | None) -> Growth:
    """Trains for 200,000 iterations under a preset, or without any, in a fresh process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(_growth_here, preset).result()


def _growth_here(preset: str | None) -> Growth:
    silence_lightning()
    torch.set_num_threads(1)
    loader = MeteredLoader()
    fit(loader, NoLoss(), preset_callbacks(preset) if preset else [])
    last = SETTLED + ITERATIONS
    slowdown = loader.microseconds(ITERATIONS, last) / loader.microseconds(SETTLED, 2 * SETTLED)
    return Growth((loader.resident[last] - loader.resident[SETTLED]) / 1e6, slowdown)


def import_costs(repeats: int) -> Costs:
    """Milliseconds of CPU time of a fresh interpreter."""
    candidates = {BARE_INTERPRETER: _interpreter("pass"), IMPORT: _interpreter("import lightning_timing")}
    return interleaved(candidates, repeats)


def heavy_imports() -> list[str]:
    """Which of torch and lightning the import brings along."""
    code = "import sys, lightning_timing; print(*({'torch', 'lightning', 'pytorch_lightning'} & set(sys.modules)))"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def _interpreter(code: str) -> Callable[[], float]:
    def measure() -> float:
        shown = f"{code}\nimport time; print(time.process_time())"
        done = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, check=True)
        return 1e3 * float(done.stdout)

    return measure
