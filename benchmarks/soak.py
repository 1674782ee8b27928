"""A long training with everything on: does it keep its memory, its cost per iteration, and its file descriptors?

    python -m benchmarks.soak [--minutes 30] [--markdown]

All three callbacks with ranges tracked, logging of the phases, the user's spans in the step and on a second thread, a
logger, checkpoints, and a validation with a DataLoader worker that is started and ended in every epoch. Looked at is
the end of each epoch, when no worker runs: the process's resident memory, its open descriptors and threads, and the CPU
time that it has used, which other work on the machine hardly stretches. The run is cut into tenths; the first one is
left out of the verdict, since caches fill and histograms grow in it.

Returns 1 if the second tenth and the last differ by more than the limits below.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from statistics import median, mode
from typing import Final, NamedTuple

import lightning.pytorch as pl
import psutil
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.quiet import silence_lightning
from benchmarks.tables import print_table
from lightning_timing import build_callbacks, span
from lightning_timing.presets import load_preset

EVERYTHING: Final = (
    "stopwatch.log_to_logger=true",
    "stopwatch.print_every_n_iters=500",
    "nvtx_range_wrapper.keep_track_of_range_order=true",
)
BATCHES: Final = 250
"""In an epoch."""
TENTHS: Final = 10

MOST_MEMORY_MB: Final = 10.0
MOST_SLOWDOWN: Final = 1.1


class Sample(NamedTuple):
    """The process at the end of an epoch.

    Attributes:
        minutes: Since the training began.
        iterations: Training batches so far.
        cpu_s: CPU time of all threads so far, in seconds.
        memory_mb: Resident memory, in 10^6 bytes.
        descriptors: Open files, sockets and pipes.
        threads: Threads.
    """

    minutes: float
    iterations: int
    cpu_s: float
    memory_mb: float
    descriptors: int
    threads: int


class Sampler(pl.Callback):
    """Takes a sample at the end of each epoch.

    Attributes:
        samples: Those taken.
    """

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self._began = time.monotonic()
        self._process = psutil.Process()

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Takes a sample."""
        self.samples.append(
            Sample(
                minutes=(time.monotonic() - self._began) / 60,
                iterations=(trainer.current_epoch + 1) * BATCHES,
                cpu_s=time.process_time(),
                memory_mb=self._process.memory_info().rss / 1e6,
                descriptors=self._process.num_fds(),
                threads=self._process.num_threads(),
            )
        )


class Module(pl.LightningModule):
    """A step of some milliseconds, with spans in it."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(4)))
        self.head = torch.nn.Linear(256, 1)

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        """A loss, logged."""
        with span("encoder"):
            encoded = self.encoder(batch[0])
        with span("head"):
            loss: torch.Tensor = self.head(encoded).square().mean()
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: list[torch.Tensor], batch_idx: int) -> None:
        """A loss that is looked at by the checkpoints."""
        self.log("val_loss", self.head(self.encoder(batch[0])).square().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """SGD."""
        return torch.optim.SGD(self.parameters(), lr=1e-3)


@contextlib.contextmanager
def spans_on_a_second_thread() -> Iterator[None]:
    """Measures something every 10 ms beside the training."""
    stop = threading.Event()

    def measure() -> None:
        while not stop.wait(0.01):
            with span("beside"):
                pass

    thread = threading.Thread(target=measure)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def train(minutes: float, folder: Path) -> list[Sample]:
    """Trains for so long, and returns what was seen at the end of each epoch."""
    sampler = Sampler()
    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=-1,
        max_time=timedelta(minutes=minutes),
        default_root_dir=folder,
        logger=CSVLogger(folder, name="", version=""),
        callbacks=[
            *build_callbacks(load_preset("profiling", EVERYTHING)),
            ModelCheckpoint(folder, monitor="val_loss", save_top_k=2, save_last=True),
            sampler,
        ],
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    samples = TensorDataset(torch.randn(16 * BATCHES, 256))
    trained_on = DataLoader(samples, batch_size=16, shuffle=True)
    validated_on = DataLoader(TensorDataset(torch.randn(64, 256)), batch_size=16, num_workers=1)
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), spans_on_a_second_thread():
        trainer.fit(Module(), trained_on, validated_on)
    return sampler.samples


class Tenth(NamedTuple):
    """A tenth of the run.

    Attributes:
        until_min: When it ended, in minutes.
        iterations: Training batches in it.
        us: CPU time of an iteration with its share of what an epoch's end takes, in microseconds: the epochs' median.
        memory_mb: Resident memory at its end.
        descriptors: Those open, at most epochs' ends: the record's file is one more while it is written to.
        threads: Likewise.
    """

    until_min: float
    iterations: int
    us: float
    memory_mb: float
    descriptors: int
    threads: int


def tenths(samples: Sequence[Sample]) -> list[Tenth]:
    """The run in tenths."""
    found = []
    for number in range(TENTHS):
        first, last = (round((len(samples) - 1) * n / TENTHS) for n in (number, number + 1))
        part = samples[first : last + 1]
        costs = [(after.cpu_s - before.cpu_s) / BATCHES * 1e6 for before, after in pairwise(part)]
        found.append(
            Tenth(
                until_min=part[-1].minutes,
                iterations=part[-1].iterations - part[0].iterations,
                us=median(costs),
                memory_mb=part[-1].memory_mb,
                descriptors=mode(sample.descriptors for sample in part),
                threads=mode(sample.threads for sample in part),
            )
        )
    return found


def verdict(found: Sequence[Tenth]) -> list[tuple[str, str, bool]]:
    """What is asked, what was found, and whether it is within its limit: the last tenth against the second."""
    early, late = found[1], found[-1]
    grown_mb, slowdown = late.memory_mb - early.memory_mb, late.us / early.us
    return [
        ("memory added", f"{grown_mb:+.1f} MB", grown_mb <= MOST_MEMORY_MB),
        ("an iteration at the end / at the start", f"{slowdown:.3f}", slowdown <= MOST_SLOWDOWN),
        ("descriptors added", f"{late.descriptors - early.descriptors:+d}", late.descriptors <= early.descriptors),
        ("threads added", f"{late.threads - early.threads:+d}", late.threads <= early.threads),
    ]


def main() -> int:
    """Prints the tables. Returns 1 if something grew."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30, help="how long to train")
    parser.add_argument("--markdown", action="store_true", help="for the README")
    arguments = parser.parse_args()
    silence_lightning()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        samples = train(arguments.minutes, Path(folder))
        written_mb = sum(file.stat().st_size for file in Path(folder).rglob("timing/*")) / 1e6
    if len(samples) <= 2 * TENTHS:
        print(f"{len(samples)} epochs are too few to be cut into tenths: train for longer")
        return 1
    found = tenths(samples)
    columns = ["until", "iterations", "CPU time of one", "memory", "descriptors", "threads"]
    rows = [
        [f"{t.until_min:.1f} min", f"{t.iterations:,}", f"{t.us:.0f} us", f"{t.memory_mb:.1f} MB", *map(str, t[4:])]
        for t in found
    ]
    title = f"{samples[-1].iterations:,} iterations in {samples[-1].minutes:.1f} minutes, record of {written_mb:.0f} MB"
    print_table(title, columns, rows, markdown=arguments.markdown)
    judged: list[tuple[str, str, bool]] = verdict(found)
    lines = [[what, value, "flat" if flat else "not flat"] for what, value, flat in judged]
    print_table("The last tenth against the second", ["", "figure", ""], lines, markdown=arguments.markdown)
    return 0 if all(flat for *_, flat in judged) else 1


if __name__ == "__main__":
    sys.exit(main())
