"""Which query answers for which digit: the assignment with the least cost, and the losses that follow from it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from scipy.optimize import linear_sum_assignment  # type: ignore[import-untyped]  # SciPy ships no types
from torch import Tensor
from torch.nn import functional

from lightning_timing import span

from .boxes import iou_and_giou
from .data import NUM_CLASSES, Targets

NO_DIGIT = NUM_CLASSES
NO_DIGIT_WEIGHT = 0.2  # most queries find nothing, and would drown the rest
L1_WEIGHT = 5.0
GIOU_WEIGHT = 2.0


class Predictions(NamedTuple):
    """What each query sees: class scores (batch, queries, classes + 1) and boxes (batch, queries, 4)."""

    logits: Tensor
    boxes: Tensor


class Matches(NamedTuple):
    """Pairs of a query and a digit, (pairs,) each: the canvas and the query; the digit's place among the batch's."""

    canvas: Tensor
    query: Tensor
    digit: Tensor


@torch.no_grad()
def match(predictions: Predictions, targets: list[Targets]) -> Matches:
    """Assigns to every digit a query of its own canvas."""
    with span("matcher_cost"):
        costs = matching_costs(predictions, targets).cpu()
    with span("matcher_assignment"):
        canvas, query, digit = [], [], []
        first = 0
        for index, target in enumerate(targets):
            last = first + len(target.labels)
            queries, digits = linear_sum_assignment(costs[index, :, first:last].numpy())
            canvas += [index] * len(queries)
            query += queries.tolist()
            digit += (first + digits).tolist()
            first = last
        device = predictions.logits.device
        return Matches(*(torch.tensor(column, device=device) for column in (canvas, query, digit)))


def matching_costs(predictions: Predictions, targets: list[Targets]) -> Tensor:
    """What it costs to have each query answer for each digit of the batch: (batch, queries, digits)."""
    labels, boxes = concatenated(targets)
    class_cost = -predictions.logits.softmax(-1)[..., labels]
    l1_cost = torch.cdist(predictions.boxes, boxes, p=1)
    _, giou = iou_and_giou(predictions.boxes[:, :, None], boxes)
    return class_cost + L1_WEIGHT * l1_cost - GIOU_WEIGHT * giou


def detection_loss(predictions: Predictions, targets: list[Targets], matches: Matches) -> Tensor:
    """The loss of the classes of all queries and of the boxes of those that were matched."""
    labels, boxes = concatenated(targets)
    with span("loss_classes"):
        wanted = torch.full(predictions.logits.shape[:2], NO_DIGIT, device=labels.device)
        wanted[matches.canvas, matches.query] = labels[matches.digit]
        weight = torch.ones(NUM_CLASSES + 1, device=labels.device)
        weight[NO_DIGIT] = NO_DIGIT_WEIGHT
        class_loss = functional.cross_entropy(predictions.logits.flatten(0, 1), wanted.flatten(), weight)
    with span("loss_boxes"):
        found, true = predictions.boxes[matches.canvas, matches.query], boxes[matches.digit]
        _, giou = iou_and_giou(found, true)
        box_loss = L1_WEIGHT * (found - true).abs().sum(-1).mean() + GIOU_WEIGHT * (1 - giou).mean()
    return class_loss + box_loss


def concatenated(targets: list[Targets]) -> Targets:
    """The digits of all canvases, one after another."""
    return Targets(torch.cat([t.labels for t in targets]), torch.cat([t.boxes for t in targets]))
