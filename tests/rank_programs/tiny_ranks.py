"""What the programs train: a tiny model, of which each rank takes the times that it is told to."""

from __future__ import annotations

import atexit
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightning.pytorch as pl
import torch
import torch.distributed
from lightning.fabric.plugins.io import TorchCheckpointIO

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class Costs:
    """What a rank takes in each iteration, in milliseconds, by itself."""

    loading: float = 0
    transfer: float = 0
    forward: float = 0
    backward: float = 0
    callbacks: float = 0
    writing: float = 0
    """A checkpoint, which Lightning has rank 0 write."""


class SlowBackward(torch.autograd.Function):
    """Takes its time before the gradients that the ranks exchange are computed."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, milliseconds: float) -> torch.Tensor:
        ctx.milliseconds = milliseconds
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        spend(ctx.milliseconds)
        return gradients[0], None


class Loader:
    """Batches of one sample, each of which takes time to load; Lightning iterates over it as it is."""

    def __init__(self, batches: int, milliseconds: float = 0) -> None:
        self.batches = batches
        self.milliseconds = milliseconds

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Iterator[torch.Tensor]:
        for _ in range(self.batches):
            spend(self.milliseconds)
            yield torch.ones(1, 2)


class Module(pl.LightningModule):
    """One linear layer under SGD."""

    def __init__(self, costs: Costs | None = None) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
        self.costs = costs or Costs()

    def setup(self, stage: str) -> None:
        # gloo's own thread aborts the process if it lets go of a collective's work while Python goes down
        # (pytorch/pytorch#179291), and Lightning ends the process group at exit for NCCL only.
        atexit.unregister(end_process_group)
        atexit.register(end_process_group)

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        spend(self.costs.transfer)
        return batch

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        spend(self.costs.forward)
        return SlowBackward.apply(self.layer(batch), self.costs.backward).sum()

    def test_step(self, batch: Any, batch_idx: int) -> None:
        self.layer(batch)

    predict_step = test_step

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


class SlowCallback(pl.Callback):
    """Somebody's callback, which takes time after each batch."""

    def on_train_batch_end(self, trainer: Any, module: Any, *_: Any) -> None:
        spend(module.costs.callbacks)


class SlowWriting(TorchCheckpointIO):
    """Storage that takes time."""

    def __init__(self, milliseconds: float) -> None:
        self.milliseconds = milliseconds

    def save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        spend(self.milliseconds)
        super().save_checkpoint(*args, **kwargs)


def spend(milliseconds: float) -> None:
    """Lets time pass without keeping a core busy, as there may be fewer cores than ranks."""
    if milliseconds:
        time.sleep(milliseconds / 1000)


def end_process_group() -> None:
    """Waits for the threads of the process group, if there is one."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def local_rank() -> int:
    """The rank of this process in its node, as the launchers tell it."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def trainer_of(root: Path, strategy: Any = "ddp", devices: int = 2, **options: Any) -> pl.Trainer:
    """A Trainer of several ranks on the CPU that writes and prints nothing of its own."""
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    common = {"accelerator": "cpu", "max_epochs": 1, "num_sanity_val_steps": 0}
    return pl.Trainer(default_root_dir=root, strategy=strategy, devices=devices, **{**quiet, **common, **options})
