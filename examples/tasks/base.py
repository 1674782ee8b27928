"""What the tasks have in common, so that each one's own file holds only what is its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from lightning.pytorch import LightningDataModule, LightningModule
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer
from torch.utils.data import DataLoader, Dataset, default_collate

OptimizerFactory = Callable[[Iterable[Parameter]], Optimizer]
"""An optimizer that lacks only its parameters: what Hydra makes of a node with `_partial_: true`."""


class Task(LightningModule, ABC):
    """Trains on `loss`, and logs it as `train_loss` and `val_loss`.

    Args:
        optimizer: Makes the optimizer.
    """

    def __init__(self, optimizer: OptimizerFactory) -> None:
        super().__init__()
        self._make_optimizer = optimizer

    @abstractmethod
    def loss(self, batch: Any) -> Tensor:
        """The mean loss over a batch."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        loss = self.loss(batch)
        self.log("train_loss", loss, prog_bar=True, batch_size=len(batch[0]))
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.loss(batch), prog_bar=True, batch_size=len(batch[0]))

    def configure_optimizers(self) -> Optimizer:
        return self._make_optimizer(self.parameters())


class TaskData(LightningDataModule, ABC):
    """Loads the datasets that `setup` puts into `train_set` and `val_set`.

    Args:
        batch_size: Samples in a batch.
        num_workers: Processes that load the training data; 0 loads in the training process.
    """

    train_set: Dataset[Any]
    val_set: Dataset[Any]

    def __init__(self, batch_size: int, num_workers: int) -> None:
        super().__init__()
        self.batch_size = batch_size
        self.num_workers = num_workers

    @abstractmethod
    def setup(self, stage: str) -> None:
        """Makes the two datasets."""

    def collate(self, samples: list[Any]) -> Any:
        """Makes a batch of samples."""
        return default_collate(samples)

    def train_dataloader(self) -> DataLoader[Any]:
        return self._loader(self.train_set, shuffle=True)

    def val_dataloader(self) -> DataLoader[Any]:
        return self._loader(self.val_set, shuffle=False)

    def _loader(self, dataset: Dataset[Any], *, shuffle: bool) -> DataLoader[Any]:
        return DataLoader(
            dataset,
            batch_size=self.batch_size,
            shuffle=shuffle,
            num_workers=self.num_workers,
            collate_fn=self.collate,
            persistent_workers=self.num_workers > 0,
        )
