"""The columns about a measurement's intervals, which the tables of the report and of the page have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lightning_timing.reporting.blocks import Column
from lightning_timing.reporting.units import UNKNOWN, seconds

if TYPE_CHECKING:
    from lightning_timing.figures import DeviceSummary, MeasurementSummary

INTERVAL_COLUMNS: Final = (
    Column("mean", importance=4),
    Column("p50", importance=7),
    Column("p95", importance=6),
    Column("p99", importance=3),
    Column("max", importance=2),
    Column("count", importance=1),
)
DEVICE_COLUMNS: Final = (
    Column("device mean", importance=6),
    Column("device p50", importance=3),
    Column("device p95", importance=2),
)


def interval_cells(figures: MeasurementSummary) -> tuple[str, ...]:
    """The cells of a measurement below `INTERVAL_COLUMNS`."""
    times = (figures.mean_s, figures.p50_s, figures.p95_s, figures.p99_s, figures.max_s)
    return (*map(seconds, times), f"{figures.count:,}")


def device_cells(device: DeviceSummary | None) -> tuple[str, ...]:
    """The cells of a measurement below `DEVICE_COLUMNS`."""
    if device is None:
        return (UNKNOWN,) * len(DEVICE_COLUMNS)
    return tuple(map(seconds, (device.mean_s, device.p50_s, device.p95_s)))
