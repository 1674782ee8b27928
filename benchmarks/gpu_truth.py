"""Whether device time is true, and what it costs: on any CUDA machine, in under five minutes.

    python -m benchmarks.gpu_truth [--markdown] [--repeats 5]

- Truth: the time between two events round a piece of work, beside the sum of its kernels' times by torch.profiler. They
  agree where the device always has something to do. Where it waits for the host in between, the events are right to
  say more: they include the waiting. (torch.profiler stays attached to CUDA once it was used: it is used last.)
- Cost: a training batch in a real Trainer, with `StopwatchCallback` in each of its modes, relative to one without it.
  The modes take turns; a ratio is the median over the repeats.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from functools import partial
from typing import Literal

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from benchmarks.interleaved import interleaved, ratio, typical
from benchmarks.quiet import silence_lightning
from benchmarks.tables import print_table
from lightning_timing import StopwatchCallback
from lightning_timing.device import Device, torch_device
from lightning_timing.device_timer import DeviceTimer

ROUNDS = 10
"""How often each piece of work is timed."""
BATCHES = 100
SETTLING_BATCHES = 50

NONE = "no callback"
Mode = Literal["off", "events", "sync"]
MODES: tuple[Mode, ...] = ("off", "events", "sync")

Work = Callable[[], object]


# ---- truth ----


def pieces_of_work(device: torch.device) -> Mapping[str, Work]:
    """Work that keeps the device busy, and work between whose kernels it waits for the host."""
    matrix = torch.randn(4096, 4096, device=device)
    large = torch.randn(4096, 4096, device=device)
    images = torch.randn(64, 3, 64, 64, device=device)
    net = nn.Sequential(nn.Conv2d(3, 128, 3), nn.ReLU(), nn.Conv2d(128, 128, 3), nn.ReLU(), nn.Conv2d(128, 8, 3))
    net.to(device)
    small = torch.randn(1024, device=device)
    return {
        "20 products of large matrices": partial(_repeat, lambda: matrix @ matrix, 20),
        "convolutions, forward and backward": lambda: net(images).square().mean().backward(),
        "500 tiny kernels": partial(_repeat, lambda: small + 1, 500),
        "100 kernels in a CUDA graph": _captured(partial(_repeat, lambda: large.add_(1), 100)),
    }


def _repeat(work: Work, times: int) -> None:
    for _ in range(times):
        work()


def _captured(work: Work) -> Work:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def times_by_events(device: Device, work: Work) -> tuple[float, float]:
    """Milliseconds on the host until the work is enqueued, and on the device; each the median of the rounds."""
    timer: DeviceTimer[None] = DeviceTimer(device)
    host_ms = []
    for _ in range(ROUNDS):
        device.synchronize()
        begin_ns = time.perf_counter_ns()
        begin = timer.mark()
        work()
        end = timer.mark()
        host_ms.append((time.perf_counter_ns() - begin_ns) / 1e6)
        timer.add("work", (begin, end))
        timer.end_iteration(None, end)
    device_ms = [ns / 1e6 for times in timer.drain() for ns in times.samples_ns["work"]]
    return statistics.median(host_ms), statistics.median(device_ms)


def time_in_kernels(device: Device, work: Work) -> float:
    """Milliseconds in kernels, copies and fills by torch.profiler: the mean of the rounds."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        _repeat(work, ROUNDS)
        device.synchronize()
    on_device = [event for event in profiler.events() or [] if event.device_type.name == "CUDA"]
    total_us: float = sum(event.time_range.elapsed_us() for event in on_device if not event.is_user_annotation)
    return total_us / ROUNDS / 1e3


def truth_rows(device: Device, work: Mapping[str, Work]) -> Iterator[list[str]]:
    """A line for each piece of work."""
    timed = {}
    for name, piece in work.items():
        say(name)
        _repeat(piece, 3)
        timed[name] = times_by_events(device, piece)
    for name, (host_ms, events_ms) in timed.items():
        kernels_ms = time_in_kernels(device, work[name])
        # The profiler sees no kernels where another tool has CUDA's interface for such, or it is not allowed.
        known = [f"{kernels_ms:.3f}", f"{events_ms / kernels_ms:.3f}"] if kernels_ms else ["-", "-"]
        yield [name, f"{host_ms:.3f}", f"{events_ms:.3f}", *known]


def say(doing: str) -> None:
    """Says what is going on, beside the tables."""
    print(f"... {doing}", file=sys.stderr, flush=True)


# ---- cost ----


class Stack(pl.LightningModule):
    """Linear layers on top of each other: wide ones keep the device busy, many narrow ones the host."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(width, width) for _ in range(depth)))

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        """The mean square of what comes out."""
        loss: Tensor = self.layers(batch).square().mean()
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """SGD."""
        return torch.optim.SGD(self.parameters(), lr=1e-3)


class StampedLoader:
    """The same batch again and again, on the device already; takes the time of those after the settling ones."""

    def __init__(self, batch: Tensor, wait: Callable[[], object]) -> None:
        self._batch = batch
        self._wait = wait
        self.milliseconds_a_batch = 0.0

    def __len__(self) -> int:
        return SETTLING_BATCHES + BATCHES + 1

    def __iter__(self) -> Iterator[Tensor]:
        for _ in range(SETTLING_BATCHES):
            yield self._batch
        self._wait()
        begin = time.perf_counter()
        for _ in range(BATCHES):
            yield self._batch
        self._wait()
        self.milliseconds_a_batch = (time.perf_counter() - begin) * 1e3 / BATCHES
        yield self._batch  # nobody asks for more than `len`, so the lines above need one more to be asked for


def batch_ms(
    root_device: torch.device, wait: Callable[[], object], shape: tuple[int, int, int], mode: Mode | None
) -> float:
    """Milliseconds a training batch takes.

    Args:
        root_device: Where to train.
        wait: Waits for it.
        shape: Width and depth of the stack, and the size of a batch.
        mode: Of the callback; None: no callback.
    """
    width, depth, size = shape
    loader = StampedLoader(torch.randn(size, width, device=root_device), wait)
    callbacks = [] if mode is None else [StopwatchCallback(print_every_n_iters=100, device_time=mode)]
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        trainer = pl.Trainer(
            accelerator=root_device.type,
            devices=1,
            max_epochs=1,
            callbacks=[*callbacks],
            default_root_dir=folder,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(Stack(width, depth), loader)
    return loader.milliseconds_a_batch


def cost_rows(root_device: torch.device, wait: Callable[[], object], repeats: int) -> Iterator[list[str]]:
    """A line for each regime."""
    regimes = {"the device sets the pace": (4096, 8, 256), "the host sets the pace": (64, 64, 16)}
    for name, shape in regimes.items():
        say(name)
        candidates = {NONE: partial(batch_ms, root_device, wait, shape, None)}
        candidates |= {mode: partial(batch_ms, root_device, wait, shape, mode) for mode in MODES}
        costs = interleaved(candidates, repeats)
        yield [name, f"{typical(costs, NONE):.3f}", *(f"{ratio(costs, mode, to=NONE):.3f}" for mode in MODES)]


def main() -> None:
    """Prints both tables, or why it cannot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", action="store_true", help="tables for the README")
    parser.add_argument("--repeats", type=int, default=5, help="turns of the cost table (default: 5)")
    arguments = parser.parse_args()
    root_device = torch.device("cuda", 0)
    device = torch_device(root_device)
    if device is None:
        print(f"gpu_truth needs a CUDA device, and torch {torch.__version__} sees none: nothing was measured.")
        return
    silence_lightning()
    print(f"{torch.cuda.get_device_name(root_device)}, torch {torch.__version__}")
    print_table(
        "A training batch with each device_time, relative to no callback",
        ["regime", "no callback, ms", *MODES],
        list(cost_rows(root_device, device.synchronize, arguments.repeats)),
        markdown=arguments.markdown,
    )
    print_table(
        "Milliseconds on the host until enqueued, between events, in kernels by torch.profiler",
        ["work", "enqueued by", "events", "kernels", "events / kernels"],
        list(truth_rows(device, pieces_of_work(root_device))),
        markdown=arguments.markdown,
    )


if __name__ == "__main__":
    main()
