from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from chromium import Chromium, find_chromium
from pages import HOSTILE_NAMES, write_run

from lightning_timing.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHROMIUM = find_chromium()

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None and "CI" not in os.environ, reason="Chromium is not installed"),
]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a run on two ranks with names that would be markup or code if they were not text."""
    run_dir = write_run(tmp_path_factory.mktemp("run"), names=HOSTILE_NAMES, iterations=1000, ranks=2)
    assert main(["report", str(run_dir), "--html", str(run_dir / "report.html")]) == 0
    return run_dir / "report.html"


@contextmanager
def browser_with(path: Path, profile: Path) -> Iterator[Chromium]:
    assert CHROMIUM is not None, "Chromium is not installed, though CI needs it"
    with Chromium(CHROMIUM, profile) as browser:
        browser.open(path)
        yield browser


@pytest.fixture(scope="module")
def page(path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """The page in a browser, as it is opened; no test does to it what the browser would tell of."""
    with browser_with(path, tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(scope="module")
def victim(path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """The page in a browser, for tests that break it and open it again."""
    with browser_with(path, tmp_path_factory.mktemp("profile")) as browser:
        yield browser


def test_no_request_leaves_the_page(page: Chromium) -> None:
    requested = [request["request"]["url"].partition(":")[0] for request in page.told("Network.requestWillBeSent")]
    assert requested.count("file") == 1
    assert set(requested) <= {"file", "data", "blob"}


def test_the_console_says_nothing(page: Chromium) -> None:
    assert page.told("Log.entryAdded") == []
    assert page.told("Runtime.consoleAPICalled") == []
    assert page.told("Runtime.exceptionThrown") == []


def test_the_charts_are_drawn(page: Chromium) -> None:
    drawn = page.evaluate(
        "[...document.querySelectorAll('.js-plotly-plot')].map(plot => [plot.dataset.figure, "
        "plot.querySelectorAll('.scatterlayer .trace').length, plot.querySelectorAll('.scatterlayer path').length])"
    )
    traces = {name: (traces, paths) for name, traces, paths in drawn}
    assert list(traces) == ["train-course", "train-spread", "train-ranks"]
    assert traces["train-course"][0] == 6  # five phases and the slowest of each group
    assert traces["train-spread"][0] == 2 * (6 + 1 + len(HOSTILE_NAMES))
    assert traces["train-ranks"][0] == 6
    assert all(paths >= traces for traces, paths in traces.values())


def test_every_chart_fills_its_place(page: Chromium) -> None:
    sizes = page.evaluate(
        "[...document.querySelectorAll('.js-plotly-plot .main-svg')].map(s => [s.clientWidth, s.clientHeight])"
    )
    assert sizes
    assert all(width > 900 and height > 200 for width, height in sizes)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_a_name_runs_nothing_and_is_shown_as_it_is(page: Chromium) -> None:
    assert page.told("Page.javascriptDialogOpening") == []
    assert page.evaluate("document.images.length") == 0
    assert page.evaluate("document.querySelectorAll('main script, main a[href]').length") == 0
    name = "<img src=x onerror=alert(1)>"
    assert page.evaluate(f"[...document.querySelectorAll('bdi')].some(e => e.textContent === {name!r})")
    labels = page.evaluate("[...document.querySelectorAll('.ytick text')].map(e => e.textContent.trim())")
    assert name in labels
    assert "<b>bold</b><br><a href='https://example.org'>link</a>" in labels


def test_no_button_sends_a_chart_anywhere(page: Chromium) -> None:
    titles = page.evaluate("[...document.querySelectorAll('.modebar-btn')].map(e => e.getAttribute('data-title'))")
    found = {title.lower() for title in titles}
    assert found == {"download plot as a png", "zoom", "pan", "zoom in", "zoom out", "reset axes"}
    assert page.evaluate("document.querySelectorAll('.modebar-btn--logo, main a[href]').length") == 0


def test_the_page_follows_a_dark_scheme(page: Chromium) -> None:
    def colours() -> list[str]:
        found: list[str] = page.evaluate(
            "[getComputedStyle(document.body).backgroundColor, "
            "getComputedStyle(document.querySelector('.ytick text')).fill]"
        )
        return found

    seen = []
    for scheme in ("light", "dark"):
        page.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        seen.append(colours())
    (light_ground, light_ink), (dark_ground, dark_ink) = seen
    assert light_ground != dark_ground
    assert light_ink != dark_ink


@pytest.mark.parametrize(
    ("attempt", "directive"),
    [
        ("fetch('https://example.org').catch(() => {})", "connect-src"),
        ("document.body.innerHTML = '<img src=https://example.org/x.png>'", "img-src"),
        ("document.body.innerHTML = '<b onclick=alert(1)>'; document.querySelector('b').click()", "script-src-attr"),
        (
            "document.body.append(Object.assign(document.createElement('script'), {text: 'alert(1)'}))",
            "script-src-elem",
        ),
    ],
)
def test_the_policy_stops_what_gets_past_the_escaping(
    victim: Chromium, path: Path, attempt: str, directive: str
) -> None:
    violated = victim.evaluate(
        "new Promise(done => {"
        "document.addEventListener('securitypolicyviolation', event => done(event.effectiveDirective));"
        f"{attempt} }})"
    )
    assert violated == directive
    assert victim.told("Page.javascriptDialogOpening") == []
    victim.open(path)
