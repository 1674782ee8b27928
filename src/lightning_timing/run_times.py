"""Reads the times of a run, one series for each measurement, which is what two runs are compared by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lightning_timing.conditions import run_conditions
from lightning_timing.contention import contention_in
from lightning_timing.errors import BadInputError
from lightning_timing.mean_over_ranks import MeanOverRanks
from lightning_timing.record_rank import run_id
from lightning_timing.record_reader import ProblemLog, chosen_run, iter_ranks, summary_covering, timing_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from lightning_timing.record_rank import RankRecord
    from lightning_timing.stage_times import StageTimes


@dataclass(frozen=True)
class RunTimes:
    """The times of a run and their conditions, for a comparison.

    Attributes:
        path: Where it was read from, as given.
        folder: The folder that holds its record, the same for all paths that lead there.
        run: The id of the run in that folder.
        world_size: Number of processes in it.
        conditions: What its speed may depend on, by name.
        stages: Its times, by stage.
        unmeasured: By stage the names that its summary has without a figure, such as those seen in warm-up only.
        contention: Whether other processes used the machine, in words, if they did; None where that is not known.
        problems: What was odd or missing in its record, in words.
    """

    path: Path
    folder: Path
    run: str
    world_size: int
    conditions: Mapping[str, str]
    stages: Mapping[str, StageTimes]
    unmeasured: Mapping[str, tuple[str, ...]]
    contention: tuple[str, ...] | None
    problems: tuple[str, ...]


def read_times(path: Path) -> RunTimes:
    """Reads a run, one rank at a time.

    Args:
        path: The run's folder, or the `timing` folder in it; `FOLDER~1`: the run before the newest, and so on.

    Raises:
        BadInputError: There is no record with rows, or a file in it is not valid.
    """
    folder = timing_folder(path)
    problems = ProblemLog()
    lead: RankRecord | None = None
    ranks = 0
    stages: dict[str, MeanOverRanks] = {}
    for record in iter_ranks(folder, problems, chosen_run(path)):
        lead = lead or record
        ranks += 1
        for stage, series in record.stages.items():
            if len(series):
                stages.setdefault(stage, MeanOverRanks()).add(series)
    if lead is None:
        raise BadInputError(f"{folder}: no rank<N>.jsonl with anything in it, so there are no times to compare")
    summary = summary_covering(folder, lead)
    summaries = summary.stages if summary else {}
    warmup = {stage: lead.warmup_of(stage) for stage in stages}
    warmup.update({stage: figures.warmup_iterations for stage, figures in summaries.items()})
    return RunTimes(
        path=path,
        folder=folder.resolve(),
        run=run_id(lead.header.segment),
        world_size=lead.header.world_size,
        conditions=run_conditions(lead, ranks),
        stages={stage: mean.build(summaries.get(stage), warmup[stage]) for stage, mean in stages.items()},
        unmeasured={
            stage: tuple(name for name, figures in found.measurements.items() if not figures.count)
            for stage, found in summaries.items()
        },
        contention=None if summary is None else contention_in(summary),
        problems=(*problems.lines(), *_too_few_in_common(stages)),
    )


def _too_few_in_common(stages: Mapping[str, MeanOverRanks]) -> Iterator[str]:
    """Says in which stages most of the first rank's iterations are left out, since another rank has not got them."""
    for stage, mean in stages.items():
        common, of_first = mean.on_all_ranks
        if 2 * common < of_first:
            yield f"{stage}: of the {of_first:,} iterations of the first rank {common:,} are on all ranks, and compared"
