"""What a training batch costs in a real Trainer, beside the same Trainer with no callback."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple
from unittest import mock

import lightning.pytorch as pl
import torch
from lightning.pytorch.profilers import PassThroughProfiler, SimpleProfiler

from benchmarks.interleaved import Costs, interleaved
from lightning_timing import build_callbacks, span
from lightning_timing.presets import load_preset

BATCHES = 1_000
"""As many are counted: of a preset that prints every 1,000, one print is in them."""
SETTLING_BATCHES = 300
"""The first ones, which are not counted: caches fill, warm-up ends, and what is done once a run is done, such as the
first reading of CPU times."""

BARE = "no callback"
BARE_AGAIN = "no callback again: the noise of this table"
THREE_EMPTY = "three empty callbacks"
ONE_HOOK = "one callback with one hook, which does nothing"
PREPARED = "a profiler whose contexts are prepared and do nothing"
SIMPLE = "SimpleProfiler"
TRACEML = "traceml-ai's callback"
SILENT = "evaluation, but for its print every 1,000 batches"
SPANNED = "evaluation, with a span in the step"
AT_ONCE = "evaluation, handled at once as beside a tool or a capture window"
PRESETS = ("training", "evaluation", "profiling")


class TinyModule(pl.LightningModule):
    """As little work as a training step can have, so that nothing hides what surrounds it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        """The sum of a linear layer."""
        loss: torch.Tensor = self.layer(batch).sum()
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """SGD."""
        return torch.optim.SGD(self.parameters(), lr=1e-3)


class SpannedModule(TinyModule):
    """The same, as a user would measure it."""

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        """The sum of a linear layer, in a span."""
        with span("layer"):
            return super().training_step(batch, batch_idx)


class OneHook(pl.Callback):
    """What a callback costs that is told of each batch once, as Lightning skips hooks that are not callable."""

    def __init__(self) -> None:
        super().__init__()
        for hook in ("zero_grad", "backward", "optimizer_step"):
            setattr(self, f"on_before_{hook}", None)
        vars(self).update(on_after_backward=None, on_train_batch_end=None)


class PreparedProfiler(PassThroughProfiler):
    """Hands out one prepared context for everything: what is to be saved by not making one for every action."""

    def __init__(self) -> None:
        super().__init__()
        self._context = contextlib.nullcontext()

    def profile(self, action_name: str) -> Any:
        """A context that does nothing."""
        return self._context


class StampedLoader:
    """The same batch again and again; notes the process's CPU time when certain ones are asked for.

    Attributes:
        stamps: Nanoseconds of CPU time of all threads, by the index of the batch.
    """

    def __init__(self, batches: int, stamped: Iterable[int]) -> None:
        self.stamps: dict[int, int] = {}
        self._batches = batches
        self._stamped = frozenset(stamped)
        self._batch = torch.ones(4, 8)

    def __len__(self) -> int:
        return self._batches

    def __iter__(self) -> Iterator[torch.Tensor]:
        for index in range(self._batches):
            if index in self._stamped:
                self.stamp(index)
            yield self._batch

    def stamp(self, index: int) -> None:
        """Notes the time."""
        self.stamps[index] = time.process_time_ns()

    def microseconds(self, first: int, last: int) -> float:
        """The mean time from one request to the next, from one stamped batch to another."""
        return (self.stamps[last] - self.stamps[first]) / (last - first) / 1e3


def fit(loader: StampedLoader, module: pl.LightningModule, callbacks: list[Any], **options: Any) -> None:
    """Trains one epoch on one core, printing nowhere."""
    with tempfile.TemporaryDirectory() as root, open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        pl.Trainer(
            accelerator="cpu",
            devices=1,
            max_epochs=1,
            default_root_dir=root,
            callbacks=callbacks,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            **options,
        ).fit(module, loader)


def preset_callbacks(preset: str, *overrides: str) -> list[Any]:
    """What a preset adds to a Trainer."""
    return list(build_callbacks(load_preset(preset, overrides)))


class Candidate(NamedTuple):
    """A way to train that is to be compared with others.

    Attributes:
        callbacks: Makes the Trainer's callbacks.
        options: Makes further arguments of the Trainer.
        module: Makes the module.
    """

    callbacks: Callable[[], list[Any]] = list
    options: Callable[[], dict[str, Any]] = dict
    module: Callable[[], pl.LightningModule] = TinyModule

    def fit(self, loader: StampedLoader) -> None:
        """Trains on the batches of the loader."""
        fit(loader, self.module(), self.callbacks(), **self.options())

    def microseconds(self) -> float:
        """Trains, and returns what a batch cost."""
        first, last = SETTLING_BATCHES, SETTLING_BATCHES + BATCHES
        loader = StampedLoader(last + 1, (first, last))
        self.fit(loader)
        return loader.microseconds(first, last)


def candidates() -> dict[str, Candidate]:
    """All that is compared, but for traceml-ai's callback, which would stay in the way of the others."""
    window = ("cuda_profiler.enable=true", "cuda_profiler.start_step=1000000")  # which never comes
    return {
        BARE: Candidate(),
        BARE_AGAIN: Candidate(),
        THREE_EMPTY: Candidate(lambda: [pl.Callback() for _ in range(3)]),
        ONE_HOOK: Candidate(lambda: [OneHook()]),
        PREPARED: Candidate(options=lambda: {"profiler": PreparedProfiler()}),
        SIMPLE: Candidate(options=lambda: {"profiler": SimpleProfiler()}),
        **{preset: Candidate(partial(preset_callbacks, preset)) for preset in PRESETS},
        SPANNED: Candidate(partial(preset_callbacks, "evaluation"), module=SpannedModule),
        AT_ONCE: Candidate(partial(preset_callbacks, "evaluation", *window)),
        SILENT: Candidate(partial(preset_callbacks, "evaluation", "stopwatch.print_every_n_iters=null")),
    }


def batch_costs(repeats: int) -> Costs:
    """Microseconds a batch, all that happens now and then or on other threads (prints, writes) included."""
    return interleaved({name: candidate.microseconds for name, candidate in candidates().items()}, repeats)


def traceml_costs(repeats: int) -> Costs | None:
    """The same for traceml-ai, if it is installed. By itself and last, since it patches torch for good."""
    if importlib.util.find_spec("traceml_ai") is None:
        return None
    integration = importlib.import_module("traceml_ai.integrations.lightning")
    compared = {
        BARE: Candidate(),
        THREE_EMPTY: candidates()[THREE_EMPTY],
        TRACEML: Candidate(lambda: [integration.TraceMLCallback()]),
    }
    with _traceml_server():
        integration.init()  # waits for the server
        return interleaved({name: candidate.microseconds for name, candidate in compared.items()}, repeats)


@contextlib.contextmanager
def _traceml_server() -> Iterator[None]:
    """The process that traceml-ai sends its figures to; without it the callback does nothing."""
    command = [sys.executable, "-m", "traceml_ai.launcher.cli", "serve"]
    nowhere = subprocess.DEVNULL
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.dict(os.environ, TRACEML_LOGS_DIR=folder),
        subprocess.Popen(command, cwd=folder, stdout=nowhere, stderr=nowhere) as server,
    ):
        try:
            yield
        finally:
            server.kill()  # it would wait for its workers to report
