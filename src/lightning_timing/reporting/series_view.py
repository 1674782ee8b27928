"""What the charts show of a stage's rows, reduced to what a page can hold however long the run was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from lightning_timing.clocks import NS_IN_S
from lightning_timing.phases import ITERATION, PHASES
from lightning_timing.reporting.tree import TreeNode, tree

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lightning_timing.figures import MeasurementSummary
    from lightning_timing.record_series import FloatArray, IntArray, StageSeries

MAX_GROUPS: Final = 400
MAX_EPOCH_MARKS: Final = 40
MAX_OTHERS: Final = 12
"""Measurements besides the phases whose distribution is shown."""

_BINS_A_DECADE: Final = 60
_MAX_BINS: Final = 400


@dataclass(frozen=True)
class Course:
    """The phases over the iterations of a stage, which are shown in groups where there are too many.

    Attributes:
        first: Number of the first iteration of each group, shape (groups,).
        iterations: The number of iterations.
        group_size: Iterations in a group; the last may have fewer.
        phases: Mean time an iteration of each phase, in seconds, shape (groups,).
        slowest_s: The slowest iteration of each group, in seconds, shape (groups,).
        epochs: Each epoch with the number of its first iteration, in order; one that another call of the Trainer counts
            anew is there again. Empty where they are too many to mark.
    """

    first: IntArray
    iterations: int
    group_size: int
    phases: Mapping[str, FloatArray]
    slowest_s: FloatArray
    epochs: Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Spread:
    """How the time of a measurement in an iteration is distributed.

    Attributes:
        name: The measurement.
        edges_s: Edges of the bins, evenly spaced on a logarithmic scale, in seconds, shape (bins + 1,).
        counts: Iterations in each bin, shape (bins,).
        percentiles_s: By percentile, in seconds: of the iterations in which it took any time.
    """

    name: str
    edges_s: FloatArray
    counts: IntArray
    percentiles_s: Mapping[int, float]


def shown_phases(series: StageSeries) -> list[str]:
    """The phases that make up an iteration; the iteration itself where no callback measured them."""
    return [name for name in PHASES if name in series.ns] or [ITERATION]


def course(series: StageSeries) -> Course:
    """The course of a stage that has at least one iteration."""
    size = -(-len(series) // MAX_GROUPS)
    first = np.arange(0, len(series), size)
    lengths = np.diff(np.append(first, len(series)))
    phases = {
        name: np.add.reduceat(np.nan_to_num(series.ns[name]), first) / lengths / NS_IN_S
        for name in shown_phases(series)
    }
    starts = np.flatnonzero(np.diff(series.epoch, prepend=series.epoch[0] - 1))
    return Course(
        first=first,
        iterations=len(series),
        group_size=size,
        phases=phases,
        slowest_s=np.maximum.reduceat(series.ns[ITERATION], first) / NS_IN_S,
        epochs=[(int(series.epoch[i]), int(i)) for i in starts] if len(starts) <= MAX_EPOCH_MARKS else [],
    )


def phases_and_longest(nodes: Iterable[TreeNode[MeasurementSummary]], most: int) -> list[TreeNode[MeasurementSummary]]:
    """All phases, and of the other measurements the `most` longest, in the order given."""
    nodes = list(nodes)
    others = [node for node in nodes if node.name != ITERATION and node.name not in PHASES]
    others.sort(key=lambda node: node.measurement.total_s or 0.0, reverse=True)
    left_out = {node.name for node in others[most:]}
    return [node for node in nodes if node.name not in left_out]


def spread_names(series: StageSeries, measurements: Mapping[str, MeasurementSummary]) -> list[str]:
    """Returns the measurements whose distribution is shown, in the order of the tree."""
    found = (node for node in tree(measurements) if node.name in series.ns)
    return [node.name for node in phases_and_longest(found, MAX_OTHERS)]


def spreads(series: StageSeries, names: Iterable[str]) -> list[Spread]:
    """The distribution of each measurement that ever took any time, on common bins."""
    columns = {}
    for name in names:
        column = series.ns[name]
        if len(positive := column[column > 0] / NS_IN_S):
            columns[name] = positive
    if not columns:
        return []
    low = np.floor(np.log10(min(column.min() for column in columns.values())))
    high = np.ceil(np.log10(max(column.max() for column in columns.values())) + 1e-9)
    edges_s = np.logspace(low, high, int(min((high - low) * _BINS_A_DECADE, _MAX_BINS)) + 1)
    return [
        Spread(
            name=name,
            edges_s=edges_s,
            counts=np.histogram(np.clip(column, edges_s[0], edges_s[-1]), edges_s)[0],
            percentiles_s={q: float(np.percentile(column, q)) for q in (50, 95, 99)},
        )
        for name, column in columns.items()
    ]
