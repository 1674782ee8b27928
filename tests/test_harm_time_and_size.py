"""Clocks that stand still or are set back, runs without end, names without end: right figures in bounded memory."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
from known_cost import FakeClock
from ledger_records import headers, lightning, lines, rows, stopwatch, summary
from pages import HOSTILE_NAMES, page_of
from records import load_run
from tiny_training import fit_tiny, spends, tiny_loader, tiny_module
from whole_suite import Suite, our_warnings

from lightning_timing import NVTXRangeWrapper, Stopwatch, span
from lightning_timing.cli.main import main
from lightning_timing.clocks import ClockPairing
from lightning_timing.measured_iterations import IterationLabel
from lightning_timing.names import MAX_MEASUREMENTS, MAX_NAME_LENGTH
from lightning_timing.phase_recorder import PhaseRecorder
from lightning_timing.range_attributes import MAX_NAMES
from lightning_timing.recorder_settings import RecorderSettings
from lightning_timing.stopwatch import STOPWATCH

if TYPE_CHECKING:
    from pathlib import Path

HOUR_NS = 3600 * 10**9


def step_with(*names: str) -> Any:
    """A training step with a span of each name in it."""

    def step(self: Any, batch: Any, *_: Any) -> Any:
        for name in names:
            with span(name):
                pass
        return self.layer(batch[0]).sum()

    return step


# ---- time ----


def test_a_clock_that_stands_still_makes_zeros_and_no_ratios_of_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pl = lightning()
    module = tiny_module(pl, training_step=step_with("encoder"))
    with our_warnings() as said:
        fit_tiny(pl, tmp_path, module, tiny_loader(3), tiny_loader(1), callbacks=[stopwatch(FakeClock())])

    assert said == []
    assert [set(row["ns"].values()) for row in rows(tmp_path)] == [{0}] * 3
    found = summary(tmp_path)
    for name in ("iteration", "forward", "encoder"):
        figures = found["stages"]["train"]["measurements"][name]
        assert (figures["count"], figures["mean_s"], figures["max_s"], figures["share"]) == (3, 0.0, 0.0, None)
    assert (found["verdict"], found["timing_overhead"]) == (None, None)
    assert main(["report", str(tmp_path)]) == 0
    assert main(["trace", str(tmp_path)]) == 0
    assert "train: 3 iterations" in capsys.readouterr().out


def test_one_sample_has_no_spread_and_a_comparison_says_that_it_is_too_little(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clock, pl = FakeClock(), lightning()
    module = tiny_module(pl, training_step=lambda self, batch, _: (clock.advance(10), self.layer(batch[0]).sum())[1])
    fit_tiny(pl, tmp_path, module, tiny_loader(1), callbacks=[stopwatch(clock)])

    forward = summary(tmp_path)["stages"]["train"]["measurements"]["forward"]
    assert (forward["count"], forward["std_s"]) == (1, None)
    assert {forward[figure] for figure in ("mean_s", "min_s", "max_s", "p50_s", "p95_s", "p99_s")} == {1e-8}
    capsys.readouterr()
    assert main(["compare", str(tmp_path), str(tmp_path)]) == 0
    assert "too few to compare" in capsys.readouterr().out


def test_a_wall_clock_that_is_set_back_an_hour_changes_no_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock, pl = FakeClock(), lightning()
    begin_ns = 1_700_000_000 * 10**9
    wall = iter([begin_ns, begin_ns - HOUR_NS])
    monkeypatch.setattr("lightning_timing.callbacks.run_files.pair_clocks", lambda own: ClockPairing(own(), next(wall)))
    monkeypatch.setitem(
        sys.modules["lightning_timing.record_writer"].RecordWriter.__init__.__kwdefaults__,
        "wall_clock",
        lambda: begin_ns - HOUR_NS,
    )
    module = tiny_module(pl, validation_step=spends(clock, 30))
    ours = stopwatch(clock)
    for _ in range(2):
        trainer = fit_tiny(pl, tmp_path, module, tiny_loader(2), tiny_loader(2), callbacks=[ours])
        assert trainer.current_epoch == 1

    first, _ = headers(tmp_path)
    assert [end["unix_ns"] - first["unix_ns"] for end in lines(tmp_path, "end")] == [-HOUR_NS] * 2
    assert [row["ns"]["forward"] for row in rows(tmp_path, "validate")] == [30] * 4
    assert main(["report", str(tmp_path)]) == 0
    assert main(["trace", str(tmp_path)]) == 0
    events = json.loads((tmp_path / "timing" / "trace.json").read_text())["traceEvents"]
    assert min(event["ts"] for event in events if "ts" in event) >= 0
    assert min(event["dur"] for event in events if "dur" in event) >= 0
    assert "validate: 2 iterations" in capsys.readouterr().out


@pytest.mark.slow
def test_two_million_iterations_take_no_more_memory_than_a_few_thousand() -> None:
    clock = FakeClock()
    recorder = PhaseRecorder(RecorderSettings(num_warmup_iters=0), clock, keep_intervals=True)
    handed_on = 0

    def count(_: object) -> None:
        nonlocal handed_on
        handed_on += 1

    recorder.hand_on_to(count)
    STOPWATCH._attach(recorder)
    label = IterationLabel()
    blocks = {}
    try:
        for i in range(2_000_000):
            recorder.begin_iteration()
            recorder.enter("forward")
            STOPWATCH.start_meas("encoder")
            clock.now_ns += 1000 + i % 1000
            STOPWATCH.end_meas("encoder")
            recorder.leave()
            recorder.close_iteration()
            recorder.count_iteration(label)
            if i in (20_000, 1_999_999):
                blocks[i] = sys.getallocatedblocks()
        stage = recorder.figures().stages["train"]
    finally:
        STOPWATCH.reset()

    assert handed_on == stage.iterations == 2_000_000
    for name in ("iteration", "forward", "encoder"):
        found = stage.measurements[name]
        assert (found.count, found.total_s, found.mean_s) == (2_000_000, 2.999, 1.4995e-6)
        assert (found.min_s, found.max_s) == (1e-6, 1.999e-6)
        assert found.p50_s == pytest.approx(1.4995e-6, rel=0.004)
        assert found.p99_s == pytest.approx(1.989e-6, rel=0.004)
    # A measurement may hold up to a thousand durations that are not folded in yet, here twice four of them.
    assert blocks[1_999_999] - blocks[20_000] < 10_000


# ---- names ----


def test_ten_thousand_names_are_capped_with_one_warning_for_each_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite, pl = Suite(monkeypatch), lightning()
    module = tiny_module(
        pl,
        training_step=lambda self, batch, batch_idx: step_with(
            "encoder", *(f"sample {batch_idx * 2500 + i}" for i in range(2500))
        )(self, batch),
    )
    with our_warnings() as said:
        fit_tiny(pl, tmp_path, module, tiny_loader(4), callbacks=suite.callbacks)

    assert len(said) == 2
    assert f"there are {MAX_MEASUREMENTS} different names already" in "".join(said)
    assert f"there are more than {MAX_NAMES} names" in "".join(said)
    measurements = summary(tmp_path)["stages"]["train"]["measurements"]
    assert sum(name.startswith("sample ") for name in measurements) == MAX_MEASUREMENTS - 1
    assert measurements["encoder"]["count"] == 4
    assert len(load_run(tmp_path).ranks[0].stages["train"]) == 4
    assert suite.tool.prepared < MAX_NAMES + 50
    suite.check_over(windows=1)


def test_a_name_of_100_000_characters_is_refused_with_a_short_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite, pl = Suite(monkeypatch), lightning()
    module = tiny_module(pl, training_step=step_with("x" * 100_000, "encoder"))
    with our_warnings() as said:
        fit_tiny(pl, tmp_path, module, tiny_loader(3), callbacks=suite.callbacks)

    assert len(said) == 2  # the Stopwatch's and NVTX's
    assert all(f"at most {MAX_NAME_LENGTH} characters, not 100000" in each for each in said)
    assert max(map(len, said)) < 500
    assert summary(tmp_path)["stages"]["train"]["measurements"]["encoder"]["count"] == 3
    assert (tmp_path / "timing" / "rank0.jsonl").stat().st_size < 50_000
    suite.check_over(windows=1)


@pytest.mark.parametrize("name", ["", None, 7, b"bytes", ["list"], "\ud800"], ids=repr)
def test_what_is_no_name_costs_its_own_sample_and_one_warning_for_each_part(
    name: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite, pl = Suite(monkeypatch), lightning()

    def step(self: Any, batch: Any, *_: Any) -> Any:
        Stopwatch().start_meas(name)
        NVTXRangeWrapper().range_push(name)
        NVTXRangeWrapper().range_pop()
        Stopwatch().end_meas(name)
        Stopwatch().start_one_time_measurement(name)
        Stopwatch().end_one_time_measurement(name)
        with span(name):
            pass
        return step_with("encoder")(self, batch)

    with our_warnings() as said:
        fit_tiny(pl, tmp_path, tiny_module(pl, training_step=step), tiny_loader(3), callbacks=suite.callbacks)

    assert len(said) == 2
    assert all("a name" in each for each in said)
    assert summary(tmp_path)["stages"]["train"]["measurements"]["encoder"]["count"] == 3
    assert summary(tmp_path)["one_time"] == {}
    suite.check_over(windows=1)


STRANGE_NAMES = (
    *HOSTILE_NAMES,
    "a/b/c",
    "../../../escaped",
    "/etc/passwd",
    "C:\\con",
    "\u202egnp.exe",
    "\x1b]0;title\x07\r\n",
    "日本語 \u0301\u200b",
    "👩‍👩‍👧",
    "NaN",
    "null",
    " ",
    "x" * MAX_NAME_LENGTH,
)


def test_strange_names_are_kept_exactly_and_break_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    suite, pl = Suite(monkeypatch), lightning()
    run_dir = tmp_path / "run"
    module = tiny_module(pl, training_step=step_with(*STRANGE_NAMES))
    with our_warnings() as said:
        fit_tiny(pl, run_dir, module, tiny_loader(3), callbacks=suite.callbacks)
        suite.check_over(windows=1)

    assert len(said) == 1
    assert "NVTX would cut a name at a NUL character" in said[0]
    printed = capsys.readouterr().out
    assert all(line.isprintable() for line in printed.splitlines())
    record = [json.loads(line) for line in (run_dir / "timing" / "rank0.jsonl").read_text().splitlines()]
    assert [set(STRANGE_NAMES) < line["ns"].keys() for line in record if line["kind"] == "iteration"] == [True] * 3
    assert set(STRANGE_NAMES) < summary(run_dir)["stages"]["train"]["measurements"].keys()
    assert set(STRANGE_NAMES) < load_run(run_dir).ranks[0].stages["train"].ns.keys()

    for arguments in (["report"], ["report", "--markdown"], ["report", "--json"], ["trace"]):
        assert main([*arguments, str(run_dir)]) == 0
    assert main(["report", str(run_dir), "--html", str(run_dir / "page.html")]) == 0
    drawn = json.loads((run_dir / "timing" / "trace.json").read_text())["traceEvents"]
    assert set(STRANGE_NAMES) < {event["name"] for event in drawn}
    page = page_of(run_dir)
    assert len(page.scripts) == 2
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)
    assert sorted(each.name for each in run_dir.rglob("*")) == [
        "page.html",
        "rank0.jsonl",
        "summary.json",
        "timing",
        "trace.json",
    ]
    assert [each.name for each in tmp_path.iterdir()] == ["run"]
