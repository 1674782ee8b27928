"""The slowest iterations of a stage, and what was unusual about each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from lightning_timing.clocks import NS_IN_S
from lightning_timing.phases import ITERATION
from lightning_timing.reporting.series_view import shown_phases
from lightning_timing.reporting.units import seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lightning_timing.record_series import StageSeries

NUM_SHOWN: Final = 10
UNUSUAL_SHARE: Final = 0.2
"""A phase is unusual if it makes up this share of the iteration's time beyond the median."""
NOTABLE_EXCESS: Final = 0.1
"""An iteration has no unusual phase unless it is longer than the median by more than this share of it."""


@dataclass(frozen=True)
class SlowIteration:
    """One of the slowest iterations.

    Attributes:
        number: Its number in the stage, from 0, warm-up left out.
        epoch: Its epoch, from 0.
        batch_idx: Its batch's index in the epoch.
        global_step: Optimizer steps taken before it.
        time_s: How long it took, in seconds.
        times_median: The same, divided by the median iteration.
        phases_s: Its phases, in seconds.
        unusual: What set it apart, in words.
    """

    number: int
    epoch: int
    batch_idx: int
    global_step: int
    time_s: float
    times_median: float
    phases_s: Mapping[str, float]
    unusual: tuple[str, ...]


def slowest_iterations(series: StageSeries) -> list[SlowIteration]:
    """The slowest iterations of a stage, slowest first. The series has at least one."""
    total_s = series.ns[ITERATION] / NS_IN_S
    median_s = float(np.median(total_s))
    numbers = np.argsort(-total_s, kind="stable")[:NUM_SHOWN]
    phases_s: dict[str, list[float]] = {}
    usual_s: dict[str, float] = {}
    for name in shown_phases(series):
        column = np.nan_to_num(series.ns[name]) / NS_IN_S
        phases_s[name] = column[numbers].tolist()
        usual_s[name] = float(np.median(column))
    usual_samples = float(np.median(series.known_samples)) if len(series.known_samples) else None
    found = []
    for place, number in enumerate(numbers.tolist()):
        own_s = {name: times[place] for name, times in phases_s.items()}
        time_s = float(total_s[number])
        unusual = _unusual_phases(own_s, usual_s, time_s - median_s, NOTABLE_EXCESS * median_s)
        found.append(
            SlowIteration(
                number=number,
                epoch=int(series.epoch[number]),
                batch_idx=int(series.batch_idx[number]),
                global_step=int(series.global_step[number]),
                time_s=time_s,
                times_median=time_s / median_s if median_s else 1.0,
                phases_s=own_s,
                unusual=(*unusual, *_unusual_batch(series, number, usual_samples)),
            )
        )
    return found


def _unusual_phases(
    own_s: Mapping[str, float], usual_s: Mapping[str, float], excess_s: float, notable_s: float
) -> list[str]:
    if excess_s <= notable_s:
        return []
    beyond_s = {name: own_s[name] - usual_s[name] for name in own_s}
    return [
        f"{name} took {seconds(own_s[name])}, usually {seconds(usual_s[name]) if usual_s[name] else 'nothing'}"
        for name in sorted(own_s, key=beyond_s.__getitem__, reverse=True)
        if beyond_s[name] >= UNUSUAL_SHARE * excess_s
    ]


def _unusual_batch(series: StageSeries, number: int, usual_samples: float | None) -> list[str]:
    found = []
    samples = float(series.samples[number])
    if usual_samples is not None and not np.isnan(samples) and samples != usual_samples:
        found.append(f"{samples:,.0f} samples, usually {usual_samples:,.0f}")
    if series.batch_idx[number] == 0:
        found.append("first batch of its epoch")
    return found
