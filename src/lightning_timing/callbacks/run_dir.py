"""Where a run's files go and what the run is called, the same on all of its ranks."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from lightning_timing.errors import TimingError

_MAX_OVERRIDES: Final = 100
_LONGEST_OVERRIDE: Final = 200


class HydraJob(NamedTuple):
    """The Hydra job that a process runs.

    Attributes:
        directory: Its folder.
        overrides: The values that it was started with, by the names that they override.
    """

    directory: str
    overrides: dict[str, str]


class RunPlace(NamedTuple):
    """What the ranks of a run have in common.

    Attributes:
        directory: The run dir, an absolute path.
        run_id: Tells this run from others that write to the same folder.
    """

    directory: Path
    run_id: str


def agree_on_place(trainer: Any, job_dir: str | None) -> RunPlace:
    """Returns Hydra's job folder, else the Trainer's log dir, else its `default_root_dir`: rank 0's, on every rank.

    Rank 0's answer is handed to the others through the strategy, as Lightning does for its own folders: a process that
    Hydra started anew would find another one by itself. So every rank calls this, at `setup`, where Lightning itself
    lets the ranks wait for each other.

    Args:
        trainer: The Trainer.
        job_dir: Hydra's job folder as this rank knows it.

    Raises:
        TimingError: The run dir is not on a file system, such as `s3://bucket/run`.
    """
    log_dir = trainer.log_dir  # waits for rank 0's answer, so each rank has to ask, even one that knows a job folder
    run_dir = str(job_dir or log_dir or trainer.default_root_dir)
    own = run_dir if "://" in run_dir else str(Path(run_dir).absolute())
    directory, run_id = trainer.strategy.broadcast((own, secrets.token_hex(4)))
    if "://" in directory:
        raise TimingError(f"the record can only be written to a file system, not to {directory}")
    return RunPlace(Path(directory), run_id)


def hydra_job() -> HydraJob | None:
    """The Hydra job that this process runs; None outside of one."""
    hydra_config = sys.modules.get("hydra.core.hydra_config")
    if hydra_config is None or not hydra_config.HydraConfig.initialized():
        return None
    config = hydra_config.HydraConfig.get()
    directory = config.runtime.get("output_dir")
    if directory is None:  # set from `compose`, as notebooks and tests do, where no job was started
        return None
    return HydraJob(directory, _by_name(config.overrides.task))


def _by_name(overrides: Iterable[str]) -> dict[str, str]:
    parted = (override.partition("=") for override in islice(overrides, _MAX_OVERRIDES))
    return {name[:_LONGEST_OVERRIDE]: value[:_LONGEST_OVERRIDE] for name, _, value in parted}
