"""Keeps Lightning from saying what a benchmark knows."""

from __future__ import annotations

import logging
import warnings


def silence_lightning() -> None:
    """No hints, no warnings about tiny runs."""
    for name in ("lightning", "lightning.pytorch"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
