"""Where a run's files go, the same for all of its ranks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any


def run_dir(trainer: Any) -> Path:
    """Hydra's job folder, else the Trainer's log dir, else its `default_root_dir`: rank 0's, on every rank.

    Rank 0's answer is handed to the others through the strategy, as Lightning does for its own folders: a subprocess
    that Hydra started anew would find another one by itself. So every rank calls this, at `setup`, where Lightning
    itself lets the ranks wait for each other.
    """
    own = _hydra_job_dir() or trainer.log_dir or trainer.default_root_dir
    return Path(trainer.strategy.broadcast(str(own))).absolute()


def _hydra_job_dir() -> str | None:
    hydra_config = sys.modules.get("hydra.core.hydra_config")
    if hydra_config is None or not hydra_config.HydraConfig.initialized():
        return None
    output_dir: str = hydra_config.HydraConfig.get().runtime.output_dir
    return output_dir
