"""The times of a stage as the mean over the ranks of a run.

The ranks of a run wait for one another in every iteration, so they are no independent evidence: of each iteration the
mean over the ranks is taken, for its parts over those ranks that have them.
"""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Final

import numpy as np

from lightning_timing.clocks import NS_IN_S
from lightning_timing.conditions import batch_size
from lightning_timing.figures_from_rows import parent_of
from lightning_timing.phases import ITERATION, is_phase
from lightning_timing.stage_times import Measured, StageTimes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from lightning_timing.figures import StageSummary
    from lightning_timing.record_series import FloatArray, IntArray, StageSeries
    from lightning_timing.stage_times import TimeKind

_CLOCKS: Final[tuple[TimeKind, ...]] = ("host", "device")
_REPEATED_BITS: Final = 20
_EPOCH_BITS: Final = 44
"""Leaves room for 16 million batches in an epoch, each of which comes a million times."""


class MeanOverRanks:
    """Adds up the times of a stage rank by rank: of the iterations that all of them have, by their batches."""

    def __init__(self) -> None:
        self._columns: dict[Measured, _Column] = {}
        self._outside: dict[Measured, _Column] = {}
        self._parents: dict[str, str | None] = {}
        self._batches: IntArray = np.empty(0, dtype=np.int64)  # of the first rank, in order of their numbers
        self._places: IntArray = self._batches  # of these, among its iterations
        self._ranks_at: FloatArray = np.empty(0)
        self._ranks = 0
        self._batch_sizes: set[int | None] = set()
        self._samples = 0.0
        self._seconds = 0.0
        self._between: list[tuple[Mapping[str, float], int]] = []

    def add(self, series: StageSeries) -> None:
        """Adds a rank, which has at least one iteration in the stage."""
        numbers = _batch_numbers(series)
        if not self._ranks:
            self._places = np.argsort(numbers)
            self._batches = numbers[self._places]
            self._ranks_at = np.zeros(len(series))
        found = np.minimum(np.searchsorted(self._batches, numbers), len(self._batches) - 1)
        is_known = self._batches[found] == numbers
        places = self._places[found[is_known]]
        self._ranks += 1
        self._ranks_at[places] += 1
        for clock in _CLOCKS:
            columns = series.ns if clock == "host" else series.device_ns
            for name in columns:
                column = self._columns.setdefault(Measured(name, clock), _Column(len(self._ranks_at)))
                column.add(columns[name][is_known], places)
        for name, times in series.outside.items():
            self._outside.setdefault(Measured(name, "host"), _Column(0)).add(times, np.arange(len(times)))
        for name in (*series.ns, *series.outside):
            self._parents.setdefault(name, parent_of(name, series))
        self._batch_sizes.add(_fixed_batch_size(series))
        self._samples += float(series.samples.sum())
        self._seconds += _paced_ns(series) / NS_IN_S
        self._between.append((_between_ns(series), len(series)))

    @property
    def on_all_ranks(self) -> tuple[int, int]:
        """How many iterations all ranks have, and how many the first one has."""
        return int(np.count_nonzero(self._ranks_at == self._ranks)), len(self._ranks_at)

    def build(self, summary: StageSummary | None, warmup_iterations: int) -> StageTimes:
        """Returns the means over the ranks.

        Args:
            summary: Tells which measurement encloses which, if there is one.
            warmup_iterations: Iterations that were left out before the first row.
        """
        chosen = self._ranks_at == self._ranks
        ns = {measured: column.mean(chosen) for measured, column in self._columns.items()}
        ns.update({m: column.mean() for m, column in self._outside.items() if m not in self._columns})
        iterations = self.on_all_ranks[0] * self._ranks
        measurements = summary.measurements if summary else {}
        return StageTimes(
            ns={measured: times for measured, times in ns.items() if len(times)},
            part_ns={
                name: column.total(chosen) / iterations
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
            batch_size=next(iter(self._batch_sizes)) if len(self._batch_sizes) == 1 else None,
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


def _batch_numbers(series: StageSeries) -> IntArray:
    """Returns for each iteration a number that the iterations of other ranks with the same batch have too.

    It is made of the epoch, the batch's index in it, and how often that batch has come before, as where validation is
    repeated in an epoch.
    """
    batches = (series.epoch << _EPOCH_BITS) + (series.batch_idx << _REPEATED_BITS)
    _, number, times = np.unique(batches, return_inverse=True, return_counts=True)
    repeated = np.empty(len(batches), dtype=np.int64)
    repeated[np.argsort(number, kind="stable")] = np.arange(len(batches)) - np.repeat(np.cumsum(times) - times, times)
    return batches + repeated


class _Column:
    """The times of one measurement, added up over the ranks: each time at its place, of the ranks that have it."""

    def __init__(self, length: int) -> None:
        self._sum: FloatArray = np.zeros(length)
        self._ranks: FloatArray = np.zeros(length)

    def add(self, times: FloatArray, places: IntArray) -> None:
        """Adds a rank.

        Args:
            times: Its times, NaN where the measurement did not occur.
            places: The place of each of them, no two the same.
        """
        missing = int(places.max(initial=-1)) + 1 - len(self._sum)
        if missing > 0:
            self._sum, self._ranks = np.pad(self._sum, (0, missing)), np.pad(self._ranks, (0, missing))
        present = ~np.isnan(times)
        self._sum[places[present]] += times[present]
        self._ranks[places[present]] += 1

    def mean(self, chosen: NDArray[np.bool_] | None = None) -> FloatArray:
        """Returns the mean over the ranks at each of the chosen places where any of them has a time."""
        occurred = self._ranks > 0 if chosen is None else (self._ranks > 0) & chosen
        mean: FloatArray = self._sum[occurred] / self._ranks[occurred]
        return mean

    def total(self, chosen: NDArray[np.bool_]) -> float:
        """Returns the sum over the chosen places and all ranks."""
        return float(self._sum[chosen].sum())
