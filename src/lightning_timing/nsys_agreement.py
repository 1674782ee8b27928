"""Whether an Nsight Systems profile and the Stopwatch, which timed the same run, agree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from lightning_timing.clocks import NS_IN_S
from lightning_timing.nsys_export import OUTSIDE, RangeSeries
from lightning_timing.phases import FIRST_DATA_WAIT, ITERATION, LOGGING, is_phase_range

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lightning_timing.nsys_export import ExportedProcess
    from lightning_timing.record_series import FloatArray, IntArray, StageSeries

TOLERANCE_S: Final = 50e-6
"""Medians agree if they differ by this at most, in seconds, or by `TOLERANCE_SHARE`, whichever is larger."""
TOLERANCE_SHARE: Final = 0.02
"""The tolerance as a share of the Stopwatch's median."""
MIN_SAMPLES: Final = 5
"""Medians of fewer samples are not compared."""


@dataclass(frozen=True)
class Agreement:
    """The medians of one measurement by a profile and by the Stopwatch, over the same samples.

    Attributes:
        nsys_s: The median by the profile, in seconds.
        stopwatch_s: The median by the Stopwatch, in seconds.
        samples: How many samples each median is of: iterations, or first waits for data.
    """

    nsys_s: float
    stopwatch_s: float
    samples: int

    @property
    def difference_s(self) -> float:
        """By how much the profile's median is longer, in seconds."""
        return self.nsys_s - self.stopwatch_s

    @property
    def agrees(self) -> bool:
        """Whether the difference is within one of the tolerances."""
        return abs(self.difference_s) <= max(TOLERANCE_S, TOLERANCE_SHARE * self.stopwatch_s)


def agreements(process: ExportedProcess, rows: Mapping[str, StageSeries]) -> dict[tuple[str, str], Agreement]:
    """Compares, by stage and name, what both have measured in the same iterations, and the first wait for data.

    A profile may hold only a part of the run, and the warm-up, which has no rows: the iterations that both have are
    found by their batch indices. A phase counts without the phases inside it, as the Stopwatch has it; several ranges
    in one iteration are added up, as rows have them. `logging` is not compared: the Stopwatch has it begin with the
    work before the logger's call, where no range is.

    Args:
        process: The ranges.
        rows: The Stopwatch's rows, by stage.

    Returns:
        The agreements; none for a stage of which the two do not have `MIN_SAMPLES` successive iterations in common.
    """
    found = {}
    for stage, measured in rows.items():
        ranges = process.stages.get(stage, {})
        shift = _alignment(ranges[ITERATION], measured) if ITERATION in ranges else None
        if shift is None:
            continue
        for name, series in ranges.items():
            if name == FIRST_DATA_WAIT and name in measured.outside:
                by_nsys, by_stopwatch = _first_waits(series, ranges[ITERATION]), measured.outside[name]
                both = np.full(len(by_nsys), len(by_nsys) == len(by_stopwatch))
            elif name in measured.ns and name != LOGGING:
                by_nsys, by_stopwatch = _sums(name, series, shift, len(measured)), measured.ns[name]
                both = ~np.isnan(by_nsys) & ~np.isnan(by_stopwatch)
            else:
                continue
            samples = int(both.sum())
            if samples >= MIN_SAMPLES:
                found[stage, name] = Agreement(_median_s(by_nsys[both]), _median_s(by_stopwatch[both]), samples)
    return found


def _alignment(iterations: RangeSeries, rows: StageSeries) -> int | None:
    """Finds the profile's iteration that the first row belongs to; below zero where it was before the profile.

    Epochs repeat the indices of batches. Of several places that fit, the right one is where the two clocks stay
    equally far apart from iteration to iteration.

    Returns:
        The iteration's number; None where `MIN_SAMPLES` iterations fit in no place.
    """
    profiled, recorded = np.asarray(iterations.batch_idx), rows.batch_idx
    starts_ns = np.asarray(iterations.start_ns)
    places = []
    for shift in _places_of_equal_ends(profiled, recorded):
        first, last = max(shift, 0), min(shift + len(recorded), len(profiled))
        of_rows = slice(first - shift, last - shift)
        if last - first >= MIN_SAMPLES and np.array_equal(profiled[first:last], recorded[of_rows]):
            apart_ns = rows.start_ns[of_rows] - starts_ns[first:last]
            places.append((_deviation(apart_ns), first - last, shift))
    return min(places)[-1] if places else None


def _places_of_equal_ends(profiled: IntArray, recorded: IntArray) -> list[int]:
    """Returns the places where the first common iteration is of the same batch in both: few of all places."""
    if not len(profiled) or not len(recorded):
        return []
    rows_first = np.flatnonzero(profiled == recorded[0])
    profile_first = -np.flatnonzero(recorded == profiled[0])
    return sorted({*rows_first.tolist(), *profile_first.tolist()})


def _deviation(values: IntArray) -> float:
    """The median distance from the median, which a few outliers do not move."""
    return float(np.median(np.abs(values - np.median(values))))


def _first_waits(series: RangeSeries, iterations: RangeSeries) -> FloatArray:
    """Adds up the parts of each wait for a first batch: the loop may wait in parts, before the same iteration."""
    is_wait = np.asarray(series.iterations) == OUTSIDE
    own_ns, starts_ns = np.asarray(series.own_ns)[is_wait], np.asarray(series.start_ns)[is_wait]
    _, wait_of_part = np.unique(np.searchsorted(iterations.start_ns, starts_ns), return_inverse=True)
    return np.bincount(wait_of_part, weights=own_ns).astype(np.float64)


def _median_s(ns: FloatArray) -> float:
    return float(np.median(ns)) / NS_IN_S


def _sums(name: str, series: RangeSeries, shift: int, num_rows: int) -> FloatArray:
    """Returns what the ranges of a name took in the iteration of each row, in nanoseconds; NaN where there is none."""
    durations = np.asarray(series.own_ns if is_phase_range(name) and name != ITERATION else series.host_ns)
    numbers = np.asarray(series.iterations)
    row_of_range = numbers - shift
    has_row = (numbers != OUTSIDE) & (row_of_range >= 0) & (row_of_range < num_rows)
    sums = np.full(num_rows, np.nan)
    sums[row_of_range[has_row]] = 0
    np.add.at(sums, row_of_range[has_row], durations[has_row])
    return sums
