"""The report of a multirun, as blocks: its jobs side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lightning_timing.contention import OTHERS_SHARE
from lightning_timing.names import listed
from lightning_timing.phases import ITERATION
from lightning_timing.reporting.blocks import Block, Column, Heading, Lines, Table
from lightning_timing.reporting.run_blocks import LONGEST_PATH, LONGEST_PROBLEM
from lightning_timing.reporting.units import UNKNOWN, plural, printable, rate, seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lightning_timing.multirun import Job, Multirun

_JOBS_NAMED: Final = 3
_DISTURBED: Final = f"other processes used {100 * OTHERS_SHARE:.0f} % of the machine or more: its speed is not reliable"

_JOB_COLUMNS: Final = (
    Column("job", is_number=False, importance=9),
    Column("speed", importance=8),
    Column("iteration mean", importance=7),
    Column("p95", importance=3),
    Column("verdict", is_number=False, importance=5),
    Column("status", is_number=False, importance=4),
    Column("overrides", is_number=False, importance=9),
)


def multirun_blocks(multirun: Multirun) -> list[Block]:
    """The jobs of a multirun side by side, best first."""
    lines = ["no job measured an iteration"]
    if multirun.stage is not None:
        lines = [_order_in_words(multirun)]
    if multirun.common_overrides:
        are_known = all(job.overrides is not None for job in multirun.jobs)
        lines.append(f"all jobs{'' if are_known else ' that tell'}: {_joined(multirun.common_overrides)}")
    lines += _job_problems(multirun.jobs)
    return [
        Heading(f"{printable(str(multirun.path), LONGEST_PATH)}: {plural(len(multirun.jobs), 'job')}"),
        Table(_JOB_COLUMNS, tuple(_job_row(job, multirun) for job in multirun.jobs)),
        Lines(tuple(lines)),
    ]


def _order_in_words(multirun: Multirun) -> str:
    world_sizes = sorted({job.report.world_size for job in multirun.jobs if job.report is not None})
    what = "samples" if multirun.by_samples else "iterations"
    whose = " of one rank" if multirun.by_samples and world_sizes[-1] > 1 else ""
    but = ""
    if whose and len(world_sizes) > 1:
        but = f", of which the jobs have different numbers: {', '.join(f'{size:,}' for size in world_sizes)}"
    return f"best first, by {what} a second{whose} in {multirun.stage}{but}"


def _job_problems(jobs: Iterable[Job]) -> Iterator[str]:
    """A line for each problem, with the jobs that have it."""
    names: dict[str, list[str]] = {}
    for job in jobs:
        for problem in (job.problem, _DISTURBED if job.was_disturbed else None):
            if problem:
                names.setdefault(problem, []).append(printable(job.name, LONGEST_PATH))
    for problem, named in names.items():
        noun = "job" if len(named) == 1 else "jobs"
        yield f"note: {noun} {listed(named[:_JOBS_NAMED], len(named))}: {printable(problem, LONGEST_PROBLEM)}"


def _job_row(job: Job, multirun: Multirun) -> tuple[str, ...]:
    figures = job.stage(multirun.stage)
    found = None if job.report is None else job.report.verdict
    verdict = UNKNOWN if found is None else found.name
    last = (verdict, job.status, _joined(job.overrides))
    if figures is None:
        return (printable(job.name, LONGEST_PATH), UNKNOWN, UNKNOWN, UNKNOWN, *last)
    iteration = figures.measurements[ITERATION]
    if multirun.by_samples:
        speed = rate(figures.samples or 0, figures.paced_s, "samples")
    else:
        speed = rate(figures.iterations, figures.paced_s, "iterations")
    return (printable(job.name, LONGEST_PATH), speed, seconds(iteration.mean_s), seconds(iteration.p95_s), *last)


def _joined(overrides: tuple[str, ...] | None) -> str:
    return " ".join(printable(override, LONGEST_PATH) for override in overrides or ()) or UNKNOWN
