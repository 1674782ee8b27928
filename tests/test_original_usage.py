"""Code written for the tool that this package carries to Lightning runs here with only its import line changed."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import pytest
from fake_sink import FakeTool, attached_tool
from known_cost import FakeClock
from ledger_records import lightning, rows, stopwatch, summary
from tiny_training import fit_tiny, tiny_loader, tiny_module
from whole_suite import our_warnings

from lightning_timing import NVTXRangeWrapper, RangeMismatchError, Stopwatch, TimingError

if TYPE_CHECKING:
    from pathlib import Path

ITS_IMPORT = "from the_tool import NVTXRangeWrapper, Stopwatch"
OUR_IMPORT = "from lightning_timing import NVTXRangeWrapper, Stopwatch"

FILES = {
    "the_data.py": """
        from the_tool import NVTXRangeWrapper, Stopwatch
        from the_machine import busy

        def next_batch(index):
            Stopwatch().start_meas("load")
            busy(3 + index % 2)
            Stopwatch().end_meas("load")
            if index % 4 == 3:
                Stopwatch().start_meas("refill")
                busy(8)
                Stopwatch().end_meas("refill")
            return index
        """,
    "the_model.py": """
        from the_tool import NVTXRangeWrapper, Stopwatch
        from the_machine import busy

        stopwatch = Stopwatch()
        ranges = NVTXRangeWrapper()

        def forward(batch):
            stopwatch.set_cpu_usage_meas_name("train_step")
            stopwatch.start_meas("train_step")
            ranges.range_push("forward")
            for layer in range(2):
                ranges.range_push("layer")
                stopwatch.start_meas("layer")
                busy(5)
                stopwatch.end_meas("layer")
                ranges.range_pop("layer")
            ranges.range_pop("forward")

        def backward():
            ranges.range_push("backward")
            busy(20)
            ranges.range_pop()
            stopwatch.end_meas("train_step")
        """,
    "the_training.py": """
        import the_data
        import the_model
        from the_tool import NVTXRangeWrapper, Stopwatch
        from the_machine import busy

        def train(iterations):
            stopwatch = Stopwatch()
            stopwatch.start_one_time_measurement("complete_run")
            stopwatch.start_one_time_measurement("preparation")
            busy(100)
            stopwatch.end_one_time_measurement("preparation")
            for index in range(iterations):
                the_model.forward(the_data.next_batch(index))
                the_model.backward()
                Stopwatch().finish_iter()
            stopwatch.end_one_time_measurement("complete_run")
            print("Final:")
            stopwatch.print_eval_times()
            return stopwatch.get_num_nonwarmup_iters_measured()
        """,
}

MS = 1_000_000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """The clock of a Stopwatch that is enabled with its three arguments alone."""
    clock = FakeClock(now_ns=0)
    monkeypatch.setitem(Stopwatch.enable.__kwdefaults__, "clock", clock)
    return clock


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> FakeTool:
    return attached_tool(monkeypatch)


@pytest.fixture
def train(clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], int]]:
    """The program, of which each file has its import line changed, and nothing else."""
    for name, code in FILES.items():
        assert code.count(ITS_IMPORT) == 1
        (tmp_path / name).write_text(dedent(code).replace(ITS_IMPORT, OUR_IMPORT))
    machine = type(sys)("the_machine")
    machine.busy = lambda ms: clock.advance(ms * MS)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "the_machine", machine)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("the_training").train
    for name in FILES:
        del sys.modules[name.removesuffix(".py")]
    Stopwatch().reset()
    NVTXRangeWrapper().disable()


def test_a_program_of_several_files(train: Callable[[int], int], capsys: pytest.CaptureFixture[str]) -> None:
    Stopwatch().enable(num_warmup_iters=4, print_every_n_iters=3, do_cuda_sync=False)
    with our_warnings() as said:
        assert train(12) == 8
    figures = Stopwatch().summary()

    assert said == []
    stage = figures.stages["train"]
    assert (stage.iterations, stage.warmup_iterations) == (8, 4)
    assert {
        name: (each.count, each.mean_s, each.per_iteration_s, each.total_s) for name, each in stage.measurements.items()
    } == {
        "load": (8, 0.0035, 0.0035, 0.028),
        "refill": (2, 0.008, 0.002, 0.016),  # in every fourth iteration only
        "train_step": (8, 0.03, 0.03, 0.24),
        "layer": (16, 0.005, 0.01, 0.08),  # twice in each
    }
    assert stage.measurements["layer"].parent == "train_step"
    assert figures.one_time == pytest.approx({"complete_run": 0.1 + 12 * 0.0335 + 3 * 0.008, "preparation": 0.1})
    assert figures.cpu_usage is not None
    assert figures.cpu_usage.measurement == "train_step"

    periodic, final = capsys.readouterr().out.split("Final:")
    assert [f"train: {n} iterations" in periodic for n in range(1, 9)] == [n in (3, 6) for n in range(1, 9)]
    assert final.count("train: 8 iterations") == 1
    for shown in ("load", "refill", "train_step", "layer", "complete_run", "preparation", "CPU during train_step"):
        assert shown in final


@pytest.mark.parametrize(
    "enable",
    [
        lambda: Stopwatch().enable(2, None, True),
        lambda: Stopwatch(2, None, True),
        lambda: Stopwatch(num_warmup_iters=2, print_every_n_iters=None, do_cuda_sync=True),
    ],
)
def test_however_it_is_enabled_it_can_be_so_once(
    enable: Callable[[], Any], train: Callable[[int], int], capsys: pytest.CaptureFixture[str]
) -> None:
    enable()

    assert train(5) == 3
    assert capsys.readouterr().out.partition("Final:")[0] == ""
    assert Stopwatch().is_enabled
    with pytest.raises(TimingError, match="enabled already"):
        enable()


def test_where_nobody_enables_it_the_program_runs_alone(
    train: Callable[[int], int], tool: FakeTool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(3) == 0
    assert capsys.readouterr().out == "Final:\n"
    assert tool.events == []


def test_warm_up_that_does_not_end_is_reported_as_such(
    train: Callable[[int], int], capsys: pytest.CaptureFixture[str]
) -> None:
    Stopwatch().enable(num_warmup_iters=10, print_every_n_iters=1, do_cuda_sync=False)

    assert train(3) == 0
    printed = capsys.readouterr().out
    assert "train: 0 iterations (3 of warm-up" in printed
    assert "complete_run" in printed


def test_the_cpu_usage_of_another_measurement_is_an_error() -> None:
    mine = Stopwatch(0, None, False)
    try:
        mine.set_cpu_usage_meas_name("train_step")
        mine.set_cpu_usage_meas_name("train_step")
        with pytest.raises(TimingError, match="'train_step' already"):
            mine.set_cpu_usage_meas_name("load")
    finally:
        mine.reset()


@pytest.mark.parametrize("checked", [True, False])
def test_ranges_of_several_files_are_pushed_and_popped(
    checked: bool, train: Callable[[int], int], tool: FakeTool
) -> None:
    NVTXRangeWrapper().enable(sync_on_push=True, sync_on_pop=True, keep_track_of_range_order=checked)
    train(2)

    layer = ["+layer", "-layer"]
    assert tool.events == ["+forward", *layer, *layer, "-forward", "+backward", "-backward"] * 2


def test_a_checked_pop_of_another_range_is_an_error(tool: FakeTool) -> None:
    ranges = NVTXRangeWrapper(sync_on_push=False, sync_on_pop=False, keep_track_of_range_order=True)
    try:
        ranges.range_push("outer")
        ranges.range_push("inner")
        with pytest.raises(RangeMismatchError, match="'inner', not 'outer'"):
            ranges.range_pop("outer")
        ranges.range_pop("inner")
        ranges.range_pop()
    finally:
        ranges.disable()

    assert tool.events == ["+outer", "+inner", "-inner", "-outer"]


# ---- in a Trainer ----


def instrumented_module(clock: FakeClock) -> Any:
    """A module with the tool's calls in it, that which ends an iteration included."""

    def step(self: Any, batch: Any, batch_idx: int) -> Any:
        Stopwatch().start_meas("encoder")
        clock.advance(5 * MS)
        loss = self.layer(batch[0]).sum()
        Stopwatch().end_meas("encoder")
        return loss

    def finish(self: Any, *_: Any) -> None:
        Stopwatch().finish_iter()

    return tiny_module(lightning(), training_step=step, on_train_batch_end=finish)


def test_in_a_trainer_with_our_callback_its_batches_are_the_iterations(clock: FakeClock, tmp_path: Path) -> None:
    with our_warnings() as said:
        fit_tiny(lightning(), tmp_path, instrumented_module(clock), tiny_loader(4), callbacks=[stopwatch(clock)])

    assert said == []
    assert [row["ns"]["encoder"] for row in rows(tmp_path)] == [5 * MS] * 4
    stage = summary(tmp_path)["stages"]["train"]
    assert (stage["iterations"], stage["measurements"]["encoder"]["count"]) == (4, 4)


def test_in_a_trainer_without_it_the_calls_are_the_iterations(clock: FakeClock, tmp_path: Path) -> None:
    mine = Stopwatch(1, None, False)
    try:
        fit_tiny(lightning(), tmp_path, instrumented_module(clock), tiny_loader(4))
        stage = mine.summary().stages["train"]
    finally:
        mine.reset()

    assert (stage.iterations, stage.warmup_iterations) == (3, 1)
    assert (stage.measurements["encoder"].count, stage.measurements["encoder"].mean_s) == (3, 0.005)


def test_the_singletons_offer_what_is_documented_and_no_more() -> None:
    """All else is for the callbacks and `span`, and may change."""
    offered = {cls: {name for name in dir(cls) if not name.startswith("_")} for cls in (Stopwatch, NVTXRangeWrapper)}

    switches = {"enable", "disable", "is_enabled"}
    assert offered == {
        NVTXRangeWrapper: {*switches, "range_push", "range_pop"},
        Stopwatch: {
            *switches,
            "reset",
            "get_num_nonwarmup_iters_measured",
            "start_meas",
            "end_meas",
            "set_cpu_usage_meas_name",
            "start_one_time_measurement",
            "end_one_time_measurement",
            "finish_iter",
            "print_eval_times",
            "summary",
        },
    }
