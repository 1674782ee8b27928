"""The report as one page that works offline, with charts by plotly, whose code is in the page.

Its policy lets it load nothing and run nothing but its own two scripts, whatever a name in the record says.
"""

from __future__ import annotations

import base64
import hashlib
from importlib import resources
from string import Template
from typing import TYPE_CHECKING, Final

from lightning_timing.phases import ITERATION, STAGES
from lightning_timing.reporting.charts import course_chart, course_top_s, plotly_script, rank_chart, spread_chart
from lightning_timing.reporting.markup import Markup, join, tag
from lightning_timing.reporting.page_parts import card
from lightning_timing.reporting.page_run import cpu_card, heading, notes, run_cards, tiles, verdict_card
from lightning_timing.reporting.page_stage import ranks_card, share_card, slowest_card, tree_card
from lightning_timing.reporting.series_view import course, spread_names, spreads
from lightning_timing.reporting.units import seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lightning_timing.figures import StageSummary
    from lightning_timing.record_series import StageSeries
    from lightning_timing.run_report import RunReport

_FEWEST_SHOWN: Final = 3
"""A stage of fewer iterations, such as the sanity check, is only named."""

_PAGE: Final = resources.files("lightning_timing.reporting") / "page"


def render_html(report: RunReport) -> str:
    """The report of a run as a page of a bounded size: some 5 MB, nearly all of it plotly, however long the run was.

    Args:
        report: What is known of the run.
    """
    charts = _Charts()
    sections = [heading(report), *notes(report), verdict_card(report)]
    if report.cpu_usage is not None:
        sections.append(cpu_card(report.cpu_usage))
    brief = _brief_stages(report.stages)
    for name in STAGES:
        if name in report.stages and name not in brief:
            sections += _stage_sections(name, report, charts)
    if brief:
        listed = ", ".join(f"{name} ({report.stages[name].iterations})" for name in brief)
        sections.append(
            tag("p", f"Left out, with fewer than {_FEWEST_SHOWN} iterations: {listed}.", class_="note brief")
        )
    sections += [tag("h2", "The run"), run_cards(report)]
    scripts = {"plotly": plotly_script(), "script": _read("page.js")}
    return Template(_read("page.html")).substitute(
        scripts,
        policy=_policy(*scripts.values()),
        style=_read("page.css"),
        body=join(sections),
        figures=charts.data(),
    )


def _brief_stages(stages: Mapping[str, StageSummary]) -> list[str]:
    """The stages of too few iterations for a section of their own, unless no stage has more."""
    brief: list[str] = [name for name in STAGES if name in stages and stages[name].iterations < _FEWEST_SHOWN]
    return [] if len(brief) == len(stages) else brief


class _Charts:
    """The charts of a page, by the name under which its script finds them."""

    def __init__(self) -> None:
        self._figures: dict[str, str] = {}

    def place(self, name: str, figure: str) -> Markup:
        """Adds a chart, as plotly's JSON. Returns the element that it is drawn in."""
        self._figures[name] = figure
        return tag("div", class_="chart", data_figure=name)

    def data(self) -> Markup:
        """The elements that hold the charts' data."""
        return join(
            tag("script", Markup(_in_script(figure)), type="application/json", id=name)
            for name, figure in self._figures.items()
        )


def _stage_sections(name: str, report: RunReport, charts: _Charts) -> list[Markup]:
    stage = report.stages[name]
    series = None if report.lead is None else report.lead.stages.get(name)
    sections = [tag("h2", name), *tiles(stage)]
    if ITERATION in stage.measurements and stage.iterations:
        sections.append(share_card(stage))
    if series is not None and len(series) and series.ns[ITERATION].any():
        sections += _series_sections(name, series, stage, charts)
    sections.append(tree_card(stage))
    if name in report.ranks:
        comparison = report.ranks[name]
        sections.append(ranks_card(comparison, charts.place(f"{name}-ranks", rank_chart(comparison.phases))))
    return sections


def _series_sections(name: str, series: StageSeries, stage: StageSummary, charts: _Charts) -> list[Markup]:
    shown = course(series)
    grouped = f"Each step is the mean of {shown.group_size:,} iterations. " if shown.group_size > 1 else ""
    slowest_s = float(shown.slowest_s.max())
    cut = f"The slowest iteration, of {seconds(slowest_s)}, is cut off. " if slowest_s > course_top_s(shown) else ""
    return [
        card(
            "Phases over the iterations",
            f"{grouped}{cut}A click in the legend hides a phase, a double click shows it alone; drag to zoom in.",
            charts.place(f"{name}-course", course_chart(shown)),
        ),
        card(
            "The distribution of each measurement",
            "Marked are the median, the 95th and the 99th percentile. Heights are square roots of counts, so that the "
            "rare shows.",
            charts.place(f"{name}-spread", spread_chart(spreads(series, spread_names(series, stage.measurements)))),
        ),
        slowest_card(series),
    ]


def _policy(*scripts: str) -> str:
    """The page's content security policy: its scripts by their hashes, and styles, as plotly sets them on elements."""
    hashes = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _read(name: str) -> str:
    return (_PAGE / name).read_text(encoding="utf-8")


def _in_script(json: str) -> str:
    """JSON that cannot end the element that it is in."""
    return json.replace("<", "\\u003c")
