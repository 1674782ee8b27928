"""The report of a run, as blocks: how it ended, its figures, and how its ranks compare."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lightning_timing.record import NOT_ENDED
from lightning_timing.record_rank import NO_END
from lightning_timing.reporting.blocks import Block, Column, Heading, Lines, Table
from lightning_timing.reporting.summary_blocks import rank_of, summary_blocks
from lightning_timing.reporting.units import plural, printable, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lightning_timing.rank_comparison import Culprit, RankComparison
    from lightning_timing.run_report import RunReport

LONGEST_PATH: Final = 400
LONGEST_PROBLEM: Final = 1000

REBUILT: Final = (
    "rebuilt from the rows, as no summary covers them: here an interval is all that a measurement took in one "
    "iteration, and of the warm-up only its setting is known"
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
    yield from (printable(problem, LONGEST_PROBLEM) for problem in report.problems if problem != said)


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
        f"{culprit.in_words.capitalize()} holds the others up: work of its own takes it "
        f"{seconds(culprit.excess_s)} an iteration longer ({where}) than the median of the others, who spend "
        f"{seconds(culprit.wait_s)} more in "
        f"{culprit.waiting_phase}."
    )
