"""The report of a run and of a multirun, as blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lightning_timing.names import listed
from lightning_timing.phases import ITERATION
from lightning_timing.record import NOT_ENDED
from lightning_timing.record_rank import NO_END
from lightning_timing.reporting.blocks import Block, Column, Heading, Lines, Table
from lightning_timing.reporting.summary import rank_of, summary_blocks
from lightning_timing.reporting.units import UNKNOWN, plural, printable, rate, seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lightning_timing.multirun import Job, Multirun
    from lightning_timing.rank_comparison import Culprit, RankComparison
    from lightning_timing.run_report import RunReport

LONGEST_PATH: Final = 400
_LONGEST_PROBLEM: Final = 1000
_JOBS_NAMED: Final = 3

REBUILT: Final = (
    "rebuilt from the rows, as no summary covers them: here an interval is all that a measurement took in one iteration"
)
"""Said of figures that are not from a summary."""

_RANK_COLUMNS: Final = (
    Column("phase", is_number=False, importance=9),
    Column("median rank", importance=8),
    Column("fastest", importance=3),
    Column("slowest", importance=7),
    Column("slowest rank", importance=6),
    Column("spread", importance=5),
)
_JOB_COLUMNS: Final = (
    Column("job", is_number=False, importance=9),
    Column("speed", importance=8),
    Column("iteration mean", importance=7),
    Column("p95", importance=3),
    Column("verdict", is_number=False, importance=5),
    Column("status", is_number=False, importance=4),
    Column("overrides", is_number=False, importance=9),
)


def run_blocks(report: RunReport) -> list[Block]:
    """The report of a run.

    Args:
        report: What is known of it.
    """
    blocks: list[Block] = [Heading(printable(str(report.path), LONGEST_PATH)), Lines(tuple(_run_lines(report)))]
    blocks += summary_blocks(
        report.stages,
        report.one_time,
        report.cpu_usage,
        report.verdict,
        report.timing_overhead,
        rank_of(report.rank, report.world_size),
    )
    for stage, comparison in report.ranks.items():
        blocks += _rank_blocks(stage, comparison)
    return blocks


def notes_on(report: RunReport) -> Iterator[str]:
    """What the reader must know of gaps in the record, without what the status says already."""
    if report.source == "rows":
        yield REBUILT
    said = f"rank {report.rank}: {NO_END}" if report.status is None else ""
    yield from (printable(problem, _LONGEST_PROBLEM) for problem in report.problems if problem != said)


def _run_lines(report: RunReport) -> Iterator[str]:
    status = report.status or NOT_ENDED
    yield f"status: {status}; figures of rank {report.rank} of {report.world_size:,}"
    yield from (f"note: {note}" for note in notes_on(report))


def _rank_blocks(stage: str, comparison: RankComparison) -> list[Block]:
    fewest, most = comparison.iterations
    iterations = plural(most, "iteration") if fewest == most else f"{fewest:,} to {plural(most, 'iteration')}"
    rows = (
        (
            name,
            seconds(phase.median_s),
            seconds(phase.fastest_s),
            seconds(phase.slowest_s),
            str(phase.slowest_rank),
            seconds(phase.slowest_s - phase.fastest_s),
        )
        for name, phase in comparison.phases.items()
    )
    return [
        Heading(f"{stage}: {plural(comparison.ranks, 'rank')}, {iterations} each; mean time an iteration"),
        Table(_RANK_COLUMNS, tuple(rows)),
        Lines((culprit_line(comparison.culprit),)),
    ]


def culprit_line(culprit: Culprit | None) -> str:
    """Which rank the others wait for, and how that shows."""
    if culprit is None:
        return "No rank holds the others up."
    where = ", ".join(f"{phase} {seconds(excess)}" for phase, excess in culprit.phases.items())
    return (
        f"Rank {culprit.rank} holds the others up: work of its own takes it {seconds(culprit.excess_s)} an iteration "
        f"longer ({where}) than the median of the others, who spend {seconds(culprit.wait_s)} more in "
        f"{culprit.waiting_phase}."
    )


def multirun_blocks(multirun: Multirun) -> list[Block]:
    """The jobs of a multirun side by side, best first."""
    lines = ["no job measured an iteration"]
    if multirun.stage is not None:
        lines = [f"best first, by {'samples' if multirun.by_samples else 'iterations'} a second in {multirun.stage}"]
    if multirun.common_overrides:
        lines.append(f"all jobs: {_joined(multirun.common_overrides)}")
    lines += _job_problems(multirun.jobs)
    return [
        Heading(f"{printable(str(multirun.path), LONGEST_PATH)}: {plural(len(multirun.jobs), 'job')}"),
        Table(_JOB_COLUMNS, tuple(_job_row(job, multirun) for job in multirun.jobs)),
        Lines(tuple(lines)),
    ]


def _job_problems(jobs: Iterable[Job]) -> Iterator[str]:
    """A line for each problem, with the jobs that have it."""
    names: dict[str, list[str]] = {}
    for job in jobs:
        if job.problem:
            names.setdefault(job.problem, []).append(printable(job.name))
    for problem, named in names.items():
        noun = "job" if len(named) == 1 else "jobs"
        yield f"note: {noun} {listed(named[:_JOBS_NAMED], len(named))}: {printable(problem, _LONGEST_PROBLEM)}"


def _job_row(job: Job, multirun: Multirun) -> tuple[str, ...]:
    figures = job.stage(multirun.stage)
    overrides = _joined(job.overrides)
    report = job.report
    if report is None:
        return (printable(job.name), UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, "no record", overrides)
    status = report.status or NOT_ENDED
    verdict = UNKNOWN if report.verdict is None else report.verdict.name
    if figures is None:
        return (printable(job.name), UNKNOWN, UNKNOWN, UNKNOWN, verdict, status, overrides)
    iteration = figures.measurements[ITERATION]
    if multirun.by_samples:
        speed = rate(figures.samples or 0, iteration.total_s, "samples")
    else:
        speed = rate(figures.iterations, iteration.total_s, "iterations")
    return (printable(job.name), speed, seconds(iteration.mean_s), seconds(iteration.p95_s), verdict, status, overrides)


def _joined(overrides: tuple[str, ...]) -> str:
    return " ".join(printable(override) for override in overrides) or UNKNOWN
