"""The times of a stage as the mean over the ranks of a run.

The ranks of a run wait for one another in every iteration, so they are no independent evidence: of each iteration the
mean over the ranks is taken, for its parts over those ranks that have them.
"""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from lightning_timing.clocks import NS_IN_S
from lightning_timing.conditions import batch_size
from lightning_timing.figures_from_rows import parent_of
from lightning_timing.phases import ITERATION, is_phase
from lightning_timing.stage_times import Measured, StageTimes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lightning_timing.figures import StageSummary
    from lightning_timing.record_series import FloatArray, IntArray, StageSeries

_EVERYWHERE: Final = slice(None)


class MeanOverRanks:
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
        """Adds a rank, which has at least one iteration in the stage."""
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
    later, earlier = first_rank.places_of_first(batches), batches.places_of_first(first_rank)
    # The nearest: where validation is repeated in an epoch, its batches are there again.
    return min((*later[:1], *(-place for place in earlier[:1])), key=abs, default=0)


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
