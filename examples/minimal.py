"""The fewest lines that add the callbacks to a Trainer.

python examples/minimal.py
"""

from __future__ import annotations

import torch
from lightning.pytorch import LightningModule, Trainer
from sklearn.datasets import load_digits  # type: ignore[import-untyped]  # scikit-learn ships no types
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from lightning_timing import NVTXCallback, StopwatchCallback


class LinearClassifier(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def training_step(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        images, labels = batch
        return nn.functional.cross_entropy(self.layer(images), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def main() -> None:
    digits = load_digits()
    images, labels = torch.as_tensor(digits.data, dtype=torch.float32) / 16, torch.as_tensor(digits.target)
    loader = DataLoader(TensorDataset(images, labels), batch_size=32, shuffle=True)
    trainer = Trainer(max_epochs=3, callbacks=[StopwatchCallback(), NVTXCallback()])
    trainer.fit(LinearClassifier(), loader)


if __name__ == "__main__":
    main()
