"""The charts of a page, as plotly's JSON: phases over iterations, their distributions, and how ranks compare.

The colours of text and grid are the page's, by its style sheet, since they depend on whether the page is light or dark.
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import plotly.graph_objects as go  # type: ignore[import-untyped]  # it ships no types
from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]  # likewise

from lightning_timing.reporting.palette import phase_color
from lightning_timing.reporting.units import printable, seconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lightning_timing.rank_comparison import PhaseAcrossRanks
    from lightning_timing.reporting.series_view import Course, Spread

_MARK_COLOR: Final = "#7f8a9b"
"""Visible on light and on dark pages."""
_FAINT: Final = "rgba(128, 136, 150, 0.3)"
_CLEAR: Final = "rgba(0, 0, 0, 0)"
_FONT: Final = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_ROW_HEIGHT: Final = 36
_RIDGE_HEIGHT: Final = 0.85
_MAX_RATIO: Final = 3.0
"""The axis of time ends at this many times the 95th percentile, however slow the slowest iteration was."""
_PERCENTILE_MARKS: Final = {50: ("median", 15), 95: ("p95", 10), 99: ("p99", 6)}
"""The percentiles that are marked on a distribution, with the heights of their marks."""
_SECONDS_TICKS: Final = {"tickformat": "~s", "ticksuffix": "s"}
_LOG_SECONDS: Final = {
    "type": "log",
    "dtick": 1,
    "minor": {"dtick": "D1", "showgrid": True, "gridcolor": "rgba(128, 136, 150, 0.1)"},
    **_SECONDS_TICKS,
}
_NAMED_RATIO: Final = 1.05
"""The slowest rank is named where it is beyond the fastest by this much."""


def _label(name: str) -> str:
    """A name as plotly shows it literally, though it takes some markup in labels for its own."""
    return html.escape(printable(name), quote=False)


def plotly_script() -> str:
    """The code that draws the charts in a browser, with newlines as a browser hands them on."""
    return str(get_plotlyjs()).replace("\r\n", "\n").replace("\r", "\n")


def course_top_s(course: Course) -> float:
    """Where the axis of time of a course ends, in seconds: slower iterations are cut off there."""
    return 1.05 * min(float(course.slowest_s.max()), _MAX_RATIO * float(np.percentile(course.slowest_s, 95)))


def course_chart(course: Course) -> str:
    """Phases stacked over the iterations of a stage, with the slowest of each group where they are grouped."""
    edges = np.append(course.first, course.iterations)
    figure = go.Figure()
    for name, mean_s in course.phases.items():
        figure.add_scatter(
            name=_label(name),
            x=edges,
            y=np.append(mean_s, mean_s[-1]),  # the last step needs an end
            stackgroup="phases",
            mode="lines",
            line={"width": 0, "shape": "hv"},
            fillcolor=phase_color(name),
            hovertemplate="%{y:.3~s}s",
        )
    if course.group_size > 1:
        figure.add_scatter(
            name=f"slowest of {course.group_size:,}",
            x=edges,
            y=np.append(course.slowest_s, course.slowest_s[-1]),
            mode="lines",
            line={"width": 1, "shape": "hv", "color": _MARK_COLOR},
            opacity=0.6,
            hovertemplate="%{y:.3~s}s",
        )
    for epoch, first in course.epochs[1:]:
        figure.add_vline(
            x=first,
            line={"width": 1, "color": _MARK_COLOR, "dash": "dot"},
            annotation={"text": f"epoch {epoch}", "font": {"size": 11}, "yanchor": "bottom"},
        )
    _lay_out(figure, height=420, hovermode="x unified", showlegend=True)
    figure.update_xaxes(title_text="iteration", range=[0, course.iterations], tickformat=",d")
    figure.update_yaxes(title_text="time per iteration", range=[0, course_top_s(course)], **_SECONDS_TICKS)
    return str(figure.to_json())


def spread_chart(spreads: Sequence[Spread]) -> str:
    """The distribution of each phase's time in an iteration: a row a phase, on one logarithmic axis of time."""
    figure = go.Figure()
    for row, spread in enumerate(reversed(spreads)):
        name, color = _label(spread.name), phase_color(spread.name)
        heights = row + _RIDGE_HEIGHT * np.sqrt(spread.counts / spread.counts.max())
        figure.add_scatter(
            name=name,
            x=np.repeat(spread.edges_s, 2),
            y=np.concatenate(([row], np.repeat(heights, 2), [row])),
            mode="lines",
            fill="toself",
            fillcolor=color,
            line={"width": 1, "color": color},
            hoverinfo="skip",
        )
        marks = [_PERCENTILE_MARKS[q] for q in spread.percentiles_s]
        figure.add_scatter(
            name=name,
            x=list(spread.percentiles_s.values()),
            y=[row] * len(marks),
            mode="markers",
            marker={
                "symbol": "line-ns",
                "size": [size for _, size in marks],
                "line": {"width": 2, "color": _MARK_COLOR},
            },
            text=[
                f"{mark} {seconds(value)}"
                for (mark, _), value in zip(marks, spread.percentiles_s.values(), strict=True)
            ],
            hovertemplate="%{text}",
        )
    _lay_out(figure, height=80 + _ROW_HEIGHT * len(spreads), hovermode="closest", showlegend=False)
    figure.update_xaxes(title_text="time in an iteration", **_LOG_SECONDS)
    _name_rows(figure, [spread.name for spread in reversed(spreads)])
    return str(figure.to_json())


def rank_chart(phases: Mapping[str, PhaseAcrossRanks]) -> str:
    """How far the ranks lie apart in each phase: fastest, median and slowest rank, on one logarithmic axis of time."""
    shown = {name: phase for name, phase in list(phases.items())[::-1] if phase.fastest_s > 0}
    figure = go.Figure()
    for row, (name, phase) in enumerate(shown.items()):
        color, slowest = phase_color(name), f"rank {phase.slowest_rank}"
        is_named = phase.slowest_s >= _NAMED_RATIO * phase.fastest_s
        times_s = {"fastest rank": phase.fastest_s, "median rank": phase.median_s, slowest: phase.slowest_s}
        figure.add_scatter(
            name=_label(name),
            x=list(times_s.values()),
            y=[row] * len(times_s),
            mode="lines+markers+text",
            line={"width": 5, "color": color},
            marker={
                "symbol": ["circle", "line-ns", "circle"],
                "size": [9, 16, 9],
                "color": color,
                "line": {"width": [0, 3, 0], "color": _MARK_COLOR},
            },
            text=["", "", f"  {slowest}" if is_named else ""],
            textposition="middle right",
            hovertext=[f"{rank} {seconds(time_s)}" for rank, time_s in times_s.items()],
            hovertemplate="%{hovertext}",
        )
    _lay_out(figure, height=80 + _ROW_HEIGHT * len(shown), hovermode="closest", showlegend=False)
    figure.update_xaxes(title_text="mean time per iteration", **_LOG_SECONDS)
    _name_rows(figure, list(shown))
    return str(figure.to_json())


def _name_rows(figure: go.Figure, names: Sequence[str]) -> None:
    figure.update_yaxes(
        tickvals=list(range(len(names))),
        ticktext=[f"{_label(name)} " for name in names],
        range=[-0.5, len(names)],
        showgrid=False,
    )


def _lay_out(figure: go.Figure, **layout: Any) -> None:
    figure.update_layout(
        font={"family": _FONT, "size": 13},
        margin={"l": 8, "r": 8, "t": 24, "b": 8},
        paper_bgcolor=_CLEAR,
        plot_bgcolor=_CLEAR,
        legend={"orientation": "h", "y": -0.22, "yanchor": "top", "traceorder": "normal"},
        hoverlabel={"namelength": -1},
        **layout,
    )
    axis = {"automargin": True, "gridcolor": _FAINT, "linecolor": _FAINT, "zeroline": False, "title_font_size": 12}
    figure.update_xaxes(axis)
    figure.update_yaxes(axis)
