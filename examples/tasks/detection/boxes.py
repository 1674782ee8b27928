"""How well boxes lie on each other. A box is centre x, centre y, width, height."""

from __future__ import annotations

import torch
from torch import Tensor


def corners(boxes: Tensor) -> tuple[Tensor, Tensor]:
    """The top left and the bottom right corners, (..., 2) each."""
    centre, size = boxes.chunk(2, dim=-1)
    return centre - size / 2, centre + size / 2


def iou_and_giou(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Intersection over union, from 0 to 1, and its generalised form, from -1 to 1, of boxes that broadcast.

    The generalised one still tells boxes apart that do not touch: it falls as the box that encloses both grows.
    """
    (a_low, a_high), (b_low, b_high) = corners(a), corners(b)
    intersection = (torch.minimum(a_high, b_high) - torch.maximum(a_low, b_low)).clamp(min=0).prod(-1)
    union = a[..., 2:].prod(-1) + b[..., 2:].prod(-1) - intersection
    enclosing = (torch.maximum(a_high, b_high) - torch.minimum(a_low, b_low)).prod(-1)
    iou = intersection / union
    return iou, iou - (enclosing - union) / enclosing
