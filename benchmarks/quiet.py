"""Keeps Lightning from saying what a benchmark knows."""

from __future__ import annotations

import logging
import warnings


def silence_lightning() -> None:
    """No hints, no warnings about tiny runs; by all loggers, since each of Lightning's packages brings its own."""
    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore")
