"""A model whose every phase costs a known time, run by a real Trainer: what the ledger is held to.

Time is spent through `Books`, which notes where it went. Handed a `FakeClock` nothing waits, and the ledger can be
asserted to the nanosecond; handed `busy_wait` the same model measures what a real run says.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from lightning_timing.phases import (
    BACKWARD,
    BATCH_TRANSFER,
    DATA_WAIT,
    FORWARD,
    GRAD_CLIP,
    ITERATION,
    OPTIMIZER_STEP,
    TRAIN,
    VALIDATE,
    ZERO_GRAD,
    callback_phase,
)

MODULE_NAME = "KnownCostModule"
CALLBACK_NAME = "CostlyCallback"
MILLISECOND = 1_000_000


class FakeClock:
    """A clock that moves only when it is told to, in nanoseconds."""

    def __init__(self, now_ns: int = 5_000_000_000) -> None:
        self.now_ns = now_ns

    def __call__(self) -> int:
        return self.now_ns

    def advance(self, ns: int) -> int:
        """Lets `ns` pass, and says so."""
        self.now_ns += ns
        return ns


def busy_wait(ns: int) -> int:
    """Keeps the CPU busy for `ns` nanoseconds: sleeping would overshoot by the scheduler's granularity.

    Returns:
        How long it really took: on a machine with other work the last look at the clock may come late.
    """
    begin = now = time.perf_counter_ns()
    while now < begin + ns:
        now = time.perf_counter_ns()
    return now - begin


@dataclass(frozen=True, kw_only=True)
class Costs:
    """What each place costs each time it is reached, in nanoseconds. An iteration comes to about 200 ms.

    Attributes:
        fetch: One batch from the dataset.
        transfer: `transfer_batch_to_device`.
        step: `training_step`, in each evaluation of the closure.
        zero_grad: `optimizer_zero_grad`.
        backward: The backward of an autograd function.
        clip: `configure_gradient_clipping`.
        optimizer: The optimizer's own work, after each evaluation of its closure.
        callback: Each of the other callback's hooks.
        module_hook: The LightningModule's own `on_train_batch_end`.
        validation: `validation_step`.
        between: What runs between iterations: the hooks at the end of an epoch and round validation.
    """

    fetch: int = 20 * MILLISECOND
    transfer: int = 15 * MILLISECOND
    step: int = 40 * MILLISECOND
    zero_grad: int = 10 * MILLISECOND
    backward: int = 30 * MILLISECOND
    clip: int = 10 * MILLISECOND
    optimizer: int = 20 * MILLISECOND
    callback: int = 10 * MILLISECOND
    module_hook: int = 10 * MILLISECOND
    validation: int = 30 * MILLISECOND
    between: int = 25 * MILLISECOND

    def scaled(self, factor: float) -> Costs:
        """All of them times `factor`."""
        return Costs(**{each.name: round(getattr(self, each.name) * factor) for each in fields(self)})


@dataclass
class KnownRow:
    """What one iteration is known to have cost.

    Attributes:
        stage: `train` or `validate`.
        ns: Nanoseconds by phase; one with parts (`callbacks`, a step of several optimizers) by those alone.
    """

    stage: str
    ns: dict[str, int] = field(default_factory=dict)

    def expected(self) -> dict[str, int]:
        """What the record should hold for it: its phases, those with parts as their sum too, and `iteration`."""
        sums: dict[str, int] = {ITERATION: sum(self.ns.values())}
        for name, ns in self.ns.items():
            phase, _, part = name.partition("/")
            if part:
                sums[phase] = sums.get(phase, 0) + ns
        return self.ns | sums


class Books:
    """Spends time and writes down where.

    Attributes:
        costs: What each place costs.
        burn: Lets nanoseconds pass and returns how many did; booked nowhere.
        rows: The iterations, in order.
        first_waits: What the first batch of each epoch cost, in nanoseconds, by stage.
    """

    def __init__(self, costs: Costs, burn: Callable[[int], int]) -> None:
        self.costs = costs
        self.burn = burn
        self.rows: list[KnownRow] = []
        self.first_waits: dict[str, list[int]] = {}
        self._first_of_epoch = False

    def open_iteration(self, stage: str, *, first_of_epoch: bool) -> None:
        """The fetch of the next batch begins."""
        self.rows.append(KnownRow(stage))
        self._first_of_epoch = first_of_epoch
        if first_of_epoch:
            self.first_waits.setdefault(stage, []).append(0)

    def spend(self, phase: str, ns: int) -> None:
        """Lets time pass in a phase of the current iteration."""
        spent = self.burn(ns)
        row = self.rows[-1].ns
        row[phase] = row.get(phase, 0) + spent

    def spend_on_fetch(self, ns: int) -> None:
        """Lets time pass in the wait for a batch."""
        if self._first_of_epoch:
            self.first_waits[self.rows[-1].stage][-1] += self.burn(ns)
        else:
            self.spend(DATA_WAIT, ns)

    def totals(self, stage: str) -> dict[str, int]:
        """Nanoseconds of each expected measurement over the iterations of a stage."""
        sums: dict[str, int] = {}
        for row in self.rows:
            if row.stage == stage:
                for name, ns in row.expected().items():
                    sums[name] = sums.get(name, 0) + ns
        return sums


class CostlyDataset(Dataset[torch.Tensor]):
    """Batches that cost `costs.fetch` each."""

    def __init__(self, books: Books, batches: int) -> None:
        self.books = books
        self.batches = batches

    def __len__(self) -> int:
        return self.batches

    def __getitem__(self, index: int) -> torch.Tensor:
        in_worker = get_worker_info() is not None
        wait = self.books.burn if in_worker else self.books.spend_on_fetch  # the loop does not wait for a worker
        wait(self.books.costs.fetch)
        return torch.ones(4, 8)


class BookedLoader(DataLoader[torch.Tensor]):
    """Tells the books when the fetch of a batch begins."""

    def __init__(self, books: Books, stage: str, batches: int, workers: int = 0) -> None:
        super().__init__(CostlyDataset(books, batches), batch_size=None, num_workers=workers)
        self.books = books
        self.stage = stage

    def __iter__(self) -> Iterator[torch.Tensor]:  # type: ignore[override]  # torch names its own iterator class
        return self._booked(super().__iter__())

    def _booked(self, batches: Iterator[torch.Tensor]) -> Iterator[torch.Tensor]:
        for index in range(len(self)):
            self.books.open_iteration(self.stage, first_of_epoch=index == 0)
            yield next(batches)


class _SpendInBackward(torch.autograd.Function):
    """The identity, with a backward that costs `costs.backward`."""

    @staticmethod
    def forward(ctx: Any, loss: torch.Tensor, books: Books) -> torch.Tensor:
        ctx.books = books
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        ctx.books.spend(BACKWARD, ctx.books.costs.backward)
        return grads[0], None


class CostlySGD(torch.optim.SGD):
    """SGD that costs `costs.optimizer` beyond its closure; `phase` says which of several it is."""

    def __init__(self, parameters: Any, books: Books, phase: str = OPTIMIZER_STEP) -> None:
        super().__init__(parameters, lr=0.01)
        self.books = books
        self.phase = phase

    def step(self, closure: Any = None) -> Any:
        result = super().step(closure)
        self.books.spend(self.phase, self.books.costs.optimizer)
        return result


class CostlyLBFGS(torch.optim.LBFGS):
    """LBFGS that costs `costs.optimizer` after each evaluation of its closure."""

    def __init__(self, parameters: Any, books: Books) -> None:
        super().__init__(parameters, lr=0.01, max_iter=3)
        self.books = books

    def step(self, closure: Any) -> Any:  # type: ignore[override]  # as torch's own LBFGS does
        def evaluate() -> Any:
            loss = closure()
            self.books.spend(OPTIMIZER_STEP, self.books.costs.optimizer)
            return loss

        return super().step(evaluate)  # type: ignore[no-untyped-call]  # torch's


Optimization = Literal["automatic", "manual", "lbfgs"]


class _KnownCostSteps:
    """The hooks of the model; `known_cost_module` joins them with a package's LightningModule."""

    def __init__(self, books: Books, optimization: Optimization = "automatic") -> None:
        super().__init__()
        self.books = books
        self.optimization = optimization
        self.automatic_optimization = optimization != "manual"
        self.layers = torch.nn.ModuleList([torch.nn.Linear(8, 1), torch.nn.Linear(8, 1)])

    def configure_optimizers(self) -> Any:
        if self.optimization == "lbfgs":
            return CostlyLBFGS(self.layers.parameters(), self.books)
        if self.optimization == "manual":
            each = enumerate(self.layers)
            return [CostlySGD(layer.parameters(), self.books, f"{OPTIMIZER_STEP}/{index}") for index, layer in each]
        return CostlySGD(self.layers.parameters(), self.books)

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        self.books.spend(BATCH_TRANSFER, self.books.costs.transfer)
        return batch.to(device)

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor | None:
        self.books.spend(FORWARD, self.books.costs.step)
        if self.optimization == "manual":
            self._step_each_optimizer(batch)
            return None
        return self._loss(list(self.layers), batch)

    def _loss(self, layers: Sequence[torch.nn.Module], batch: torch.Tensor) -> torch.Tensor:
        loss = torch.stack([layer(batch).square().mean() for layer in layers]).sum()
        result: torch.Tensor = _SpendInBackward.apply(loss, self.books)  # type: ignore[no-untyped-call]  # torch's
        return result

    def _step_each_optimizer(self, batch: torch.Tensor) -> None:
        """What the user calls for is part of the step, but for what Lightning runs a phase for."""
        costs = self.books.costs
        for layer, optimizer in zip(self.layers, self.optimizers(), strict=True):  # type: ignore[attr-defined]  # LightningModule's
            self.books.spend(FORWARD, costs.zero_grad)
            optimizer.zero_grad()
            self.manual_backward(self._loss([layer], batch))  # type: ignore[attr-defined]  # LightningModule's
            self.books.spend(FORWARD, costs.clip)
            optimizer.step()

    def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: torch.optim.Optimizer) -> None:
        self.books.spend(ZERO_GRAD, self.books.costs.zero_grad)
        optimizer.zero_grad()

    def configure_gradient_clipping(self, optimizer: torch.optim.Optimizer, *_: Any, **__: Any) -> None:
        self.books.spend(GRAD_CLIP, self.books.costs.clip)
        self.clip_gradients(optimizer, 1.0, "norm")  # type: ignore[attr-defined]  # LightningModule's

    def on_train_batch_end(self, *_: Any) -> None:
        self.books.spend(callback_phase(MODULE_NAME), self.books.costs.module_hook)

    def validation_step(self, batch: torch.Tensor, batch_idx: int) -> None:
        self.books.spend(FORWARD, self.books.costs.validation)

    def on_validation_epoch_end(self) -> None:
        self.books.burn(self.books.costs.between)

    def on_train_epoch_end(self) -> None:
        self.books.burn(self.books.costs.between)


class _CostlyHooks:
    """Somebody else's callback; `costly_callback` joins it with a package's Callback."""

    def __init__(self, books: Books) -> None:
        super().__init__()
        self.books = books

    def _spend(self, *_: Any) -> None:
        self.books.spend(callback_phase(CALLBACK_NAME), self.books.costs.callback)

    on_train_batch_start = on_train_batch_end = on_before_backward = on_before_optimizer_step = _spend
    on_validation_batch_start = on_validation_batch_end = _spend

    def _burn_between(self, *_: Any) -> None:
        self.books.burn(self.books.costs.between)

    on_train_epoch_start = on_train_epoch_end = on_validation_start = on_validation_end = _burn_between


def known_cost_module(flavour: Any, books: Books, optimization: Optimization = "automatic") -> Any:
    """The model, as a LightningModule of `lightning.pytorch` or `pytorch_lightning`."""
    return type(MODULE_NAME, (_KnownCostSteps, flavour.LightningModule), {})(books, optimization)


def costly_callback(flavour: Any, books: Books) -> Any:
    """Somebody else's callback, of the same package as the Trainer."""
    return type(CALLBACK_NAME, (_CostlyHooks, flavour.Callback), {})(books)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One way to run the model.

    Attributes:
        name: What it is, for tables and test names.
        optimization: Who drives the optimizers.
        accumulate: Batches for each optimizer step.
        val_check_interval: Batches between validations; None for no validation.
        ours_last: Whether our callback follows the other one in the Trainer's list.
        workers: The train DataLoader's worker processes.
        precision: The Trainer's precision.
    """

    name: str
    optimization: Optimization = "automatic"
    accumulate: int = 1
    val_check_interval: int | None = None
    ours_last: bool = False
    workers: int = 0
    precision: str = "32-true"


SETTINGS = (
    Setting(name="automatic"),
    Setting(name="our callback last", ours_last=True),
    Setting(name="accumulation of 2", accumulate=2),
    Setting(name="manual, two optimizers", optimization="manual"),
    Setting(name="LBFGS", optimization="lbfgs"),
    Setting(name="validation in mid-epoch", val_check_interval=2),
    Setting(name="DataLoader workers", workers=2),
    Setting(name="mixed precision", precision="bf16-mixed"),
)


def quiet_trainer(flavour: Any, root: Path, **options: Any) -> Any:
    """A Trainer on the CPU that prints nothing and writes nothing, but for what `options` ask for."""
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    return flavour.Trainer(accelerator="cpu", devices=1, default_root_dir=root, **(quiet | options))


def fit_known_cost(
    flavour: Any,
    setting: Setting,
    books: Books,
    root: Path,
    *,
    callbacks: Sequence[Any] = (),
    batches: int = 5,
    epochs: int = 2,
    **options: Any,
) -> Any:
    """Fits the model in a setting and returns the Trainer.

    Args:
        flavour: `lightning.pytorch` or `pytorch_lightning`.
        setting: How to run it.
        books: Where the time is spent.
        root: The run's directory.
        callbacks: Ours.
        batches: Batches in an epoch.
        epochs: Epochs.
        **options: Further arguments of the Trainer.
    """
    other = costly_callback(flavour, books)
    trainer = quiet_trainer(
        flavour,
        root,
        callbacks=[other, *callbacks] if setting.ours_last else [*callbacks, other],
        max_epochs=epochs,
        accumulate_grad_batches=setting.accumulate,
        val_check_interval=setting.val_check_interval,
        limit_val_batches=None if setting.val_check_interval else 0,
        num_sanity_val_steps=0,
        precision=setting.precision,
        **options,
    )
    trainer.fit(
        known_cost_module(flavour, books, setting.optimization),
        BookedLoader(books, TRAIN, batches, setting.workers),
        BookedLoader(books, VALIDATE, 2),
    )
    return trainer
