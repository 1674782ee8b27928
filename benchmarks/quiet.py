"""Keeps Lightning from saying what a benchmark knows."""

from __future__ import annotations

import logging
import warnings


def silence_lightning() -> None:
    """No hints, no warnings about tiny runs. All of logging, since each of Lightning's packages brings its own loggers."""
    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore")
