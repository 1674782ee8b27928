"""Finds the run that is meant by RUN, for the commands that take one run, and no multirun."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lightning_timing.errors import BadInputError
from lightning_timing.multirun import find_jobs
from lightning_timing.names import listed
from lightning_timing.record_reader import has_record, timing_folder
from lightning_timing.run_choice import choice_of

if TYPE_CHECKING:
    from pathlib import Path

_RUNS_NAMED: Final = 3


def one_run(path: Path) -> Path:
    """Returns `path` if it is a run, or the only run below it: loggers put each run in a folder of its own.

    Raises:
        BadInputError: There is no record there, or those of several runs.
    """
    if has_record(path):
        return path
    choice = choice_of(path)
    below = _runs_below(choice.path)
    if len(below) == 1:
        return choice.within(below[0])
    if below:
        raise BadInputError(f"{path}: several runs below it: {_named(below)}; give one of them")
    try:
        timing_folder(path)
    except BadInputError as error:
        if near := _runs_near(path):
            raise BadInputError(f"{error}; there is {_named(near)}") from None
        raise
    return path


def _runs_below(path: Path) -> list[Path]:
    return [job for job in find_jobs(path) if has_record(job)]


def _runs_near(path: Path) -> list[Path]:
    """The runs beside a folder that is not there. The working directory and the root hold too much to search them."""
    if path.exists() or len(path.parts) < (3 if path.is_absolute() else 2):
        return []
    return _runs_below(path.parent)


def _named(runs: list[Path]) -> str:
    return listed(runs[:_RUNS_NAMED], len(runs))
