"""The detector: a convolutional backbone, and queries that look at what it saw."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lightning_timing import NVTXRangeWrapper

from ..base import OptimizerFactory, Task
from .boxes import iou_and_giou
from .data import CANVAS_SIZE, NUM_CLASSES, Targets
from .matching import Matches, Predictions, concatenated, detection_loss, match

STRIDE = 16  # of the backbone: four convolutions, each of which halves the image
GOOD_IOU = 0.5


class DigitDetector(Task):
    """Each of `queries` learned vectors of `width` attends to the canvas, and says what digit it sees, and where."""

    def __init__(self, queries: int, width: int, optimizer: OptimizerFactory) -> None:
        super().__init__(optimizer)
        self.backbone = nn.Sequential(
            halving_convolution(1, width // 4),
            halving_convolution(width // 4, width // 2),
            halving_convolution(width // 2, width),
            halving_convolution(width, width),
        )
        self.positions = nn.Parameter(0.1 * torch.randn((CANVAS_SIZE // STRIDE) ** 2, width))
        self.queries = nn.Parameter(torch.randn(queries, width))
        layer = nn.TransformerDecoderLayer(width, nhead=4, dim_feedforward=2 * width, dropout=0.0, batch_first=True)
        self.decoder = nn.TransformerDecoder(layer, num_layers=2)
        self.class_head = nn.Linear(width, NUM_CLASSES + 1)
        self.box_head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4), nn.Sigmoid())

    def forward(self, canvases: Tensor) -> Predictions:
        seen = self.backbone(canvases).flatten(2).transpose(1, 2) + self.positions
        hidden = self.decoder(self.queries.expand(len(canvases), -1, -1), seen)
        return Predictions(self.class_head(hidden), self.box_head(hidden))

    def loss(self, batch: tuple[Tensor, list[Targets]]) -> Tensor:
        canvases, targets = batch
        predictions = self(canvases)
        return detection_loss(predictions, targets, match(predictions, targets))

    def validation_step(self, batch: tuple[Tensor, list[Targets]], batch_idx: int) -> None:
        canvases, targets = batch
        predictions = self(canvases)
        matches = match(predictions, targets)
        # A range for Nsight Systems alone, not a measurement; the pop names the range that it means to close.
        NVTXRangeWrapper().range_push("postprocess")
        found = found_share(predictions, targets, matches)
        NVTXRangeWrapper().range_pop("postprocess")
        loss = detection_loss(predictions, targets, matches)
        self.log_dict({"val_loss": loss, "val_found": found}, prog_bar=True, batch_size=len(canvases))


def halving_convolution(channels_in: int, channels_out: int) -> nn.Sequential:
    """A convolution that halves height and width, normalised and rectified."""
    convolution = nn.Conv2d(channels_in, channels_out, kernel_size=3, stride=2, padding=1, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(channels_out), nn.ReLU())


def found_share(predictions: Predictions, targets: list[Targets], matches: Matches) -> Tensor:
    """The share of the digits whose query names the right class and a box that overlaps well."""
    labels, boxes = concatenated(targets)
    named = predictions.logits[matches.canvas, matches.query].argmax(-1) == labels[matches.digit]
    iou, _ = iou_and_giou(predictions.boxes[matches.canvas, matches.query], boxes[matches.digit])
    return (named & (iou > GOOD_IOU)).float().mean()
