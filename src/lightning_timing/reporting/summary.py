"""The report of one rank's figures, as blocks: a table a stage, CPU usage, one-time measurements and the verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lightning_timing.phases import ITERATION, SANITY_CHECK, STAGES
from lightning_timing.reporting.blocks import Block, Column, Heading, Lines, Table
from lightning_timing.reporting.tree import TreeNode, tree
from lightning_timing.reporting.units import UNKNOWN, percent, plural, printable, rate, seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lightning_timing.record import CpuUsage, MeasurementSummary, StageSummary, TimingOverhead
    from lightning_timing.verdict import Verdict

HOST_TIME_NOTE: Final = (
    'Host time. "mean" to "max" are per interval; "per iteration" is the total over all iterations, by their number.'
)
UNMEASURED: Final = "not measured (no interval after warm-up)"
"""Said of names that are known, but have no figure: seen in warm-up only, or dropped for misuse."""
_DEVICE_NOTE: Final = '"device" columns: time on the device, per interval.'

_PLACES: Final = {str(stage): place for place, stage in enumerate(STAGES)}

_COLUMNS: Final = (
    Column("measurement", is_number=False, importance=9),
    Column("share", importance=9),
    Column("per iteration", importance=8),
    Column("mean", importance=4),
    Column("p50", importance=7),
    Column("p95", importance=6),
    Column("p99", importance=3),
    Column("max", importance=2),
    Column("count", importance=1),
)
_DEVICE_COLUMNS: Final = (
    Column("device mean", importance=6),
    Column("device p50", importance=3),
    Column("device p95", importance=2),
)


def summary_blocks(
    stages: Mapping[str, StageSummary],
    one_time: Mapping[str, float | None],
    cpu_usage: CpuUsage | None = None,
    verdict: Verdict | None = None,
    overhead: TimingOverhead | None = None,
) -> list[Block]:
    """The report of finished figures.

    Args:
        stages: The figures of each stage.
        one_time: One-time measurements in seconds; None for one that is still running.
        cpu_usage: CPU usage of a measurement.
        verdict: What the figures say.
        overhead: What the timing cost.
    """
    blocks: list[Block] = []
    for name, stage in sorted(stages.items(), key=lambda item: _PLACES.get(item[0], len(_PLACES))):
        blocks += [Heading(_stage_title(name, stage)), stage_table(stage)]
        if lines := _unmeasured_lines(name, stage):
            blocks.append(Lines(lines))
    if blocks:
        with_device = any(m.device for stage in stages.values() for m in stage.measurements.values())
        blocks.append(Lines((HOST_TIME_NOTE, _DEVICE_NOTE) if with_device else (HOST_TIME_NOTE,)))
    else:
        blocks.append(Lines(("nothing measured yet",)))
    if one_time:
        blocks += [Heading("one-time measurements"), _one_time_table(one_time)]
    lines = _closing_lines(cpu_usage, verdict, overhead)
    return [*blocks, Lines(("", *lines))] if lines else blocks


def stage_table(stage: StageSummary) -> Table:
    """What was measured in a stage, as a tree; with device columns where a device time is known."""
    nodes = [node for node in tree(stage.measurements) if node.measurement.count]
    with_device = any(node.measurement.device is not None for node in nodes)
    columns = _COLUMNS + _DEVICE_COLUMNS if with_device else _COLUMNS
    return Table(columns, tuple(_row(node, with_device) for node in nodes))


def _row(node: TreeNode[MeasurementSummary], with_device: bool) -> tuple[str, ...]:
    figures = node.measurement
    times = (figures.per_iteration_s, figures.mean_s, figures.p50_s, figures.p95_s, figures.p99_s, figures.max_s)
    cells = (node.indented, percent(figures.share), *map(seconds, times), f"{figures.count:,}")
    if not with_device:
        return cells
    device = figures.device
    if device is None:
        return (*cells, UNKNOWN, UNKNOWN, UNKNOWN)
    return (*cells, seconds(device.mean_s), seconds(device.p50_s), seconds(device.p95_s))


def _stage_title(name: str, stage: StageSummary) -> str:
    iterations = plural(stage.iterations, "iteration")
    parts = [f"{printable(name)}: {iterations} ({stage.warmup_iterations:,} of warm-up not counted)"]
    iteration = stage.measurements.get(ITERATION)
    if iteration is not None and iteration.total_s:
        parts.append(rate(stage.iterations, iteration.total_s, "iterations"))
        if stage.samples is not None:
            parts.append(rate(stage.samples, iteration.total_s, "samples"))
    if stage.host_ahead_s is not None:
        parts.append(f"host ahead of the device by {seconds(stage.host_ahead_s)} at the end")
    if stage.skipped_batches:
        parts.append(f"{stage.skipped_batches:,} batches skipped")
    return ", ".join(parts)


def _unmeasured_lines(name: str, stage: StageSummary) -> tuple[str, ...]:
    lines = []
    if unmeasured := [printable(name) for name, figures in stage.measurements.items() if figures.count == 0]:
        lines.append(f"{UNMEASURED}: {', '.join(unmeasured)}")
    if stage.warmup_iterations and not stage.iterations and name != SANITY_CHECK:  # which is short by design
        lines.append("all were warm-up: set num_warmup_iters lower")
    return tuple(lines)


def _one_time_table(one_time: Mapping[str, float | None]) -> Table:
    columns = (Column("measurement", is_number=False), Column("time"))
    rows = ((printable(name), "running" if time_s is None else seconds(time_s)) for name, time_s in one_time.items())
    return Table(columns, tuple(rows))


def _closing_lines(
    cpu_usage: CpuUsage | None, verdict: Verdict | None, overhead: TimingOverhead | None
) -> tuple[str, ...]:
    lines = []
    if cpu_usage is not None:
        lines.append(_cpu_line(cpu_usage))
    if overhead is not None:
        lines.append(f"timing itself: {seconds(overhead.seconds)} ({percent(overhead.share)})")
    if verdict is not None:
        lines += [f"verdict: {verdict.name}: {verdict.evidence}", f"next: {verdict.advice}"]
    return tuple(lines)


def _cpu_line(usage: CpuUsage) -> str:
    parts = (
        ("of a core by this process and its children", usage.process_tree_percent, 1),
        ("of the machine in use", usage.machine_percent, 1),
        ("of the allowed cores used", usage.share_of_allowed, 100),
    )
    known = [f"{value * factor:.0f} % {what}" for what, value, factor in parts if value is not None]
    return f"CPU during {printable(usage.measurement)}: {', '.join(known) or 'unknown'}"
