"""Reads a Hydra multirun folder: every job's figures with the overrides that it was started with, best first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from os.path import join, realpath
from typing import TYPE_CHECKING, Final

from lightning_timing.contention import contention_in
from lightning_timing.errors import BadInputError
from lightning_timing.phases import ITERATION, STAGES
from lightning_timing.record import NOT_ENDED, TIMING_FOLDER
from lightning_timing.record_lines import open_regular
from lightning_timing.record_reader import has_record
from lightning_timing.run_report import RunReport, read_report

if TYPE_CHECKING:
    from pathlib import Path

    from lightning_timing.figures import StageSummary

_HYDRA_FOLDER: Final = ".hydra"
_RANK_FILES: Final = "rank[0-9]*.jsonl"
_MAX_OVERRIDES_BYTES: Final = 2**20
_NO_RECORD: Final = "no record: timing was off, or it ended before its Trainer ran"
_DEPTH: Final = 3
"""How many folders deep a job may lie, as `hydra.sweep.subdir` may have slashes in it."""


@dataclass(frozen=True)
class Job:
    """One job of a multirun.

    Attributes:
        name: Its folder within the multirun's.
        overrides: What it was started with, without what all jobs have in common; None where that is not known.
        report: Its figures, without the rows; None where there are none.
        was_disturbed: Whether other processes are known to have used so much of the machine that its speed is not
            reliable.
        problem: Why there are no figures, or why its overrides are not known; None where neither is so.
    """

    name: str
    overrides: tuple[str, ...] | None
    report: RunReport | None
    was_disturbed: bool
    problem: str | None

    @property
    def status(self) -> str:
        """How its run ended; where there are no figures, whether it has a record at all."""
        if self.report is not None:
            return self.report.status or NOT_ENDED
        return "no record" if self.problem == _NO_RECORD else "bad record"

    def of_stage(self, name: str) -> Job:
        """The job judged by one stage, if it has that."""
        if self.report is None or self.stage(name) is None:
            return self
        return replace(self, report=self.report.of_stage(name))

    def stage(self, name: str | None) -> StageSummary | None:
        """Returns the figures of a stage, if the job measured any iteration in it."""
        found = self.report.stages.get(name) if self.report is not None and name is not None else None
        iteration = found.measurements.get(ITERATION) if found is not None else None
        return found if iteration is not None and iteration.total_s else None


@dataclass(frozen=True)
class Multirun:
    """The jobs of a multirun.

    Attributes:
        path: Its folder.
        stage: The stage by which they are compared; None where no job has one.
        by_samples: Whether they are ordered by samples a second, of one rank; else by iterations a second.
        common_overrides: What all jobs were started with of which that is known, if it is of two or more.
        jobs: The jobs, best first, then those without figures, and then those that failed.
    """

    path: Path
    stage: str | None
    by_samples: bool
    common_overrides: tuple[str, ...]
    jobs: tuple[Job, ...]


def find_jobs(path: Path) -> list[Path]:
    """The folders of jobs in a multirun's folder, in the order of their names; none where it is not one.

    Several names of one folder are one job, such as a link to the latest run beside the runs.
    """
    jobs: set[Path] = set()
    for depth in range(1, _DEPTH + 1):
        folders = "*/" * depth
        jobs.update(found.parent for found in path.glob(folders + _HYDRA_FOLDER))
        jobs.update(found.parent for found in path.glob(folders + TIMING_FOLDER) if has_record(found))
        # Folders of other names, such as one for each fold of a cross-validation.
        records = {found.parent for found in path.glob(folders + _RANK_FILES)}
        jobs.update(found for found in records if found.name != TIMING_FOLDER and not has_record(found.parent))
    jobs -= {job for job in jobs if not has_record(job) and any(job in other.parents for other in jobs)}
    here = realpath(path)

    def order(job: Path) -> list[tuple[int, str]]:
        return [(len(part), part) for part in job.relative_to(path).parts]

    def is_reached_by_a_link(job: Path) -> bool:
        return realpath(job) != join(here, job.relative_to(path))

    named: dict[str, Path] = {}
    for job in sorted(jobs, key=lambda job: (is_reached_by_a_link(job), order(job))):
        named.setdefault(realpath(job), job)
    return sorted(named.values(), key=order)


def read_multirun(path: Path, jobs: list[Path], stage: str | None = None) -> Multirun:
    """Reads the jobs of a multirun; one that has no record, or a bad one, is listed with the reason.

    Args:
        path: The multirun's folder.
        jobs: The folders of its jobs, at least one.
        stage: The stage to compare them by; None for the first, in the order of `STAGES`, that any of them has.

    Raises:
        BadInputError: No job has a record, or none has figures of the stage.
    """
    read = [_read_job(job, str(job.relative_to(path))) for job in jobs]
    known = [job.overrides for job in read if job.overrides is not None]
    shared = [override for override in known[0] if all(override in of_job for of_job in known)] if known else []
    common = tuple(shared) if len(known) > 1 else ()
    read = [
        job if job.overrides is None else replace(job, overrides=tuple(o for o in job.overrides if o not in common))
        for job in read
    ]
    if all(job.report is None for job in read):
        raise BadInputError(
            f"{path}: none of its {len(jobs):,} jobs has figures: job {read[0].name}: {read[0].problem}"
        )
    measured = [name for name in STAGES if any(job.stage(name) for job in read)]
    if stage is not None and stage not in measured:
        raise BadInputError(f"{path}: no job has figures of stage {stage!r}; there is {', '.join(measured) or 'none'}")
    if stage is not None:
        read = [job.of_stage(stage) for job in read]
    stage = stage or next(iter(measured), None)
    figures = [found for job in read if (found := job.stage(stage)) is not None]
    by_samples = bool(figures) and all(found.samples is not None for found in figures)
    return Multirun(
        path,
        stage,
        by_samples,
        common,
        tuple(sorted(read, key=lambda job: (job.status == "failed", -_speed(job, stage, by_samples)))),
    )


def _read_job(folder: Path, name: str) -> Job:
    """Reads a job, its overrides as they are."""
    overrides: tuple[str, ...] | None = None
    problem: str | None = None
    try:
        overrides = _overrides(folder)
    except BadInputError as error:
        problem = str(error)
    if not has_record(folder):
        return Job(name, overrides, None, was_disturbed=False, problem=_NO_RECORD)
    try:
        report = replace(read_report(folder), lead=None)
    except BadInputError as error:
        return Job(name, overrides, None, was_disturbed=False, problem=str(error))
    return Job(name, overrides, report, was_disturbed=bool(contention_in(report)), problem=problem)


def _speed(job: Job, stage: str | None, by_samples: bool) -> float:
    """Samples or iterations a second; -1 for a job without figures."""
    figures = job.stage(stage)
    if figures is None:
        return -1.0
    done = figures.samples if by_samples else figures.iterations
    return (done or 0) / (figures.paced_s or 1.0)


def _overrides(job: Path) -> tuple[str, ...] | None:
    """Returns the overrides of a job, or of the one that a folder of a record lies in; None where there are none."""
    import yaml  # comes with hydra-core

    paths = (folder / _HYDRA_FOLDER / "overrides.yaml" for folder in (job, job.parent))
    path = next((path for path in paths if path.exists()), None)
    if path is None:
        return None
    with open_regular(path) as file:
        data = file.read(_MAX_OVERRIDES_BYTES + 1)
    if len(data) > _MAX_OVERRIDES_BYTES:
        raise BadInputError(f"{path}: longer than {_MAX_OVERRIDES_BYTES >> 20} MiB")
    try:
        found = yaml.safe_load(data)
    except (yaml.YAMLError, RecursionError, ValueError) as error:  # ValueError: a date or number that is none
        raise BadInputError(f"{path}: not YAML: {error}") from error
    if not isinstance(found, list):
        raise BadInputError(f"{path}: not a list of overrides")
    return tuple(str(override) for override in found if isinstance(override, str))
