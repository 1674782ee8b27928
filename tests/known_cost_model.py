"""A model whose every phase costs a known time, in each way that Lightning trains: what the ledger is held to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from lightning_timing.phases import (
    BACKWARD,
    BATCH_TRANSFER,
    FORWARD,
    GRAD_CLIP,
    OPTIMIZER_STEP,
    TRAIN,
    VALIDATE,
    ZERO_GRAD,
    callback_phase,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.known_cost import Books

MODULE_NAME = "KnownCostModule"
CALLBACK_NAME = "CostlyCallback"


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
