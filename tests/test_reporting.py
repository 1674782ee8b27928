"""The parts of a report: units, names, the tree, text and Markdown."""

from __future__ import annotations

import builtins
import html
import io
from dataclasses import replace
from typing import Any

import pytest
from figures import device, measurement, not_measured, stage
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from rich.cells import cell_len

from lightning_timing.figures import CpuUsage, Figures, StageSummary
from lightning_timing.live_report import live_report
from lightning_timing.phases import BETWEEN_ITERATIONS, CALLBACKS, FIRST_DATA_WAIT, FORWARD, ITERATION
from lightning_timing.record import TimingOverhead
from lightning_timing.reporting.blocks import Column, Heading, Lines, Table
from lightning_timing.reporting.markdown import render_markdown
from lightning_timing.reporting.summary_blocks import summary_blocks, where_time_went
from lightning_timing.reporting.text import render
from lightning_timing.reporting.tree import tree
from lightning_timing.reporting.units import percent, plural, printable, rate, seconds
from lightning_timing.verdict_rules import Verdict

names = st.text(min_size=1, max_size=80)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        (0.0, "0 s"),
        (3e-11, "0.03 ns"),
        (5e-9, "5.00 ns"),
        (1.234e-6, "1.23 us"),
        (9.996e-4, "999.6 us"),
        (9.9999999e-4, "1.00 ms"),
        (9.9951e-3, "10.0 ms"),
        (9.994e-3, "9.99 ms"),
        (999.96, "1,000 s"),
        (0.0123, "12.3 ms"),
        (0.5, "500.0 ms"),
        (1.0, "1.00 s"),
        (75.26, "75.3 s"),
        (86400.0, "86,400 s"),
        (-0.002, "-2.00 ms"),
        (float("inf"), "inf s"),
    ],
)
def test_times_have_the_unit_that_suits_them(value: float | None, shown: str) -> None:
    assert seconds(value) == shown


def test_shares_rates_and_plurals() -> None:
    assert [percent(share) for share in (None, 0.0, 0.4236, 1.0)] == ["-", "0.0 %", "42.4 %", "100.0 %"]
    assert rate(1000, 8.0, "samples") == "125.0 samples/s"
    assert rate(1000, None, "samples") == "- samples/s"
    assert [rate(1, s, "things") for s in (8.0, 30.0, 3600.0)] == [
        "0.12 things/s",
        "0.0333 things/s",
        "0.000278 things/s",
    ]
    assert rate(0, 1.0, "things") == "0.00 things/s"
    assert [plural(count, "rank") for count in (0, 1, 1024)] == ["0 ranks", "1 rank", "1,024 ranks"]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("forward", "forward"),
        ("a b", "a b"),
        ("größe 日本 😀", "größe 日本 😀"),
        ("[red]x[/]", "[red]x[/]"),
        ("a\nb\tc", "a\\nb\\tc"),
        ("\x1b[31m", "\\x1b[31m"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("a\u2028b", "a\\u2028b"),
        ("\ud800", "\\ud800"),
        ("x" * 60, "x" * 60),
        ("x" * 61, "x" * 57 + "..."),
    ],
)
def test_names_are_shown_as_they_are_but_for_what_would_do_harm(name: str, shown: str) -> None:
    assert printable(name) == shown


@given(names)
def test_a_shown_name_is_one_short_printable_line(name: str) -> None:
    shown = printable(name)

    assert len(shown) <= 60
    assert all(char.isprintable() or char == " " for char in shown)


def test_the_tree_is_in_the_order_of_the_loop() -> None:
    figures = stage(
        forward=0.6,
        data_wait=0.2,
        callbacks=0.1,
        other=0.1,
        extra={
            "cost": measurement(0.1, whole_s=1.0, iterations=100, parent="matcher"),
            FIRST_DATA_WAIT: measurement(0.1, whole_s=None, iterations=1, parent=None),
            "matcher": measurement(0.2, whole_s=1.0, iterations=100, parent=FORWARD),
            f"{CALLBACKS}/Saver": measurement(0.1, whole_s=1.0, iterations=100, parent=CALLBACKS),
            "mine": measurement(0.2, whole_s=1.0, iterations=100, parent=None),
        },
    )

    assert [(node.depth, node.label) for node in tree(figures.measurements)] == [
        (0, "iteration"),
        (1, "data_wait"),
        (1, "forward"),
        (2, "matcher"),
        (3, "cost"),
        (1, "callbacks"),
        (2, "Saver"),
        (1, "other"),
        (0, "first_data_wait"),
        (0, "mine"),
    ]


@given(st.dictionaries(names, names, max_size=8))
def test_no_tree_of_any_shape_loses_a_measurement(parents: dict[str, str]) -> None:
    """Parents that are missing, or in a circle, come from a file from elsewhere."""
    nodes = tree({name: not_measured(parent) for name, parent in parents.items()})

    assert sorted(node.name for node in nodes) == sorted(parents)


def test_a_deep_tree_needs_no_deep_stack() -> None:
    chain = {str(number): not_measured(str(number - 1) if number else None) for number in range(50_000)}

    assert tree(chain)[-1].depth == 49_999


STAGE = stage(
    data_wait=0.42,
    forward=0.58,
    samples=3200,
    extra={
        "matcher": measurement(0.3, whole_s=1.0, iterations=100, parent=FORWARD, count=200, mean_s=0.0015),
        "unseen": not_measured(),
    },
)


def lines_of(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_a_summary_as_text() -> None:
    blocks = summary_blocks(
        {"train": STAGE},
        {"complete_run": 12.3, "setup": None},
        CpuUsage("iteration", 180.0, 60.0, 0.9),
        Verdict("input-bound", "data_wait takes 42 %", "more workers"),
        TimingOverhead(seconds=0.001, share=0.0005),
    )
    text = render(blocks, width=140)

    assert lines_of(text) == [
        *lines_of("verdict: input-bound: data_wait takes 42 %"),
        *lines_of("next: more workers"),
        *lines_of("where 1.00 s went, warm-up not counted: train: iterations 1.00 s (100.0 %)"),
        [],
        *lines_of("train: 100 iterations (10 of warm-up not counted), 100.0 iterations/s, 3,200 samples/s"),
        ["measurement", "share", "per", "iteration", "mean", "p50", "p95", "p99", "max", "count"],
        *lines_of("iteration 100.0 % 10.0 ms 10.0 ms 10.0 ms 10.0 ms 10.0 ms 10.0 ms 100"),
        *lines_of("data_wait  42.0 % 4.20 ms 4.20 ms 4.20 ms 4.20 ms 4.20 ms 4.20 ms 100"),
        *lines_of("forward    58.0 % 5.80 ms 5.80 ms 5.80 ms 5.80 ms 5.80 ms 5.80 ms 100"),
        *lines_of("matcher    30.0 % 3.00 ms 1.50 ms 3.00 ms 3.00 ms 3.00 ms 3.00 ms 200"),
        *lines_of("not measured (no interval that counts): unseen"),
        *lines_of(
            'Host time. "mean" to "max" are per interval; '
            '"per iteration" is the total over all iterations, by their number.'
        ),
        [],
        ["one-time", "measurements"],
        ["measurement", "time"],
        ["complete_run", "12.3", "s"],
        ["setup", "running"],
        [],
        *lines_of(
            "CPU during iteration: 1.80 cores in use by this process and its children (90 % of its cores), "
            "the machine 60 % busy with all that runs on it"
        ),
        *lines_of("timing itself: 1.00 ms, 0.1 % of the time of the iterations"),
    ]
    assert text.isascii()
    assert text.splitlines()[7].startswith("  data_wait")
    assert text.splitlines()[9].startswith("    matcher")


def test_what_lies_outside_of_the_iterations_has_its_total_instead_of_a_share() -> None:
    saving = f"{BETWEEN_ITERATIONS}/{CALLBACKS}"
    extra = {
        FIRST_DATA_WAIT: measurement(9.2, whole_s=None, iterations=3, parent=None),
        saving: measurement(0.6, whole_s=None, iterations=3, parent=None),
        f"{saving}/Saver": measurement(0.6, whole_s=None, iterations=3, parent=saving),
    }
    text = render(summary_blocks({"train": stage(forward=1.8, extra=extra)}, {}), width=140)

    went = "train: iterations 1.80 s (15.5 %), first_data_wait 9.20 s (79.3 %), callbacks 600.0 ms (5.2 %)"
    assert lines_of(text)[:2] == [*lines_of(f"where 11.6 s went, warm-up not counted: {went}"), []]
    assert lines_of(text.partition("outside of")[2])[:4] == [
        *lines_of("the iterations total mean p50 p95 p99 max count"),
        *lines_of("first_data_wait 9.20 s 3.07 s 3.07 s 3.07 s 3.07 s 3.07 s 3"),
        *lines_of("between_iterations/callbacks 600.0 ms 200.0 ms 200.0 ms 200.0 ms 200.0 ms 200.0 ms 3"),
        *lines_of("Saver 600.0 ms 200.0 ms 200.0 ms 200.0 ms 200.0 ms 200.0 ms 3"),
    ]


def test_the_warm_up_has_its_part_of_the_time_where_that_is_known() -> None:
    """As have the waits of its epochs: of four, of which the iterations of two count, each counts."""
    waits = {FIRST_DATA_WAIT: measurement(0.08, whole_s=None, iterations=4, parent=None)}
    train = replace(stage(iterations=10, forward=0.2, extra=waits), warmup_s=0.2)
    validate = replace(stage(iterations=10, forward=0.02), warmup_iterations=1, warmup_s=0.001)
    not_known = replace(validate, warmup_s=None)

    of_train = "train: iterations 200.0 ms (41.7 %), warm-up 200.0 ms (41.7 %), first_data_wait 80.0 ms (16.7 %)"
    assert where_time_went({"train": train}) == f"where 480.0 ms went: {of_train}"
    both = where_time_went({"train": train, "validate": validate}) or ""
    assert both.startswith("where 501.0 ms went: train: iterations 200.0 ms (39.9 %), warm-up 200.0 ms (39.9 %)")
    assert both.endswith("; validate: iterations 20.0 ms (4.0 %)")  # a part this small is not named
    assert (where_time_went({"train": train, "validate": not_known}) or "").startswith(
        "where 500.0 ms went, warm-up not counted: train: iterations 200.0 ms"
    )
    no_warmup = replace(not_known, warmup_iterations=0)
    assert where_time_went({"train": no_warmup}) == "where 20.0 ms went: train: iterations 20.0 ms (100.0 %)"


def test_too_few_iterations_for_a_verdict_are_said() -> None:
    text = render(summary_blocks({"train": stage(iterations=5, forward=1.0)}, {}))

    assert text.startswith("too few iterations for a verdict: 5 after warm-up, it takes 10\nwhere 1.00 s went")


def test_samples_a_second_of_one_rank_are_said_to_be() -> None:
    figures = Figures({"train": STAGE}, {}, None, rank=0, world_size=2)

    assert ", 3,200 samples/s on rank 0 of 2\n" in live_report(figures)
    assert ", 3,200 samples/s\n" in live_report(replace(figures, world_size=1))


def test_the_sanity_check_is_left_out_of_the_tables_unless_it_is_all_there_is() -> None:
    sanity = stage(iterations=1, forward=1.0)

    assert "\nsanity_check: 1 iteration" not in render(summary_blocks({"train": STAGE, "sanity_check": sanity}, {}))
    assert "\nsanity_check: 1 iteration" in render(summary_blocks({"sanity_check": sanity}, {}))


def test_nothing_measured() -> None:
    assert render(summary_blocks({}, {})) == "nothing measured yet\n"


def test_what_is_unknown_is_a_dash_or_left_out() -> None:
    blocks = summary_blocks(
        {"train": StageSummary(0, 3, {FIRST_DATA_WAIT: measurement(1.0, whole_s=None, iterations=1, parent=None)})},
        {},
        CpuUsage("iteration", None, None, None),
    )
    text = render(blocks, width=120)

    assert "train: 0 iterations (3 of warm-up not counted)\n" in text
    assert lines_of(text)[2][:3] == ["first_data_wait", "1.00", "s"]
    assert "CPU during iteration: unknown\n" in text


def test_a_cpu_usage_of_what_was_never_measured_says_so() -> None:
    of_forward, of_typo = (
        render(summary_blocks({"train": STAGE}, {}, CpuUsage(name, None, None, None))) for name in ("forward", "forwrd")
    )
    assert "CPU during forward: unknown\n" in of_forward
    assert "CPU during forwrd: unknown: nothing of that name was measured after warm-up\n" in of_typo


def test_a_stage_that_is_all_warm_up_says_what_to_set() -> None:
    hint = "all were warm-up: set num_warmup_iters lower\n"

    assert hint in render(summary_blocks({"train": StageSummary(0, 3, {})}, {}))
    assert hint not in render(summary_blocks({"train": StageSummary(0, 0, {})}, {}))
    assert hint not in render(summary_blocks({"train": StageSummary(1, 3, {})}, {}))
    assert hint not in render(summary_blocks({"sanity_check": StageSummary(0, 2, {})}, {}))  # it is never longer


def test_what_lies_in_no_phase_stands_beside_the_iteration() -> None:
    """The phases below it add up to it, and a span across several of them is no further part."""
    across = measurement(0.9, whole_s=1.0, iterations=100)
    part = measurement(0.4, whole_s=1.0, iterations=100, parent="update")
    figures = replace(STAGE, measurements={**STAGE.measurements, "update": across, "loss": part})

    lines = render(summary_blocks({"train": figures}, {}), width=160).splitlines()

    names = [line[: line.find("  ", 6)] for line in lines[4 : 4 + len(figures.measurements) - 1]]
    assert names == ["iteration", "  data_wait", "  forward", "    matcher", "update", "  loss"]


def test_device_columns_are_there_where_device_time_is_known() -> None:
    forward = replace(STAGE.measurements[FORWARD], device=device(0.5, 100))
    timed = replace(STAGE, measurements={**STAGE.measurements, FORWARD: forward})

    without, with_device = (render(summary_blocks({"train": figures}, {}), width=160) for figures in (STAGE, timed))

    assert "device" not in without
    assert lines_of(with_device)[3][-6:] == ["device", "mean", "device", "p50", "device", "p95"]
    assert lines_of(with_device)[6][-6:] == ["5.00", "ms"] * 3
    assert lines_of(with_device)[5][-3:] == ["-"] * 3


def test_the_pace_is_the_devices_where_the_host_only_enqueues() -> None:
    """The host takes 10 ms an iteration, the device 50."""
    timed = replace(device(5.0, 100), overlapped_s=0.97)
    iteration = replace(STAGE.measurements[ITERATION], device=timed)
    figures = replace(STAGE, measurements={**STAGE.measurements, ITERATION: iteration}, host_ahead_s=0.2)

    title = render(summary_blocks({"train": figures}, {}), width=200).splitlines()[2]

    assert title == (
        "train: 100 iterations (10 of warm-up not counted), 20.0 iterations/s, 640.0 samples/s, "
        "the device has work for at least 97 % of the time, host ahead of the device by 200.0 ms at the end"
    )


def test_skipped_batches_are_said() -> None:
    assert "4 batches skipped" in render(summary_blocks({"train": replace(STAGE, skipped_batches=4)}, {}), width=120)


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
@pytest.mark.parametrize("color", [False, True])
def test_no_line_is_wider_than_asked_for_and_no_number_cut(width: int, color: bool) -> None:
    table = Table(
        (Column("name", is_number=False), *(Column(f"number {i}", importance=i) for i in range(6))),
        (("a long name that has to be folded where it does not fit", *["123.45 ms"] * 6), ("日本" * 20, *["1"] * 6)),
    )
    text = render([table], width=width, color=color)
    plain = "".join(part.partition("m")[2] if i else part for i, part in enumerate(text.split("\x1b[")))

    assert max(map(cell_len, plain.splitlines())) <= width
    assert "number 5" in plain
    shown = plain.partition("columns left out")[0]
    assert shown.count("123.45 ms") == shown.count("number ")


def test_columns_left_out_are_named_below_their_table() -> None:
    table = Table(
        (Column("name", is_number=False), Column("much", importance=3), Column("little"), Column("less", importance=0)),
        (("x", "1" * 20, "2" * 20, "3" * 20),),
    )

    assert render([table], width=60).endswith(
        "columns left out at 60 characters: less (a wider terminal\nshows them)\n"
    )
    assert "columns left out at 40 characters: little, less (--json" in " ".join(
        render([table], width=40, all_columns="--json").split()
    )
    assert "left out" not in render([table], width=100)


class ZMQInteractiveShell:
    """By this name of a shell rich knows a notebook."""


@pytest.fixture
def shown_in_cell(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Makes this process a notebook to rich; what rich shows in the cell by itself."""
    shown: list[Any] = []
    monkeypatch.setattr(builtins, "get_ipython", ZMQInteractiveShell, raising=False)
    monkeypatch.setattr("rich.jupyter.display", lambda *parts: shown.append(parts))
    monkeypatch.setenv("COLUMNS", "70")
    monkeypatch.delenv("JUPYTER_COLUMNS", raising=False)
    return shown


LONG_LINE = Lines(("word " * 100,))


def test_in_a_notebook_nothing_is_shown_beside_the_text(shown_in_cell: list[Any]) -> None:
    assert render([Heading("title"), LONG_LINE]).startswith("title\nword word")
    assert shown_in_cell == []


@pytest.mark.parametrize(("columns", "width"), [(None, 115), ("90", 90)])
def test_in_a_notebook_it_is_as_wide_as_a_rich_progress_bar_prints(
    columns: str | None, width: int, shown_in_cell: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    if columns is not None:
        monkeypatch.setenv("JUPYTER_COLUMNS", columns)
    longest = max(map(len, render([LONG_LINE]).splitlines()))
    assert width - len("word ") < longest <= width
    assert len(render([LONG_LINE], width=50).splitlines()[0]) == len("word " * 10) - 1


def test_colors_are_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert "\x1b[" in render([Heading("title")], color=True)
    monkeypatch.setenv("TERM", "dumb")
    assert render([Heading("title")], color=True) == "title\n"
    assert render([Heading("title"), Lines(("line",))], color=False) == "title\nline\n"


@pytest.mark.parametrize(("encoding", "has_lines"), [("utf-8", True), ("latin-1", False), ("ascii", False)])
def test_lines_are_drawn_where_they_can_be_printed(
    encoding: str, has_lines: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), encoding=encoding))
    table = Table((Column("name", is_number=False), Column("time")), (("a", "1 ms"),))

    assert render([table], color=True).isascii() is not has_lines


def test_markup_in_names_is_shown_and_not_obeyed() -> None:
    named = replace(STAGE, measurements={"[red]x[/red] :smile:": STAGE.measurements[ITERATION]})

    assert "[red]x[/red] :smile:" in render(summary_blocks({"train": named}, {}), width=120, color=True)


def test_markdown() -> None:
    table = Table((Column("name", is_number=False), Column("time")), (("  a_b", "1 ms"), ("c|d", "-")))

    assert render_markdown([Heading("train"), table, Lines(("one", "", "*two*"))]) == (
        "### train\n\n| name | time |\n| --- | ---: |\n| &emsp;a\\_b | 1 ms |\n| c\\|d | - |\n\n- one\n- \\*two\\*\n"
    )


fragments = st.sampled_from([*"ab|*_`<>[]()!\\&~:/#-+.1 ", "&lt;", "<b>", "http://x.y", "![](x)"])


@given(st.lists(fragments, min_size=1, max_size=12).map("".join).map(str.strip).filter(bool))
def test_any_name_comes_through_markdown_as_it_is(name: str) -> None:
    table = Table((Column("name", is_number=False),), ((name,),))
    page = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(render_markdown([table]))

    assert f"<td>{html.escape(name)}</td>" in page
