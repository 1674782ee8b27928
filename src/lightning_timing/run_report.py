"""Gathers what a report shows of a run: the figures of its leading rank, how its ranks compare, and what is missing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from lightning_timing.contention import contention_in
from lightning_timing.errors import BadInputError
from lightning_timing.figures_from_rows import stage_figures
from lightning_timing.loader_workers import workers_by_stage
from lightning_timing.phases import STAGES
from lightning_timing.rank_comparison import RankComparison, RankFigures, compare_ranks, rank_figures
from lightning_timing.record_rank import RankRecord
from lightning_timing.record_reader import ProblemLog, chosen_run, iter_ranks, summary_covering, timing_folder
from lightning_timing.run_choice import choice_of
from lightning_timing.verdict import is_metered, judge
from lightning_timing.verdict_rules import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from lightning_timing.figures import CpuUsage, StageSummary
    from lightning_timing.record import RunSummary, TimingOverhead

Source = Literal["summary.json", "rows"]


@dataclass(frozen=True)
class RunReport:
    """What is known of a run.

    Attributes:
        path: The folder that holds its record; with `~1` behind it for the run before the newest, and so on.
        status: `completed`, `failed` or `interrupted`; None where the run was killed, or still goes on.
        source: Where the figures of the stages are from: `summary.json`, or `rows` where there is none for them.
        rank: The rank that the figures are of.
        world_size: Number of processes.
        environment: Versions and hardware.
        settings: What was chosen.
        stages: The figures of each stage.
        one_time: One-time measurements in seconds; None for one that was still running.
        cpu_usage: CPU usage of a measurement, or None.
        timing_overhead: What the timing itself cost, or None.
        verdict: What the figures say, or None.
        ranks: How the ranks compare, by stage; empty for one rank.
        problems: Whether other processes used the machine, and what was odd or missing, in words.
        lead: The rows of `rank`; None where there are none.
    """

    path: Path
    status: str | None
    source: Source
    rank: int
    world_size: int
    environment: Mapping[str, Any]
    settings: Mapping[str, Any]
    stages: Mapping[str, StageSummary]
    one_time: Mapping[str, float | None]
    cpu_usage: CpuUsage | None
    timing_overhead: TimingOverhead | None
    verdict: Verdict | None
    ranks: Mapping[str, RankComparison]
    problems: tuple[str, ...]
    lead: RankRecord | None

    def of_stage(self, stage: str) -> RunReport:
        """The part that is about one stage that it has, judged by that. CPU usage is of one stage, training if any.

        What the timing cost is known of the whole run alone.
        """
        stages = {stage: self.stages[stage]}
        ranks = {stage: self.ranks[stage]} if stage in self.ranks else {}
        cpu_usage = self.cpu_usage if is_metered(stage, self.stages) else None
        overhead = self.timing_overhead if set(self.stages) == {stage} else None
        return replace(
            self,
            stages=stages,
            ranks=ranks,
            cpu_usage=cpu_usage,
            timing_overhead=overhead,
            verdict=judge(stages, cpu_usage, workers_by_stage(self.settings), self.world_size, ranks),
        )


def read_report(path: Path) -> RunReport:
    """Reads a run. One rank's rows are held at a time, besides those of the lowest rank.

    Args:
        path: The run's folder, or the `timing` folder in it; `FOLDER~1`: the run before the newest, and so on.

    Raises:
        BadInputError: There is no record, or a file in it is not valid.
    """
    folder, run = timing_folder(path), chosen_run(path)
    problems = ProblemLog()
    lead: RankRecord | None = None
    by_stage: dict[str, list[RankFigures]] = {stage: [] for stage in STAGES}
    for record in iter_ranks(folder, problems, run):
        lead = lead or record
        for stage, series in record.stages.items():
            if len(series):
                by_stage[stage].append(rank_figures(record.header.rank, series))
    compared = {stage: compare_ranks(figures) for stage, figures in by_stage.items()}
    ranks = {stage: comparison for stage, comparison in compared.items() if comparison is not None}
    summary = summary_covering(folder, lead)
    folder = choice_of(path).within(folder)
    if summary is not None:
        return _from_summary(folder, summary, ranks, (*contention_in(summary), *problems.lines()), lead)
    if lead is None:
        raise BadInputError(f"{folder}: nothing was recorded")
    return _from_rows(folder, lead, ranks, problems.lines())


def _from_summary(
    folder: Path,
    summary: RunSummary,
    ranks: Mapping[str, RankComparison],
    problems: tuple[str, ...],
    lead: RankRecord | None,
) -> RunReport:
    return RunReport(
        path=folder,
        status=_status_of(summary, lead),
        source="summary.json",
        rank=summary.rank,
        world_size=summary.world_size,
        environment=summary.environment,
        settings=summary.settings,
        stages=summary.stages,
        one_time=summary.one_time,
        cpu_usage=summary.cpu_usage,
        timing_overhead=summary.timing_overhead,
        verdict=judge(summary.stages, summary.cpu_usage, workers_by_stage(summary.settings), summary.world_size, ranks),
        ranks=ranks,
        problems=problems,
        lead=lead,
    )


def _status_of(summary: RunSummary, lead: RankRecord | None) -> str | None:
    """How a run ended of which there is a summary: not as that says where a call of the Trainer began after it."""
    if lead is None or any(segment.segment == lead.header.segment for segment in summary.segments):
        return summary.status
    return None if lead.end is None else lead.end.status


def _from_rows(
    folder: Path, lead: RankRecord, ranks: Mapping[str, RankComparison], problems: tuple[str, ...]
) -> RunReport:
    header = lead.header
    stages: dict[str, StageSummary] = {
        stage: stage_figures(lead.stages[stage], lead.warmup_of(stage)) for stage in STAGES if stage in lead.stages
    }
    return RunReport(
        path=folder,
        status=None if lead.end is None else lead.end.status,
        source="rows",
        rank=header.rank,
        world_size=header.world_size,
        environment=header.environment,
        settings=lead.settings,
        stages=stages,
        one_time={},
        cpu_usage=None,
        timing_overhead=None,
        verdict=judge(stages, None, workers_by_stage(lead.settings), header.world_size, ranks),
        ranks=ranks,
        problems=problems,
        lead=lead,
    )
