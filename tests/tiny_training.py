"""The smallest real training run, into which a test puts the hooks that it is about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from known_cost import FakeClock
from known_cost_model import quiet_trainer
from torch.utils.data import DataLoader, TensorDataset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

MODULE_NAME = "TinyModule"


class _TinySteps:
    """One linear layer under SGD."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch: Any, *_: Any) -> torch.Tensor:
        return self.layer(_tensor_of(batch)).sum()

    def validation_step(self, batch: Any, *_: Any) -> None:
        self.layer(_tensor_of(batch))

    test_step = predict_step = validation_step

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.layer.parameters(), lr=0.01)


def _tensor_of(batch: Any) -> torch.Tensor:
    return batch if isinstance(batch, torch.Tensor) else batch[0]


def tiny_module(flavour: Any, **hooks: Any) -> Any:
    """A LightningModule of the package; `hooks` replace its methods, or add some."""
    return type(MODULE_NAME, (_TinySteps, flavour.LightningModule), hooks)()


def callback(flavour: Any, name: str, **hooks: Any) -> Any:
    """Somebody else's callback, of a class of the given name."""
    return type(name, (flavour.Callback,), hooks)()


def spends(clock: FakeClock, ns: int) -> Callable[..., None]:
    """A hook that does nothing but cost `ns` nanoseconds."""

    def hook(*_: Any, **__: Any) -> None:
        clock.advance(ns)

    return hook


def step_costing(clock: FakeClock, ns: int) -> Callable[..., torch.Tensor]:
    """A training step that costs `ns` nanoseconds."""

    def step(self: Any, batch: Any, *_: Any) -> torch.Tensor:
        clock.advance(ns)
        loss: torch.Tensor = self.layer(_tensor_of(batch)).sum()
        return loss

    return step


def optimizer_costing(clock: FakeClock, ns: int) -> Callable[[Any], torch.optim.Optimizer]:
    """A module's `configure_optimizers`: each step costs `ns` nanoseconds beyond its closure."""

    class CostlyStep(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            result = super().step(closure)
            clock.advance(ns)
            return result

    return lambda module: CostlyStep(module.layer.parameters(), lr=0.1)


def tiny_loader(batches: int, batch_size: int = 1) -> DataLoader[Any]:
    """A loader that costs nothing on a scripted clock."""
    return DataLoader(TensorDataset(torch.ones(batches * batch_size, 2)), batch_size=batch_size)


class CostlyLoader:
    """A loader of known length whose batches cost time, of a kind that Lightning iterates over as it is.

    Args:
        clock: The clock that moves.
        batches: The batches.
        fetch_ns: What each costs, in nanoseconds; a sequence gives each its own.
    """

    def __init__(self, clock: FakeClock, batches: Sequence[Any], fetch_ns: int | Sequence[int]) -> None:
        self.clock = clock
        self.batches = batches
        self.fetch_ns = [fetch_ns] * len(batches) if isinstance(fetch_ns, int) else fetch_ns

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Any]:
        for batch, ns in zip(self.batches, self.fetch_ns, strict=True):
            self.clock.advance(ns)
            yield batch


def fit_tiny(flavour: Any, root: Path, module: Any, loader: Any, val_loader: Any = None, **options: Any) -> Any:
    """Fits for one epoch without sanity checking, unless the Trainer's `options` say otherwise; returns the Trainer."""
    trainer = quiet_trainer(flavour, root, **({"max_epochs": 1, "num_sanity_val_steps": 0} | options))
    trainer.fit(module, loader, val_loader)
    return trainer
