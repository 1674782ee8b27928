"""Canvases with several digits, and where each of them lies."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.data import Dataset

from ..base import TaskData
from ..digit_images import DigitImages, split_digits

CANVAS_SIZE = 96
CELLS = 3  # the canvas is CELLS x CELLS cells, and a cell holds one digit at most: they never overlap
CELL_SIZE = CANVAS_SIZE // CELLS
MIN_DIGIT_SIZE = 16
MAX_DIGITS = 5
NUM_CLASSES = 10


class Targets(NamedTuple):
    """The digits on one canvas: labels (N,), and boxes (N, 4) of centre x, centre y, width, height from 0 to 1."""

    labels: Tensor
    boxes: Tensor


class Scenes(Dataset[tuple[Tensor, Targets]]):
    """Canvases (1, 96, 96) with 1 to 5 digits of random size and place; index i is the same scene every time."""

    def __init__(self, digits: DigitImages, length: int) -> None:
        self.digits = digits
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[Tensor, Targets]:
        random = torch.Generator().manual_seed(index)
        count = int(torch.randint(1, MAX_DIGITS + 1, (), generator=random))
        cells = torch.randperm(CELLS * CELLS, generator=random)[:count].tolist()
        chosen = torch.randint(len(self.digits.labels), (count,), generator=random)
        canvas = torch.zeros(1, CANVAS_SIZE, CANVAS_SIZE)
        boxes = [
            draw_in_cell(canvas, self.digits.images[digit], cell, random)
            for cell, digit in zip(cells, chosen, strict=True)
        ]
        return canvas, Targets(self.digits.labels[chosen], torch.tensor(boxes) / CANVAS_SIZE)


def draw_in_cell(
    canvas: Tensor, image: Tensor, cell: int, random: torch.Generator
) -> tuple[float, float, float, float]:
    """Draws an image somewhere in a cell, and returns its box in pixels: centre x, centre y, width, height."""
    size = int(torch.randint(MIN_DIGIT_SIZE, CELL_SIZE + 1, (), generator=random))
    down, right = torch.randint(CELL_SIZE - size + 1, (2,), generator=random).tolist()
    row, column = divmod(cell, CELLS)
    top, left = row * CELL_SIZE + down, column * CELL_SIZE + right
    enlarged = functional.interpolate(image[None, None], size=(size, size), mode="bilinear", align_corners=False)
    canvas[:, top : top + size, left : left + size] = enlarged[0]
    return left + size / 2, top + size / 2, size, size


class ScenesData(TaskData):
    """Scenes of the digits to train on, and a tenth as many of the digits to validate on."""

    def __init__(self, batch_size: int, num_workers: int, scenes_per_epoch: int) -> None:
        super().__init__(batch_size, num_workers)
        self.scenes_per_epoch = scenes_per_epoch

    def setup(self, stage: str) -> None:
        train, val = split_digits()
        self.train_set = Scenes(train, self.scenes_per_epoch)
        self.val_set = Scenes(val, self.scenes_per_epoch // 10)

    def collate(self, samples: list[tuple[Tensor, Targets]]) -> tuple[Tensor, list[Targets]]:
        """Stacks the canvases; their targets stay a list, for each canvas has its own number of digits."""
        canvases, targets = zip(*samples, strict=True)
        return torch.stack(canvases), list(targets)
