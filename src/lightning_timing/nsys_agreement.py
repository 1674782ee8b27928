"""Whether an Nsight Systems profile and the Stopwatch, which timed the same run, agree."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final

from lightning_timing.nsys_export import OUTSIDE, RangeSeries, is_phase
from lightning_timing.phases import FIRST_DATA_WAIT, ITERATION, LOGGING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lightning_timing.nsys_export import ExportedProcess
    from lightning_timing.record import StageSummary

TOLERANCE_S: Final = 50e-6
"""A difference of the medians that is no disagreement, in seconds."""
TOLERANCE_SHARE: Final = 0.02
"""Nor is one of this share of the Stopwatch's median."""
MIN_SAMPLES: Final = 5
"""Fewer make no median that could agree or disagree."""


@dataclass(frozen=True)
class Agreement:
    """One measurement, by both.

    Attributes:
        nsys_s: The median by the profile, in seconds, over the iterations that the Stopwatch measured too.
        stopwatch_s: The median by the Stopwatch, in seconds.
    """

    nsys_s: float
    stopwatch_s: float

    @property
    def difference_s(self) -> float:
        """By how much the profile's is longer, in seconds."""
        return self.nsys_s - self.stopwatch_s

    @property
    def agrees(self) -> bool:
        """Whether the difference is within one of the tolerances."""
        return abs(self.difference_s) <= max(TOLERANCE_S, TOLERANCE_SHARE * self.stopwatch_s)


def agreements(process: ExportedProcess, stages: Mapping[str, StageSummary]) -> dict[tuple[str, str], Agreement]:
    """Compares, by stage and name, what both have measured in iterations, and the first wait for data.

    A profile of the whole run holds the warm-up too; it is left out then. A phase counts without the phases inside it,
    as the Stopwatch has it. Where that has one sample an iteration, several ranges in one iteration are added up.
    `logging` is not compared: the Stopwatch has it begin with the work before the logger's call, where no range is.

    Args:
        process: The ranges.
        stages: The Stopwatch's figures.
    """
    found = {}
    for stage, figures in stages.items():
        ranges = process.stages.get(stage, {})
        first = max(process.iteration_count(stage) - figures.iterations, 0)
        for name, series in ranges.items():
            measured = figures.measurements.get(name)
            if measured is None or measured.p50_s is None or measured.count < MIN_SAMPLES or name == LOGGING:
                continue
            samples = _samples(name, series, first, by_iteration=measured.count == figures.iterations)
            if len(samples) >= MIN_SAMPLES:
                found[stage, name] = Agreement(median(samples) / 1e9, measured.p50_s)
    return found


def _samples(name: str, series: RangeSeries, first: int, by_iteration: bool) -> list[int]:
    """The durations to compare, in nanoseconds, of the iterations from `first` on."""
    durations: array[int] = series.own_ns if is_phase(name) and name != ITERATION else series.host_ns
    if name == FIRST_DATA_WAIT:
        return [ns for n, ns in zip(series.iterations, durations, strict=True) if n == OUTSIDE]
    counted = [(n, ns) for n, ns in zip(series.iterations, durations, strict=True) if n >= first and n != OUTSIDE]
    return list(_sums(counted).values()) if by_iteration else [ns for _, ns in counted]


def _sums(counted: Iterable[tuple[int, int]]) -> dict[int, int]:
    sums: dict[int, int] = {}
    for iteration, ns in counted:
        sums[iteration] = sums.get(iteration, 0) + ns
    return sums
