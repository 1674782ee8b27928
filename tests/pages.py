"""A run as the page that shows it, and what such a page consists of."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

from records import MS, end, header, outside, phases, rows, summary_of, write_lines, write_summary

from lightning_timing.figures import CpuUsage
from lightning_timing.reporting.html import render_html
from lightning_timing.run_report import read_report

if TYPE_CHECKING:
    from pathlib import Path

HOSTILE_NAMES = (
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    "'\"--><svg/onload=alert(3)>",
    "<b>bold</b><br><a href='https://example.org'>link</a>",
    "${alert(4)} $title %{y} {{7*7}}",
    "\x00\x1b[31m\u202eevil",
    "🦊 שלום",
)


def write_run(run_dir: Path, *, iterations: int = 60, names: tuple[str, ...] = (), ranks: int = 1) -> Path:
    """A run of which every 20th iteration waits for its data, with the user's measurements `names` in `forward`."""
    for rank in range(ranks):
        many = []
        for number in range(iterations):
            wait = 40 if number % 20 == 19 else 2
            ns = phases(data_wait=wait * MS, forward=(10 + number % 5) * MS, backward=20 * MS, callbacks=MS, other=MS)
            many.append({**ns, "callbacks/EMA": MS, **dict.fromkeys(names, 3 * MS)})
        head = header(rank=rank, world_size=ranks, environment={"torch": "2.13.0"}, settings={"num_workers": 2})
        wait_first = outside("first_data_wait", 700 * MS, start_ns=1_200_000_000)
        lines = [head, wait_first, *rows(many), end()]
        write_lines(run_dir, lines, rank=rank)
        if rank == 0:
            summary = summary_of(
                lines,
                parents=dict.fromkeys(names, "forward"),
                world_size=ranks,
                environment=head.environment,
                settings=head.settings,
                one_time={"complete_run": 62.5, "still open": None},
                cpu_usage=CpuUsage("iteration", 310.0, 62.0, 0.775),
            )
            write_summary(run_dir, summary)
    return run_dir


def page_of(run_dir: Path) -> Page:
    """The page of a run, taken apart."""
    return Page(render_html(read_report(run_dir)))


class Page(HTMLParser):
    """A page taken apart.

    Attributes:
        html: The page itself.
        elements: The name and the attributes of every element.
        text: What a reader sees of it without its charts, with single spaces.
        scripts: What each script element holds.
        figures: The charts, as plotly takes them, by name.
    """

    def __init__(self, html: str) -> None:
        super().__init__()
        self.html = html
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.scripts: list[str] = []
        self.figures: dict[str, dict[str, Any]] = {}
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.cdata_elem is None:
            self.text += f" {' '.join(data.split())}"
        elif self.cdata_elem == "script":
            _, attributes = self.elements[-1]
            if attributes.get("type") == "application/json":
                self.figures[str(attributes["id"])] = json.loads(data)
            else:
                self.scripts.append(data)

    @property
    def policy(self) -> str:
        """Its content security policy."""
        (found,) = (a["content"] for _, a in self.elements if a.get("http-equiv") == "Content-Security-Policy")
        return str(found)

    @property
    def own_size(self) -> int:
        """Its characters without plotly's code."""
        return len(self.html) - max(map(len, self.scripts))
