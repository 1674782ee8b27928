"""Task `digits`: a small convolutional net says which digit an image shows."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset

from .base import OptimizerFactory, Task, TaskData
from .digit_images import DigitImages, split_digits

IMAGE_SIZE = 24


class DigitViews(Dataset[tuple[Tensor, Tensor]]):
    """The digits enlarged, each of them `views` times, and turned and shifted at random where `augment` says so."""

    def __init__(self, digits: DigitImages, *, views: int = 1, augment: bool = False) -> None:
        self.digits = digits
        self.views = views
        self.augment = augment

    def __len__(self) -> int:
        return self.views * len(self.digits.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        index %= len(self.digits.labels)
        view = random_view() if self.augment else torch.eye(2, 3)
        grid = functional.affine_grid(view[None], [1, 1, IMAGE_SIZE, IMAGE_SIZE], align_corners=False)
        image = functional.grid_sample(self.digits.images[index][None, None], grid, align_corners=False)
        return image[0], self.digits.labels[index]


def random_view() -> Tensor:
    """A turn by up to 20 degrees and a shift by up to a tenth of the image, as an affine matrix (2, 3)."""
    angle = math.radians(20) * (2 * torch.rand(()).item() - 1)
    dx, dy = (0.2 * (2 * torch.rand(2) - 1)).tolist()  # the image is 2 wide, from -1 to 1
    cos, sin = math.cos(angle), math.sin(angle)
    return torch.tensor([[cos, -sin, dx], [sin, cos, dy]])


class DigitsData(TaskData):
    """Augmented digits to train on, plain ones to validate on; an epoch sees each image `views_per_epoch` times."""

    def __init__(self, batch_size: int, num_workers: int, views_per_epoch: int) -> None:
        super().__init__(batch_size, num_workers)
        self.views_per_epoch = views_per_epoch

    def setup(self, stage: str) -> None:
        train, val = split_digits()
        self.train_set = DigitViews(train, views=self.views_per_epoch, augment=True)
        self.val_set = DigitViews(val)


class DigitsClassifier(Task):
    """Three convolutions and a linear layer."""

    def __init__(self, channels: int, optimizer: OptimizerFactory) -> None:
        super().__init__(optimizer)
        self.layers = nn.Sequential(
            nn.Conv2d(1, channels, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(channels, 2 * channels, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(2 * channels, 4 * channels, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Linear(4 * channels * 4, 10),
        )

    def loss(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        images, labels = batch
        return functional.cross_entropy(self.layers(images), labels)
