"""The report of one rank's figures, as blocks: the verdict, where the time went, a table a stage, CPU usage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lightning_timing.phases import ITERATION, SANITY_CHECK, place_of_stage
from lightning_timing.reporting.blocks import Block, Column, Heading, Lines, Table
from lightning_timing.reporting.interval_columns import (
    DEVICE_COLUMNS,
    INTERVAL_COLUMNS,
    device_cells,
    interval_cells,
)
from lightning_timing.reporting.tree import TreeNode, tree
from lightning_timing.reporting.units import percent, plural, printable, rate, seconds
from lightning_timing.stage_verdict import device_has_work
from lightning_timing.time_parts import time_of, time_parts
from lightning_timing.verdict import why_no_verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lightning_timing.figures import CpuUsage, MeasurementSummary, StageSummary
    from lightning_timing.record import TimingOverhead
    from lightning_timing.verdict_rules import Verdict

_HOST_TIME_NOTE: Final = (
    'Host time. "mean" to "max" are per interval; "per iteration" is the total over all iterations, by their number.'
)
UNMEASURED: Final = "not measured (no interval that counts)"
"""Said of names that are known, but have no figure: seen in warm-up only, or dropped for misuse."""
_DEVICE_NOTE: Final = '"device" columns: time on the device, per interval.'

LONGEST_SENTENCE: Final = 1000
"""The most characters of a verdict's sentence that are shown, since it may hold names from the user's code."""
_SMALLEST_SHARE: Final = 0.005
"""Parts that take a smaller share of the measured time are not named."""

_COLUMNS: Final = (
    Column("measurement", is_number=False, importance=9),
    Column("share", importance=9),
    Column("per iteration", importance=8),
    *INTERVAL_COLUMNS,
)
_OUTSIDE_COLUMNS: Final = (
    Column("outside of the iterations", is_number=False, importance=9),
    Column("total", importance=9),
    *INTERVAL_COLUMNS,
)


def summary_blocks(
    stages: Mapping[str, StageSummary],
    one_time: Mapping[str, float | None],
    cpu_usage: CpuUsage | None = None,
    verdict: Verdict | None = None,
    overhead: TimingOverhead | None = None,
    rank: str = "",
) -> list[Block]:
    """The report of finished figures. The sanity check is left out, unless it is all there is.

    Args:
        stages: The figures of each stage.
        one_time: One-time measurements in seconds; None for one that is still running.
        cpu_usage: CPU usage of a measurement.
        verdict: What the figures say.
        overhead: What the timing cost.
        rank: Of several ranks the one that the figures are of, such as `rank 0 of 2`.
    """
    first = tuple(_first_lines(stages, verdict))
    blocks: list[Block] = [Lines(first)] if first else []
    for name, stage in sorted(_shown_stages(stages).items(), key=lambda item: place_of_stage(item[0])):
        blocks += [Heading(_stage_title(name, stage, rank)), *_stage_tables(stage)]
        if lines := _unmeasured_lines(name, stage):
            blocks.append(Lines(lines))
    if stages:
        with_device = any(m.device for stage in stages.values() for m in stage.measurements.values())
        blocks.append(Lines((_HOST_TIME_NOTE, _DEVICE_NOTE) if with_device else (_HOST_TIME_NOTE,)))
    else:
        blocks.append(Lines(("nothing measured yet",)))
    if one_time:
        blocks += [Heading("one-time measurements"), _one_time_table(one_time)]
    lines = _closing_lines(stages, cpu_usage, overhead)
    return [*blocks, Lines(("", *lines))] if lines else blocks


def rank_of(rank: int, world_size: int) -> str:
    """The rank that figures are of, in words; empty where it is the only one."""
    return f"rank {rank} of {world_size:,}" if world_size > 1 else ""


def _shown_stages(stages: Mapping[str, StageSummary]) -> Mapping[str, StageSummary]:
    """The stages that a reader is shown: all but the sanity check, unless it is all there is."""
    return {name: stage for name, stage in stages.items() if name != SANITY_CHECK} or stages


def _first_lines(stages: Mapping[str, StageSummary], verdict: Verdict | None) -> Iterator[str]:
    """Yields the most important lines: the verdict, what to do next, and where the time went."""
    if verdict is not None:
        yield f"verdict: {verdict.name}: {printable(verdict.evidence, LONGEST_SENTENCE)}"
        yield f"next: {printable(verdict.advice, LONGEST_SENTENCE)}"
    elif (reason := why_no_verdict(stages)) is not None:
        yield reason
    if (went := where_time_went(stages)) is not None:
        yield went


def where_time_went(stages: Mapping[str, StageSummary]) -> str | None:
    """How the measured time divides into iterations and what lies between them; None where there are none."""
    parts = time_parts(stages)
    whole_s = time_of(parts)
    if not any(part.what == ITERATION for part in parts):
        return None
    by_stage: dict[str, list[str]] = {}
    for part in parts:
        is_shown = part.what == ITERATION and part.stage != SANITY_CHECK
        if is_shown or part.total_s >= _SMALLEST_SHARE * whole_s:
            what = "iterations" if part.what == ITERATION else part.what
            shown = f"{what} {seconds(part.total_s)} ({percent(part.total_s / whole_s)})"
            by_stage.setdefault(part.stage, []).append(shown)
    is_missing = any(stage.warmup_iterations and stage.warmup_s is None for stage in stages.values())
    warmup = ", warm-up not counted" if is_missing else ""
    went = "; ".join(f"{stage}: {', '.join(shown)}" for stage, shown in by_stage.items())
    return f"where {seconds(whole_s)} went{warmup}: {went}"


def _stage_tables(stage: StageSummary) -> list[Table]:
    """Returns the measurements of a stage as trees: a table of its iterations, and one of what lies outside of them.

    What lies outside has no share. There are device columns where a device time is known.
    """
    nodes = tree({name: figures for name, figures in stage.measurements.items() if figures.count})
    with_device = any(node.measurement.device is not None for node in nodes)
    inside: list[TreeNode[MeasurementSummary]] = []
    outside: list[TreeNode[MeasurementSummary]] = []
    group = inside
    for node in nodes:
        if not node.depth:
            group = inside if node.name == ITERATION or node.measurement.share is not None else outside
        group.append(node)
    device_columns = DEVICE_COLUMNS if with_device else ()
    tables = [Table(_COLUMNS + device_columns, tuple(_row(node, with_device) for node in inside))] if inside else []
    if outside:
        rows = tuple(_row(node, with_device, outside=True) for node in outside)
        tables.append(Table(_OUTSIDE_COLUMNS + device_columns, rows))
    return tables


def _row(node: TreeNode[MeasurementSummary], with_device: bool, outside: bool = False) -> tuple[str, ...]:
    figures = node.measurement
    sums = (seconds(figures.total_s),) if outside else (percent(figures.share), seconds(figures.per_iteration_s))
    cells = (node.indented, *sums, *interval_cells(figures))
    return (*cells, *device_cells(figures.device)) if with_device else cells


def _stage_title(name: str, stage: StageSummary, rank: str) -> str:
    iterations = plural(stage.iterations, "iteration")
    parts = [f"{printable(name)}: {iterations} ({stage.warmup_iterations:,} of warm-up not counted)"]
    if stage.paced_s:
        parts.append(rate(stage.iterations, stage.paced_s, "iterations"))
        if stage.samples is not None:
            on_rank = f" on {rank}" if rank else ""
            parts.append(rate(stage.samples, stage.paced_s, "samples") + on_rank)
    if (busy := stage.device_busy_share) is not None:
        parts.append(f"{device_has_work(busy)} the time")
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
    if not (stage.iterations or stage.warmup_iterations) and ITERATION not in stage.measurements:
        lines.append("finish_iter() was never called, on which an iteration's figures hang")
    return tuple(lines)


def _one_time_table(one_time: Mapping[str, float | None]) -> Table:
    columns = (Column("measurement", is_number=False), Column("time"))
    rows = ((printable(name), "running" if time_s is None else seconds(time_s)) for name, time_s in one_time.items())
    return Table(columns, tuple(rows))


def _closing_lines(
    stages: Mapping[str, StageSummary], cpu_usage: CpuUsage | None, overhead: TimingOverhead | None
) -> tuple[str, ...]:
    lines = []
    if cpu_usage is not None:
        lines.append(_cpu_line(cpu_usage, stages))
    if overhead is not None:
        lines.append(
            f"timing itself: {seconds(overhead.seconds)}, {percent(overhead.share)} of the time of the iterations"
        )
    return tuple(lines)


def _cpu_line(usage: CpuUsage, stages: Mapping[str, StageSummary]) -> str:
    known = []
    if usage.process_tree_cores is not None:
        of_allowed = "" if usage.share_of_allowed is None else f" ({100 * usage.share_of_allowed:.0f} % of its cores)"
        known.append(f"{usage.process_tree_cores:.2f} cores in use by this process and its children{of_allowed}")
    if usage.machine_percent is not None:
        known.append(f"the machine {usage.machine_percent:.0f} % busy with all that runs on it")
    line = f"CPU during {printable(usage.measurement)}: {', '.join(known) or 'unknown'}"
    was_measured = any(m.count for stage in stages.values() if (m := stage.measurements.get(usage.measurement)))
    if known or was_measured or usage.measurement == ITERATION:
        return line
    return f"{line}: nothing of that name was measured after warm-up"
