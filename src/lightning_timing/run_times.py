"""The times of a run as one series for each measurement, which is what two runs are compared by.

The ranks of a run wait for one another in every iteration, so they are no independent evidence: of each iteration the
mean over the ranks is taken, for its parts over those ranks that have them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import numpy as np

from lightning_timing.clocks import NS_IN_S
from lightning_timing.conditions import batch_size, run_conditions
from lightning_timing.contention import contention_in
from lightning_timing.errors import BadInputError
from lightning_timing.figures_from_rows import parent_of
from lightning_timing.phases import ITERATION, is_phase
from lightning_timing.record_rank import run_id
from lightning_timing.record_reader import ProblemLog, chosen_run, iter_ranks, summary_covering, timing_folder

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from lightning_timing.figures import StageSummary
    from lightning_timing.record_rank import RankRecord
    from lightning_timing.record_series import FloatArray, IntArray, StageSeries

TimeKind = Literal["host", "device"]

_EVERYWHERE: Final = slice(None)


class Measured(NamedTuple):
    """What was measured, and by which clock: `host` time or `device` time."""

    name: str
    clock: TimeKind


@dataclass(frozen=True)
class StageTimes:
    """The times of one stage of a run.

    Attributes:
        ns: The times of each measurement in nanoseconds, in order, without the iterations in which it did not occur.
            What occurred between iterations has a time for each occurrence, unless it occurred inside them as well.
        part_ns: The part of an iteration that each measurement on the host has, in nanoseconds: the mean over the
            iterations and the ranks, where it did not occur counting as 0. So the phases add up to the iteration.
        parents: The enclosing measurement of each, or None.
        samples_per_s: Samples a second of a rank, by the time of all its iterations on the slower of host and device;
            None where batch sizes are not known.
        between_part_ns: An iteration's part of each thing that the callbacks measured between iterations, in
            nanoseconds: the mean over the ranks. The iterations of warm-up have theirs too, since that is measured from
            the start.
        iterations: How many there were, those of warm-up included: the mean over the ranks.
        batch_size: Samples in a batch of the first rank; None where it is not known, or not the same in most of them.
    """

    ns: Mapping[Measured, FloatArray]
    part_ns: Mapping[str, float]
    parents: Mapping[str, str | None]
    samples_per_s: float | None
    between_part_ns: Mapping[str, float]
    iterations: float
    batch_size: int | None

    @property
    def between_ns(self) -> float:
        """An iteration's part of all that lies between iterations, in nanoseconds."""
        return sum(self.between_part_ns.values())

    def of_samples(self, samples: int) -> StageTimes:
        """Returns the times that so many samples have, in place of those of a batch, whose size is known.

        What counts iterations then counts as many times so many samples.
        """
        batches = samples / (self.batch_size or samples)
        return replace(
            self,
            ns={measured: batches * times for measured, times in self.ns.items()},
            part_ns={name: batches * ns for name, ns in self.part_ns.items()},
            between_part_ns={name: batches * ns for name, ns in self.between_part_ns.items()},
            iterations=self.iterations / batches,
        )


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
    stages: dict[str, _MeanOverRanks] = {}
    for record in iter_ranks(folder, problems, chosen_run(path)):
        lead = lead or record
        ranks += 1
        for stage, series in record.stages.items():
            if len(series):
                stages.setdefault(stage, _MeanOverRanks()).add(series)
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
        problems=problems.lines(),
    )


class _MeanOverRanks:
    """Adds up the times of a stage rank by rank."""

    def __init__(self) -> None:
        self._columns: dict[Measured, _Column] = {}
        self._outside: dict[Measured, _Column] = {}
        self._parents: dict[str, str | None] = {}
        self._batches_of_first: _Batches | None = None
        self._ranks = 0
        self._of_all_ranks = slice(0, 0)
        self._batch_size: int | None = None
        self._samples = 0.0
        self._seconds = 0.0
        self._between: list[tuple[Mapping[str, float], int]] = []

    def add(self, series: StageSeries) -> None:
        batches = _Batches(series.epoch, series.batch_idx)
        if self._batches_of_first is None:
            self._batches_of_first, self._of_all_ranks = batches, slice(0, len(series))
            self._batch_size = _fixed_batch_size(series)
        place = _place_among(self._batches_of_first, batches)
        begin, end = self._of_all_ranks.start, self._of_all_ranks.stop
        self._of_all_ranks = slice(max(begin, place), min(end, place + len(series)))
        self._ranks += 1
        for name in series.ns:
            self._columns.setdefault(Measured(name, "host"), _Column()).add(series.ns[name], place)
        for name in series.device_ns:
            self._columns.setdefault(Measured(name, "device"), _Column()).add(series.device_ns[name], place)
        for name, times in series.outside.items():
            self._outside.setdefault(Measured(name, "host"), _Column()).add(times)
        for name in (*series.ns, *series.outside):
            self._parents.setdefault(name, parent_of(name, series))
        self._samples += float(series.samples.sum())
        self._seconds += _paced_ns(series) / NS_IN_S
        self._between.append((_between_ns(series), len(series)))

    def build(self, summary: StageSummary | None, warmup_iterations: int) -> StageTimes:
        """Returns the means over the ranks.

        Args:
            summary: Tells which measurement encloses which, if there is one.
            warmup_iterations: Iterations that were left out before the first row.
        """
        all_ranks = self._of_all_ranks
        ns = {measured: column.mean(all_ranks) for measured, column in self._columns.items()}
        ns.update({m: column.mean() for m, column in self._outside.items() if m not in self._columns})
        iterations = (all_ranks.stop - all_ranks.start) * self._ranks
        measurements = summary.measurements if summary else {}
        return StageTimes(
            ns={measured: times for measured, times in ns.items() if len(times)},
            part_ns={
                name: column.total(all_ranks) / iterations
                for (name, clock), column in self._columns.items()
                if clock == "host" and iterations > 0
            },
            parents={**self._parents, **{name: figures.parent for name, figures in measurements.items()}},
            samples_per_s=self._samples / self._seconds if self._samples > 0 and self._seconds else None,
            between_part_ns={
                name: fmean(ns.get(name, 0.0) / (rows + warmup_iterations) for ns, rows in self._between)
                for name in dict.fromkeys(name for ns, _ in self._between for name in ns)
            },
            iterations=fmean(rows + warmup_iterations for _, rows in self._between),
            batch_size=self._batch_size,
        )


def _fixed_batch_size(series: StageSeries) -> int | None:
    """Returns the size that most of the batches have, if most have the same."""
    usual = batch_size(series.known_samples)
    return usual if usual and 2 * np.count_nonzero(series.samples == usual) > len(series) else None


def _paced_ns(series: StageSeries) -> float:
    """The time of the iterations by the slower of host and device: see `StageSummary.paced_s`."""
    device_ns = series.device_ns.get(ITERATION, np.empty(0))
    timed_ns = device_ns[~np.isnan(device_ns)]
    return max(float(series.ns[ITERATION].sum()), float(timed_ns.mean()) * len(series) if len(timed_ns) else 0.0)


def _between_ns(series: StageSeries) -> dict[str, float]:
    """The times of what the callbacks measured between iterations. Parts, as of `callbacks`, are in them already."""
    return {
        name: float(times.sum())
        for name, times in series.outside.items()
        if is_phase(name) and parent_of(name, series) is None
    }


class _Batches(NamedTuple):
    """Which batches the iterations of a rank had: their epochs and their indices in them."""

    epoch: IntArray
    batch_idx: IntArray

    def places_of_first(self, other: _Batches) -> list[int]:
        """Returns the places here that have the first batch of another rank."""
        same = (self.epoch == other.epoch[0]) & (self.batch_idx == other.batch_idx[0])
        found: list[int] = np.flatnonzero(same).tolist()
        return found


def _place_among(first_rank: _Batches, batches: _Batches) -> int:
    """Returns where in the iterations of the first rank those of another begin, below 0 if they begin before them.

    Ranks seldom differ in their first one: where one of them compiled longer, which counts as warm-up.
    """
    if found := first_rank.places_of_first(batches):
        return found[0]
    return -found[0] if (found := batches.places_of_first(first_rank)) else 0


class _Column:
    """The times of one measurement, added up over the ranks: each time at its place, of the ranks that have it."""

    def __init__(self) -> None:
        self._sum: FloatArray = np.empty(0)
        self._ranks: FloatArray = np.empty(0)

    def add(self, times: FloatArray, place: int = 0) -> None:
        """Adds a rank.

        Args:
            times: Its times, NaN where the measurement did not occur.
            place: Where the first of them belongs; those that would belong below 0 are left out.
        """
        times = times[max(-place, 0) :]
        present = ~np.isnan(times)
        self._sum = _added(self._sum, np.where(present, times, 0.0), max(place, 0))
        self._ranks = _added(self._ranks, present.astype(np.float64), max(place, 0))

    def mean(self, places: slice = _EVERYWHERE) -> FloatArray:
        """Returns the mean over the ranks at each of these places where any of them has a time."""
        occurred = self._ranks[places] > 0
        mean: FloatArray = self._sum[places][occurred] / self._ranks[places][occurred]
        return mean

    def total(self, places: slice) -> float:
        """Returns the sum over these places and all ranks."""
        return float(self._sum[places].sum())


def _added(column: FloatArray, other: FloatArray, place: int) -> FloatArray:
    """Returns the sum of a column and another that begins at a place in it; what either lacks counts as 0."""
    total = np.zeros(max(len(column), place + len(other)))
    total[: len(column)] = column
    total[place : place + len(other)] += other
    return total
