from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from pages import HOSTILE_NAMES, Page, page_of, write_run
from programs import output_of, run_program
from records import MS, header, outside, phases, rows, summary_of, write_lines, write_summary

from lightning_timing.figures import DeviceSummary, StageSummary
from lightning_timing.phases import PHASES
from lightning_timing.range_attributes import PHASE_COLORS
from lightning_timing.record import TimingOverhead
from lightning_timing.reporting.markup import Markup, join, tag
from lightning_timing.reporting.palette import OTHER_COLOR, phase_color
from lightning_timing.reporting.units import printable

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    return page_of(write_run(tmp_path_factory.mktemp("run"), names=("matcher",), ranks=2))


def numbers(array: object) -> list[float]:
    """An array of a figure, which plotly writes as bytes from version 6 on."""
    if isinstance(array, dict):
        values: list[float] = np.frombuffer(base64.b64decode(array["bdata"]), dtype=array["dtype"]).tolist()
        return values
    assert isinstance(array, list)
    return array


@pytest.mark.parametrize(
    "shown",
    [
        "completed",
        "Compute-bound the model's own work takes 84 % of the iterations' time, backward 53 %. Next: look into",
        "Where 2.27 s went, warm-up not counted: train: iterations 2.27 s (100.0 %).",
        "figures of rank 0 of 2 torch 2.13.0",
        "36.0 ms median iteration 39.9 ms 95th percentile 26.4 iterations/s 844.3 samples/s 60 iterations",
        "(warm-up: 10)",
        "data_wait 10.3 % forward 31.7 % backward 52.8 % callbacks 2.6 % other 2.6 %",
        "19 0 19 19 76.0 ms 2.11 x data_wait took 40.0 ms, usually 2.00 ms",
        "4 0 4 4 38.0 ms 1.06 x nothing",
        "data_wait 10.3 % 234.0 ms 3.90 ms 3.90 ms 2.00 ms 3.90 ms 40.0 ms 40.0 ms 60",
        "matcher 7.9 %",
        "callbacks 2.6 % 60.0 ms 1.00 ms 1.00 ms 1.00 ms 1.00 ms 1.00 ms 1.00 ms 60 EMA 2.6 %",
        "2 ranks",
        "No rank holds the others up.",
        "During iteration. 3.10 cores by this process and its children, such as DataLoader workers "
        "77.5 % of the cores that it may use 62.0 % of the machine, by everyone",
        "complete_run 62.5 s still open running",
        "Environment torch 2.13.0 Settings num_workers 2",
    ],
)
def test_a_page_shows(page: Page, shown: str) -> None:
    assert shown in page.text


def test_the_phases_are_stacked_over_the_iterations_in_the_order_of_the_loop(page: Page) -> None:
    stacked = page.figures["train-course"]["data"]
    assert [trace["name"] for trace in stacked] == ["data_wait", "forward", "backward", "callbacks", "other"]
    assert [trace["fillcolor"] for trace in stacked] == [phase_color(trace["name"]) for trace in stacked]
    assert len({trace["stackgroup"] for trace in stacked}) == 1
    tops = np.sum([numbers(trace["y"]) for trace in stacked], axis=0)
    expected = [(40 if i % 20 == 19 else 2) + 10 + i % 5 + 20 + 1 + 1 for i in range(60)]
    assert tops[:-1] == pytest.approx(np.array(expected) / 1000)
    assert numbers(stacked[0]["x"]) == list(range(61))


def test_every_measurement_has_its_distribution_with_its_percentiles(page: Page) -> None:
    figure = page.figures["train-spread"]
    names = ["iteration", "data_wait", "forward", "matcher", "backward", "callbacks", "callbacks/EMA", "other"]
    assert [text.strip() for text in reversed(figure["layout"]["yaxis"]["ticktext"])] == names
    marks = {trace["name"]: trace for trace in figure["data"] if trace["mode"] == "markers"}
    assert list(reversed(marks)) == names
    assert numbers(marks["data_wait"]["x"]) == pytest.approx(np.percentile([0.002] * 57 + [0.04] * 3, [50, 95, 99]))


def test_ranks_are_shown_phase_by_phase(page: Page) -> None:
    figure = page.figures["train-ranks"]
    assert [trace["name"] for trace in reversed(figure["data"])] == [
        *("iteration", "data_wait", "forward", "backward", "callbacks", "other")
    ]


def test_a_chart_has_its_place_and_its_data(page: Page) -> None:
    places = [attributes["data-figure"] for _, attributes in page.elements if attributes.get("class") == "chart"]
    assert places == ["train-course", "train-spread", "train-ranks"] == list(page.figures)


def test_nothing_may_run_but_the_two_scripts_and_nothing_may_be_loaded(page: Page) -> None:
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in page.scripts]
    assert len(hashes) == 2
    rules = dict(rule.strip().split(" ", 1) for rule in page.policy.split(";"))
    assert rules == {
        "default-src": "'none'",
        "script-src": " ".join(f"'sha256-{digest}'" for digest in hashes),
        "style-src": "'unsafe-inline'",
        "img-src": "data: blob:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }


def test_nothing_refers_to_anything_outside_the_page(page: Page) -> None:
    references = [attributes[key] for _, attributes in page.elements for key in ("src", "href") if key in attributes]
    assert references == ["data:,"]
    style = page.html.partition("<style>")[2].partition("</style>")[0]
    assert "@media" in style
    assert "url(" not in style
    assert "@import" not in style


def test_names_are_text_whatever_they_say(tmp_path: Path) -> None:
    plain = page_of(write_run(tmp_path / "plain", names=tuple(f"name {i}" for i in range(len(HOSTILE_NAMES)))))
    hostile = page_of(write_run(tmp_path / "hostile", names=HOSTILE_NAMES))
    assert [name for name, _ in hostile.elements] == [name for name, _ in plain.elements]
    assert {key for _, found in hostile.elements for key in found} == {
        key for _, found in plain.elements for key in found
    }
    assert hostile.scripts == plain.scripts
    for name in HOSTILE_NAMES:
        assert " ".join(printable(name).split()) in hostile.text


def test_names_in_charts_are_neither_markup_nor_templates_to_plotly(tmp_path: Path) -> None:
    figure = page_of(write_run(tmp_path, names=HOSTILE_NAMES)).figures["train-spread"]
    labels = figure["layout"]["yaxis"]["ticktext"] + [trace["name"] for trace in figure["data"]]
    assert "&lt;img src=x onerror=alert(1)&gt;" in labels
    assert not any("<" in label for label in labels)
    assert {trace.get("hovertemplate") for trace in figure["data"]} == {None, "%{text}"}


def test_no_control_byte_is_in_a_page(tmp_path: Path) -> None:
    page = page_of(write_run(tmp_path, names=HOSTILE_NAMES))
    shown = page.html.replace(max(page.scripts, key=len), "")
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]", shown)


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_no_control_byte_of_a_name_is_in_a_verdict(name: str, tmp_path: Path) -> None:
    intervals = [("forward", 0, 10 * MS), (name, 0, 9 * MS)]
    run_dir = write_lines(
        tmp_path, [header(), *rows([phases(forward=10 * MS) | {name: 9 * MS}] * 20, intervals=intervals)]
    )
    page = page_of(run_dir)
    shown = page.html.replace(max(page.scripts, key=len), "")
    assert " in forward: put spans into it" in page.text
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]", shown)


def test_values_of_the_environment_are_shown_whatever_they_are(tmp_path: Path) -> None:
    lines = [header(), *rows([phases(forward=MS)] * 20)]
    environment = {"a": {"b": {"c": {"d": {"e": 1}}}}, "list": [1, [2], None], "<i>": True, "none": None}
    write_summary(write_lines(tmp_path, lines), summary_of(lines, environment=environment))
    assert "Environment a.b.c.d ... list 1, ..., - <i> True none -" in page_of(tmp_path).text


def test_a_page_stays_small_however_long_the_run(tmp_path: Path) -> None:
    names = tuple(f"measurement {number}" for number in range(900))
    short = page_of(write_run(tmp_path / "short", iterations=100))
    wide = page_of(write_run(tmp_path / "wide", iterations=20, names=names))
    long = page_of(write_run(tmp_path / "long", iterations=20_000))
    assert "and 601 shorter measurements" in wide.text
    assert "backward 52.8 % 400.0 ms 20.0 ms" in wide.text
    assert max(short.own_size, wide.own_size, long.own_size) < 1_000_000
    assert len(numbers(long.figures["train-course"]["data"][0]["x"])) == 401


def test_a_long_run_is_shown_in_groups_with_the_slowest_of_each(tmp_path: Path) -> None:
    page = page_of(write_run(tmp_path, iterations=1000))
    assert "Each step is the mean of 3 iterations." in page.text
    *stacked, slowest = page.figures["train-course"]["data"]
    assert slowest["name"] == "slowest of 3"
    assert numbers(stacked[0]["y"])[6] == pytest.approx((2 + 40 + 2) / 3000)
    assert numbers(slowest["y"])[6] == pytest.approx(0.040 + 0.014 + 0.022)


def test_a_killed_run_says_that_its_figures_are_rebuilt(tmp_path: Path) -> None:
    wait = outside("first_data_wait", 700 * MS, start_ns=1_200_000_000)
    page = page_of(write_lines(tmp_path, [header(), wait, *rows([phases(forward=MS)] * 20)]))
    assert "killed, or still running" in page.text
    assert "rebuilt from the rows" in page.text
    assert "no end line" not in page.text  # which would say it twice
    assert "first_data_wait" in page.text


def test_a_summary_without_rows_still_makes_a_page(tmp_path: Path) -> None:
    page = page_of(write_summary(tmp_path, summary_of(rows([phases(forward=MS)] * 20))))
    assert "The mean iteration" in page.text
    assert page.figures == {}


def test_a_run_that_measured_nothing_makes_a_page(tmp_path: Path) -> None:
    page = page_of(write_lines(tmp_path, [header()]))
    assert "No iteration was measured." in page.text
    assert page.figures == {}


def test_iterations_that_took_no_time_make_a_page_without_charts(tmp_path: Path) -> None:
    page = page_of(write_lines(tmp_path, [header(), *rows([phases(forward=0)] * 3)]))
    assert "All measurements" in page.text
    assert page.figures == {}


def test_stages_come_in_the_order_of_a_run(tmp_path: Path) -> None:
    lines = [
        header(),
        *(r for stage in ("test", "train", "validate") for r in rows([phases(forward=MS)] * 3, stage=stage)),
    ]
    page = page_of(write_lines(tmp_path, lines))
    assert list(page.figures) == [f"{s}-{c}" for s in ("train", "validate", "test") for c in ("course", "spread")]


def test_device_time_has_columns_where_it_is_known(tmp_path: Path) -> None:
    summary = summary_of(rows([phases(forward=8 * MS, backward=2 * MS)] * 20))
    stage = summary.stages["train"]
    forward = replace(stage.measurements["forward"], device=DeviceSummary(20, 0, 0.12, 0.006, 0.005, 0.009))
    iteration = replace(stage.measurements["iteration"], device=DeviceSummary(20, 0, 0.2, 0.01, 0.01, 0.01, 0.15))
    timed = replace(stage, measurements={**stage.measurements, "forward": forward, "iteration": iteration})
    page = page_of(write_summary(tmp_path, replace(summary, stages={"train": timed})))
    assert "75.0 % of the time the device has work, at least" in page.text
    assert "count device mean device p50 device p95" in page.text
    assert "8.00 ms 20 6.00 ms 5.00 ms 9.00 ms backward" in page.text
    assert "2.00 ms 20 - - - other" in page.text


def test_skipped_batches_and_the_cost_of_timing_are_shown(tmp_path: Path) -> None:
    summary = summary_of(rows([phases(forward=MS)] * 20), timing_overhead=TimingOverhead(seconds=0.0002, share=0.01))
    stage = replace(summary.stages["train"], skipped_batches=3)
    page = page_of(write_summary(tmp_path, replace(summary, stages={"train": stage})))
    assert "3 batches skipped" in page.text
    assert "cost of the timing itself 200.0 us (1.0 %)" in page.text


def test_what_lies_between_the_iterations_is_in_the_headline_and_has_a_total(tmp_path: Path) -> None:
    waits = [outside("first_data_wait", 3_000 * MS, start_ns=0)] * 3
    page = page_of(write_lines(tmp_path, [header(), *rows([phases(forward=100 * MS)] * 10), *waits]))

    assert "Epoch-start-heavy waiting for an epoch's first batch takes 90 % of the measured time." in page.text
    assert "train: iterations 1.00 s (10.0 %), first_data_wait 9.00 s (90.0 %)." in page.text
    assert "first_data_wait - 9.00 s - 3.00 s" in page.text


def test_a_stage_of_hardly_any_iterations_is_only_named(tmp_path: Path) -> None:
    sanity = rows([phases(forward=MS)] * 2, stage="sanity_check")
    page = page_of(write_lines(tmp_path / "both", [header(), *rows([phases(forward=MS)] * 20), *sanity]))
    alone = page_of(write_lines(tmp_path / "alone", [header(), *sanity]))

    assert list(page.figures) == ["train-course", "train-spread"]
    assert "Left out, with fewer than 3 iterations: sanity_check (2)." in page.text
    assert list(alone.figures) == ["sanity_check-course", "sanity_check-spread"]


def test_the_page_does_not_send_its_reader_to_itself(tmp_path: Path) -> None:
    uneven = [phases(forward=(30 if number % 10 == 0 else 3) * MS) for number in range(100)]
    page = page_of(write_lines(tmp_path, [header(), *rows(uneven)]))

    assert "see what sets the slowest iterations apart (below): batches of unequal size" in page.text
    assert "--html" not in page.text


def test_a_stage_that_only_warmed_up_says_so(tmp_path: Path) -> None:
    stage = StageSummary(iterations=0, warmup_iterations=4, measurements={})
    page = page_of(write_summary(tmp_path, summary_of([], stages={"train": stage})))
    assert "Only warm-up: 4 iterations." in page.text


def test_the_time_of_the_warm_up_is_shown_where_it_is_known(tmp_path: Path) -> None:
    lines = [header(), *rows([phases(forward=10 * MS)] * 20)]
    summary = summary_of(lines)
    known = replace(summary, stages={"train": replace(summary.stages["train"], warmup_s=0.3)})

    page = page_of(write_summary(write_lines(tmp_path, lines), known))
    assert "Where 500.0 ms went: train: iterations 200.0 ms (40.0 %), warm-up 300.0 ms (60.0 %)." in page.text


@pytest.mark.parametrize(("slowest_ms", "says_so"), [(31, False), (32, True), (300, True)])
def test_an_iteration_that_the_chart_cuts_off_is_said_to_be(tmp_path: Path, slowest_ms: int, says_so: bool) -> None:
    run_dir = write_lines(
        tmp_path, [header(), *rows([phases(forward=10 * MS)] * 99 + [phases(forward=slowest_ms * MS)])]
    )
    page = page_of(run_dir)

    assert (f"The slowest iteration, of {slowest_ms}.0 ms, is cut off." in page.text) is says_so
    top_s = page.figures["train-course"]["layout"]["yaxis"]["range"][1]
    assert (slowest_ms / 1000 > top_s) is says_so


def test_epochs_are_marked_in_the_chart(tmp_path: Path) -> None:
    found = [replace(r, epoch=r.batch_idx // 10) for r in rows([phases(forward=MS)] * 30)]
    figure = page_of(write_lines(tmp_path, [header(), *found])).figures["train-course"]
    marks = [(mark["text"], mark["x"]) for mark in figure["layout"]["annotations"]]
    assert marks == [("epoch 1", 10), ("epoch 2", 20)]


def test_a_phase_has_the_colour_of_its_range() -> None:
    assert phase_color("forward") == f"#{PHASE_COLORS['forward'] & 0xFFFFFF:06x}"
    assert phase_color("callbacks/EMA") == phase_color("callbacks")
    assert phase_color("other") == OTHER_COLOR
    assert phase_color("matcher") == phase_color("anything else")
    assert len({phase_color(phase) for phase in PHASES}) == len(PHASES)


def test_text_in_an_element_is_escaped_and_markup_is_not() -> None:
    inner = tag("b", "1 < 2 & '3'", class_="x", data_y='"')
    assert inner == '<b class="x" data-y="&quot;">1 &lt; 2 &amp; &#x27;3&#x27;</b>'
    assert tag("p", inner, "<i>") == f"<p>{inner}&lt;i&gt;</p>"
    assert join([Markup("<hr>"), "<hr>"]) == "<hr>&lt;hr&gt;"


def test_plotly_is_imported_for_a_page_only(tmp_path: Path) -> None:
    run_dir = write_run(tmp_path)
    code = """
        import sys
        from lightning_timing.cli.main import main
        print(main(["report", sys.argv[1]]), "plotly" in sys.modules)
        print(main(["report", sys.argv[1], "--html", "page.html"]), "plotly" in sys.modules)
    """
    printed = output_of(run_program(code, tmp_path, str(run_dir))).splitlines()
    assert [line for line in printed if line.startswith("0 ")] == ["0 False", "0 True"]
