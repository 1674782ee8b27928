"""The images of handwritten digits that scikit-learn ships: 1,797 of 8 x 8 pixels."""

from __future__ import annotations

from typing import NamedTuple

import torch
from sklearn.datasets import load_digits  # type: ignore[import-untyped]  # scikit-learn ships no types
from torch import Tensor


class DigitImages(NamedTuple):
    """Images, (N, 8, 8) from 0 to 1, and the digits that they show, (N,)."""

    images: Tensor
    labels: Tensor


def split_digits() -> tuple[DigitImages, DigitImages]:
    """The same four fifths to train on and fifth to validate on, every time."""
    digits = load_digits()
    images = torch.as_tensor(digits.images, dtype=torch.float32) / 16  # the brightest pixel is 16
    labels = torch.as_tensor(digits.target, dtype=torch.long)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    fifth = len(order) // 5
    val, train = order[:fifth], order[fifth:]
    return DigitImages(images[train], labels[train]), DigitImages(images[val], labels[val])
