"""The figures of a stage, from what a recorder in this process has measured. `figures_from_rows` makes them from files.

The recorder imports this module only when it is asked for figures, because `figures` is slow to import: it makes
dataclasses.
"""

from __future__ import annotations

from lightning_timing.clocks import NS_IN_S
from lightning_timing.distribution import Distribution
from lightning_timing.figures import DeviceSummary, MeasurementSummary, StageSummary
from lightning_timing.measurement import Measurement
from lightning_timing.stage_totals import StageTotals


def summarize_stage(stage: StageTotals) -> StageSummary:
    """The figures of a stage so far."""
    iterations = stage.iterations_taken
    summaries = {m.name: _summarize(m, iterations, stage.iterations_ns) for m in stage.all_measurements()}
    ahead = stage.host_ahead.percentiles_ns(50)
    return StageSummary(
        iterations=iterations,
        warmup_iterations=stage.warmup_iterations,
        measurements=summaries,
        samples=stage.samples if iterations else None,
        skipped_batches=stage.skipped_batches,
        host_ahead_s=None if ahead is None else ahead[0] / NS_IN_S,
        warmup_s=stage.warmup_ns / NS_IN_S,
    )


def _summarize(measurement: Measurement, iterations: int, iterations_ns: int) -> MeasurementSummary:
    """The figures of a measurement so far.

    Args:
        measurement: The measurement.
        iterations: The stage's measured iterations.
        iterations_ns: The time they took, in nanoseconds.
    """
    d = measurement.distribution
    p50, p95, p99 = d.percentiles_ns(50, 95, 99) or (None, None, None)
    inside_ns = d.total_ns - measurement.outside_ns if measurement.inside_count else None
    return MeasurementSummary(
        parent=measurement.parent,
        count=d.count,
        total_s=_seconds(d.total_ns) if d.count else None,
        mean_s=_seconds(d.total_ns / d.count) if d.count else None,
        per_iteration_s=None if inside_ns is None or not iterations else _seconds(inside_ns / iterations),
        std_s=_seconds(d.std_ns),
        min_s=_seconds(d.min_ns),
        max_s=_seconds(d.max_ns),
        p50_s=_seconds(p50),
        p95_s=_seconds(p95),
        p99_s=_seconds(p99),
        share=None if inside_ns is None or not iterations_ns else inside_ns / iterations_ns,
        device=_device_summary(measurement),
    )


def _device_summary(measurement: Measurement) -> DeviceSummary | None:
    if measurement.device is None and not measurement.device_untimed:
        return None
    d = measurement.device or Distribution()
    p50, p95 = d.percentiles_ns(50, 95) or (None, None)
    overlapped_ns = measurement.device_overlapped_ns
    if overlapped_ns is not None:  # from mark to mark, which lie a little beside the ledger's own readings
        overlapped_ns = min(overlapped_ns, measurement.distribution.total_ns)
    return DeviceSummary(
        count=d.count,
        untimed=measurement.device_untimed,
        total_s=_seconds(d.total_ns) if d.count else None,
        mean_s=_seconds(d.total_ns / d.count) if d.count else None,
        p50_s=_seconds(p50),
        p95_s=_seconds(p95),
        overlapped_s=_seconds(overlapped_ns),
    )


def _seconds(ns: float | None) -> float | None:
    return None if ns is None else ns / NS_IN_S
