"""Trains on the second of two queued devices, while the first is current: `training.py FOLDER DEVICE_TIME [reading]`.

Each step enqueues a kernel forward, one on a stream of its own, and one backward, and takes next to no host time. With
`reading` a callback reads each loss, as a progress bar does that shows it.
"""

from __future__ import annotations

import sys
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.accelerators import Accelerator
from lightning.pytorch.strategies import SingleDeviceStrategy
from queued_device.loading import kernel, set_capturing

from lightning_timing import StopwatchCallback, span

DEVICE = torch.device("queued", 1)
BATCHES = 20
CAPTURED = 12
"""The batch in which a stream is captured."""

FORWARD_MS, SIDE_MS, BACKWARD_MS = 20.0, 35.0, 50.0


class QueuedAccelerator(Accelerator):
    """As Lightning wants it to be described."""

    def setup_device(self, device: torch.device) -> None:
        assert torch.accelerator.current_device_index() != device.index

    def get_device_stats(self, device: Any) -> dict[str, Any]:
        return {}

    def teardown(self) -> None:
        """Nothing."""

    @staticmethod
    def parse_devices(devices: Any) -> Any:
        return devices

    @staticmethod
    def get_parallel_devices(devices: Any) -> list[torch.device]:
        return [DEVICE]

    @staticmethod
    def auto_device_count() -> int:
        return 1

    @staticmethod
    def is_available() -> bool:
        return True

    @staticmethod
    def name() -> str:
        return "queued"


class Enqueue(torch.autograd.Function):
    """A kernel forward and one backward: that one from the thread that autograd has for the device."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
        kernel(DEVICE.index, FORWARD_MS)
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        kernel(DEVICE.index, BACKWARD_MS)
        return gradients[0]


class ReadsLoss(pl.Callback):
    """Waits for the device, as whoever reads a value does."""

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, *_: Any) -> None:
        outputs["loss"].item()


class Enqueuing(pl.LightningModule):
    """One linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
        self.side = torch.Stream(DEVICE)

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        assert batch.device == self.layer.weight.device == DEVICE
        if batch_idx == CAPTURED:
            set_capturing(True)
            with span("captured"):
                pass
            set_capturing(False)
        main = torch.accelerator.current_stream(DEVICE)
        torch.accelerator.set_stream(self.side)
        with span("side"):
            kernel(DEVICE.index, SIDE_MS)
        torch.accelerator.set_stream(main)
        torch.accelerator.set_device_index(0)
        return Enqueue.apply(self.layer(batch)).sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


if __name__ == "__main__":
    folder, device_time, *reading = sys.argv[1:]
    trainer = pl.Trainer(
        max_epochs=1,
        strategy=SingleDeviceStrategy(DEVICE, QueuedAccelerator()),
        callbacks=[StopwatchCallback(num_warmup_iters=2, device_time=device_time), *(ReadsLoss() for _ in reading)],
        default_root_dir=folder,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Enqueuing(), torch.utils.data.DataLoader(torch.ones(BATCHES, 2)))
