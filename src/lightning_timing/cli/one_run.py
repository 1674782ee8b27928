"""Finds the record of a RUN for the commands that take one run, and no multirun."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lightning_timing.errors import BadInputError
from lightning_timing.multirun import find_jobs
from lightning_timing.names import listed
from lightning_timing.record_reader import has_record, timing_folder
from lightning_timing.reporting.units import plural

if TYPE_CHECKING:
    from pathlib import Path

_JOBS_NAMED: Final = 3


def one_run_folder(path: Path) -> Path:
    """The folder that holds the record of the run in `path`.

    Raises:
        BadInputError: There is no record there, or those of several jobs.
    """
    if not has_record(path) and (jobs := find_jobs(path)):
        raise BadInputError(
            f"{path}: a multirun folder, of {plural(len(jobs), 'job')}; give one of them: "
            f"{listed(jobs[:_JOBS_NAMED], len(jobs))}"
        )
    return timing_folder(path)
