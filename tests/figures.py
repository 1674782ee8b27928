"""Figures of a stage made from a few times, for tests of what judges and shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lightning_timing.figures import DeviceSummary, MeasurementSummary, StageSummary
from lightning_timing.phases import ITERATION, OTHER, PHASES

if TYPE_CHECKING:
    from collections.abc import Mapping


def measurement(total_s: float, *, whole_s: float | None, iterations: int, **changes: Any) -> MeasurementSummary:
    """Even intervals, one an iteration, that take `total_s` in all; `changes` replace fields."""
    mean_s = total_s / iterations
    fields: dict[str, Any] = {
        "parent": ITERATION,
        "count": iterations,
        "total_s": total_s,
        "mean_s": mean_s,
        "per_iteration_s": mean_s,
        "std_s": 0.0,
        "min_s": mean_s,
        "max_s": mean_s,
        "p50_s": mean_s,
        "p95_s": mean_s,
        "p99_s": mean_s,
        "share": total_s / whole_s if whole_s else None,
    }
    return MeasurementSummary(**{**fields, **changes})


def not_measured(parent: str | None = ITERATION) -> MeasurementSummary:
    """A measurement that was seen only in warm-up."""
    return MeasurementSummary(parent, 0, None, None, None, None, None, None, None, None, None, None)


def device(total_s: float, count: int) -> DeviceSummary:
    """Even device times that take `total_s` in all."""
    mean_s = total_s / count
    return DeviceSummary(count=count, untimed=0, total_s=total_s, mean_s=mean_s, p50_s=mean_s, p95_s=mean_s)


def stage(
    iterations: int = 100,
    extra: Mapping[str, MeasurementSummary] | None = None,
    samples: int | None = None,
    **phase_s: float,
) -> StageSummary:
    """A stage whose phases take `phase_s` seconds in all, evenly; the iteration is their sum."""
    whole_s = sum(phase_s.values())
    ordered = sorted(phase_s, key=(*PHASES, OTHER).index)
    return StageSummary(
        iterations=iterations,
        warmup_iterations=10,
        measurements={
            ITERATION: measurement(whole_s, whole_s=whole_s, iterations=iterations, parent=None),
            **{name: measurement(phase_s[name], whole_s=whole_s, iterations=iterations) for name in ordered},
            **(extra or {}),
        },
        samples=samples,
    )
