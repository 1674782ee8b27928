"""The parts of a page about one stage: shares, the slowest iterations, the tree and the ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lightning_timing.phases import PHASES
from lightning_timing.reporting.interval_columns import (
    DEVICE_COLUMNS,
    INTERVAL_COLUMNS,
    device_cells,
    interval_cells,
)
from lightning_timing.reporting.markup import Markup, join, tag
from lightning_timing.reporting.page_parts import (
    MINOR_NUMBER,
    MINOR_TEXT,
    NUMBER,
    TEXT,
    card,
    measurement_name,
    meter,
    stacked_bar,
    table,
)
from lightning_timing.reporting.palette import phase_color
from lightning_timing.reporting.run_blocks import culprit_line
from lightning_timing.reporting.series_view import phases_and_longest
from lightning_timing.reporting.slowest import SlowIteration, slowest_iterations
from lightning_timing.reporting.tree import TreeNode, tree
from lightning_timing.reporting.units import percent, plural, printable, seconds

if TYPE_CHECKING:
    from lightning_timing.figures import MeasurementSummary, StageSummary
    from lightning_timing.rank_comparison import RankComparison
    from lightning_timing.record_series import StageSeries

MAX_OTHERS_IN_TREE: Final = 300
_LONGEST_REASON: Final = 200

_SLOWEST_COLUMNS: Final = (
    ("iteration", NUMBER),
    ("epoch", MINOR_NUMBER),
    ("batch", MINOR_NUMBER),
    ("step", MINOR_NUMBER),
    ("time", NUMBER),
    ("against the median", NUMBER),
    ("phases", MINOR_TEXT),
    ("what was unusual", TEXT),
)
_TREE_COLUMNS: Final = (
    ("measurement", TEXT),
    ("", MINOR_TEXT),
    ("share", NUMBER),
    ("total", NUMBER),
    ("per iteration", NUMBER),
    *((column.header, NUMBER) for column in INTERVAL_COLUMNS),
)
_TREE_DEVICE_COLUMNS: Final = tuple((column.header, NUMBER) for column in DEVICE_COLUMNS)


def share_card(stage: StageSummary) -> Markup:
    """The mean iteration as one bar of its phases."""
    found = {name: stage.measurements[name] for name in PHASES if name in stage.measurements}
    keys = (
        tag(
            "span",
            tag("i", class_="swatch", style=f"background:{phase_color(name)}"),
            f"{name} ",
            tag("b", percent(figures.share)),
            class_="key",
        )
        for name, figures in found.items()
        if figures.count
    )
    return card(
        "The mean iteration",
        "From left to right in the order of the loop.",
        stacked_bar({name: figures.per_iteration_s or 0.0 for name, figures in found.items()}, "tall"),
        tag("div", *keys, class_="keys"),
    )


def slowest_card(series: StageSeries) -> Markup:
    """The slowest iterations and what set them apart."""
    found = slowest_iterations(series)
    longest_s = found[0].time_s
    return card(
        "The slowest iterations",
        "Numbered from 0, without warm-up, as in the charts and in a trace.",
        table(_SLOWEST_COLUMNS, (_slow_row(iteration, longest_s) for iteration in found)),
    )


def _slow_row(iteration: SlowIteration, longest_s: float) -> tuple[str, ...]:
    width = 100 * iteration.time_s / longest_s if longest_s else 0.0
    bar = tag("div", stacked_bar(iteration.phases_s, "thin"), style=f"width:{width:.2f}%")
    return (
        f"{iteration.number:,}",
        f"{iteration.epoch:,}",
        f"{iteration.batch_idx:,}",
        f"{iteration.global_step:,}",
        seconds(iteration.time_s),
        f"{iteration.times_median:,.2f} x",
        tag("div", bar, class_="scale"),
        join(tag("div", printable(reason, _LONGEST_REASON)) for reason in iteration.unusual) or "nothing",
    )


def tree_card(stage: StageSummary) -> Markup:
    """All measurements of a stage as a tree; of very many the longest."""
    nodes = [node for node in tree(stage.measurements) if node.measurement.count]
    shown = phases_and_longest(nodes, MAX_OTHERS_IN_TREE)
    left_out = len(nodes) - len(shown)
    with_device = any(node.measurement.device is not None for node in nodes)
    rows = (_tree_row(node, with_device) for node in shown)
    return card(
        "All measurements",
        "Host time; mean to max are per interval, and per iteration is the total over all iterations by their number.",
        table(_TREE_COLUMNS + _TREE_DEVICE_COLUMNS if with_device else _TREE_COLUMNS, rows),
        *((tag("p", f"and {plural(left_out, 'shorter measurement')}", class_="note"),) if left_out else ()),
    )


def _tree_row(node: TreeNode[MeasurementSummary], with_device: bool) -> tuple[str, ...]:
    figures = node.measurement
    cells = (
        measurement_name(node.name, node.label, node.depth),
        "" if figures.share is None else meter(figures.share, phase_color(node.name)),
        percent(figures.share),
        seconds(figures.total_s),
        seconds(figures.per_iteration_s),
        *interval_cells(figures),
    )
    return (*cells, *device_cells(figures.device)) if with_device else cells


def ranks_card(comparison: RankComparison, chart: Markup) -> Markup:
    """How the ranks compare, and which one the others wait for.

    Args:
        comparison: The ranks.
        chart: The place of their chart.
    """
    return card(
        f"{comparison.ranks:,} ranks",
        "From the fastest rank's mean to the slowest's, with a mark at the median rank.",
        tag("p", culprit_line(comparison.culprit), class_="finding"),
        chart,
    )
