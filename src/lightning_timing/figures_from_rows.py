"""The figures of a stage, from the rows in its record: for a run that was killed before it could write its summary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from lightning_timing.clocks import NS_IN_S
from lightning_timing.figures import DeviceSummary, MeasurementSummary, StageSummary
from lightning_timing.phases import BETWEEN, ITERATION, PHASES, whole_of

if TYPE_CHECKING:
    from lightning_timing.record_series import FloatArray, StageSeries

_NOTHING: Final = np.empty(0)


def stage_figures(series: StageSeries, warmup_iterations: int) -> StageSummary:
    """Makes the figures of a stage from its rows.

    A row has only the sum of a measurement's intervals, so here its time in one iteration counts as one interval.

    Args:
        series: The rows.
        warmup_iterations: Iterations that were left out before the first row.
    """
    iterations = len(series)
    iterations_ns = float(series.ns[ITERATION].sum()) if iterations else 0.0
    measurements: dict[str, MeasurementSummary] = {}
    for name in dict.fromkeys((*series.ns, *series.outside)):
        inside_ns = _known(series.ns[name]) if name in series.ns else _NOTHING
        device_ns = _known(series.device_ns[name]) if name in series.device_ns else _NOTHING
        measurements[name] = _figures(
            inside_ns,
            series.outside.get(name, _NOTHING),
            parent_of(name, series),
            (iterations, iterations_ns),
            _device_figures(device_ns, len(inside_ns)),
        )
    known_samples = series.known_samples
    return StageSummary(
        iterations=iterations,
        warmup_iterations=warmup_iterations,
        measurements=measurements,
        samples=int(known_samples.sum()) if iterations and len(known_samples) == iterations else None,
    )


def _known(column: FloatArray) -> FloatArray:
    return column[~np.isnan(column)]


def parent_of(name: str, series: StageSeries) -> str | None:
    """Returns the enclosing measurement, as far as rows tell; the iteration where they do not."""
    prefix = BETWEEN if name.startswith(BETWEEN) else ""
    whole = whole_of(name.removeprefix(prefix))
    if whole is not None:
        return prefix + whole
    if name == ITERATION or name not in series.ns:
        return None
    return ITERATION if name in PHASES else series.parents.get(name, ITERATION)


def _figures(
    inside_ns: FloatArray,
    outside_ns: FloatArray,
    parent: str | None,
    whole: tuple[int, float],
    device: DeviceSummary | None,
) -> MeasurementSummary:
    """Makes the figures of one measurement.

    Args:
        inside_ns: Its intervals in iterations.
        outside_ns: Its intervals outside of iterations. There is at least one interval of either kind.
        parent: The enclosing measurement.
        whole: The iterations and their time, in nanoseconds.
        device: Its device time.
    """
    ns = np.concatenate((inside_ns, outside_ns))
    total_ns, in_iterations_ns = float(ns.sum()), float(inside_ns.sum())
    iterations, iterations_ns = whole if len(inside_ns) else (0, 0.0)
    p50, p95, p99 = (float(value) / NS_IN_S for value in np.percentile(ns, (50, 95, 99)))
    return MeasurementSummary(
        parent=parent,
        count=len(ns),
        total_s=total_ns / NS_IN_S,
        mean_s=total_ns / NS_IN_S / len(ns),
        per_iteration_s=in_iterations_ns / NS_IN_S / iterations if iterations else None,
        std_s=float(ns.std(ddof=1)) / NS_IN_S if len(ns) > 1 else None,
        min_s=float(ns.min()) / NS_IN_S,
        max_s=float(ns.max()) / NS_IN_S,
        p50_s=p50,
        p95_s=p95,
        p99_s=p99,
        share=in_iterations_ns / iterations_ns if iterations_ns else None,
        device=device,
    )


def _device_figures(ns: FloatArray, intervals: int) -> DeviceSummary | None:
    if not len(ns):
        return None
    p50, p95 = (float(value) / NS_IN_S for value in np.percentile(ns, (50, 95)))
    total_s = float(ns.sum()) / NS_IN_S
    return DeviceSummary(len(ns), max(intervals - len(ns), 0), total_s, total_s / len(ns), p50, p95)
