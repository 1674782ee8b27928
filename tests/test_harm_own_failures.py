"""Whatever fails in this package: the training goes on unchanged, one warning says why, and only that part is off."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import torch
from known_cost_model import quiet_trainer
from ledger_records import lightning, lines, rows, summary
from lightning.pytorch.loggers import CSVLogger
from tiny_training import callback, tiny_loader, tiny_module
from whole_suite import Suite, our_warnings

from lightning_timing import NVTXRangeWrapper, Stopwatch, StopwatchCallback, span

if TYPE_CHECKING:
    from pathlib import Path

OURS = "a mistake of ours"

STOPWATCH = "the Stopwatch"
RECORD = "the record"
REPORT = "the printed report"
LOGGED = "logging the phases"
CPU = "CPU usage"
NVTX = "NVTX"
WINDOW = "the CUDA profiler's window"
FOLLOWING = "following the Trainer"

OFF = "is off for the rest of this run"
NOT_SAMPLED = "cannot be sampled"

EVERYTHING = {STOPWATCH, RECORD, REPORT, LOGGED, CPU, NVTX, WINDOW}


class Failure(NamedTuple):
    """Something of ours that fails.

    Attributes:
        what: The function or method that raises: its module, then its name in there.
        off: The part that its warning names.
        takes_along: What else shows less than it would have.
        first: The call from which on it raises, counted from 1.
        is_raised: Whether it is raised in `debug`.
        says: What the warning says of the part.
    """

    what: str
    off: str
    takes_along: frozenset[str] = frozenset()
    first: int = 2
    is_raised: bool = True
    says: str = OFF

    def __str__(self) -> str:
        return f"{self.what.rpartition(':')[2]}-{self.first}"


REST_OF_STOPWATCH = frozenset({RECORD, REPORT, LOGGED, CPU})

FAILURES = [
    *(
        Failure(f"phase_recorder:PhaseRecorder.{method}", STOPWATCH, REST_OF_STOPWATCH)
        for method in (
            "begin_stage",
            "begin_first_data_wait",
            "end_first_data_wait",
            "begin_iteration",
            "close_iteration",
        )
    ),
    Failure("recorder:Recorder.count_iteration", STOPWATCH, REST_OF_STOPWATCH),
    *(Failure(f"ledger:Ledger.{method}", STOPWATCH, REST_OF_STOPWATCH) for method in ("enter", "leave")),
    Failure("stage_totals:StageTotals.take", STOPWATCH, REST_OF_STOPWATCH),
    Failure("callbacks.phase_machine:PhaseMachine.batch_started", FOLLOWING, frozenset(EVERYTHING)),
    *(
        Failure(f"phase_recorder:PhaseRecorder.{method}", STOPWATCH, REST_OF_STOPWATCH, first=1)
        for method in ("hand_on_to", "take_outside", "release", "problems")
    ),
    *(
        Failure(f"recorder:Recorder.{method}", STOPWATCH, REST_OF_STOPWATCH, first=1)
        for method in ("figures", "choose_cpu_usage")
    ),
    Failure("user_measurements:UserMeasurements.add", STOPWATCH, REST_OF_STOPWATCH, first=1),
    Failure("one_time:OneTimeMeasurements.start", STOPWATCH, REST_OF_STOPWATCH, first=1),
    Failure("callbacks.stopwatch:agree_on_place", STOPWATCH, REST_OF_STOPWATCH, first=1),
    Failure("callbacks.stopwatch:overhead_of", STOPWATCH, first=1),
    Failure("record_writer:RecordWriter.__init__", RECORD, first=1, is_raised=False),
    Failure("record_writer:RecordWriter.append", RECORD, is_raised=False),
    Failure("record_writer:RecordWriter.close", RECORD, first=1, is_raised=False),
    Failure("callbacks.run_files:environment", RECORD, first=1, is_raised=False),
    Failure("callbacks.run_files:loaders", RECORD, first=1, is_raised=False),
    Failure("callbacks.run_files:workers_by_stage", RECORD, first=1, is_raised=False),
    Failure("callbacks.run_files:judge", RECORD, first=1, is_raised=False),
    Failure("callbacks.run_files:write_summary", RECORD, first=1, is_raised=False),
    Failure("stopwatch:Stopwatch._render", REPORT, first=1),
    Failure("callbacks.metrics_log:MetricsLog.log", LOGGED, first=1),
    Failure("cpu_choice:CpuChoice.choose", CPU, first=1, is_raised=False),
    Failure("cpu_readings:PsutilReader.__init__", CPU, first=1, is_raised=False),
    Failure("cpu_readings:PsutilReader.__call__", CPU, first=1, is_raised=False, says=NOT_SAMPLED),
    Failure("cpu_usage:CpuUsageMeter.sample", CPU, first=1, is_raised=False, says=NOT_SAMPLED),
    Failure("range_recorder:RangeRecorder.push_phase", NVTX),
    Failure("range_recorder:RangeRecorder.pop_phase", NVTX),
    Failure("range_recorder:RangeRecorder.push", NVTX, first=8),
    Failure("range_recorder:RangeRecorder.pop", NVTX),
    Failure("range_recorder:RangeRecorder.close_all", NVTX, first=1),
    Failure("callbacks.nvtx:RangeFollower.begin_iteration", NVTX),
    Failure("callbacks.cuda_profiler:CaptureWindow.open", WINDOW, first=1, is_raised=False),
    Failure("callbacks.cuda_profiler:start_process_range", WINDOW, first=1, is_raised=False),
    Failure("callbacks.open_phases:OpenPhases.enter", FOLLOWING, frozenset(EVERYTHING)),
    Failure("callbacks.phase_machine:PhaseMachine.fetch_began", FOLLOWING, frozenset(EVERYTHING)),
    Failure("callbacks.phase_machine:PhaseMachine.fetch_ended", FOLLOWING, frozenset(EVERYTHING)),
    Failure("callbacks.phase_machine:PhaseMachine.transferred", FOLLOWING, frozenset(EVERYTHING)),
    Failure("callbacks.phase_machine:PhaseMachine.logging_began", FOLLOWING, frozenset(EVERYTHING), first=1),
    Failure("callbacks.actions:ActionMeanings.of_context", FOLLOWING, frozenset(EVERYTHING)),
    Failure("callbacks.actions:ActionMeanings.of_start_and_stop", FOLLOWING, frozenset(EVERYTHING), first=1),
    Failure("callbacks.actions:ActionMeanings._clips", FOLLOWING, frozenset(EVERYTHING)),
]


def inject(failure: Failure, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has what is to fail raise, from the given call on."""
    module, _, name = failure.what.partition(":")
    owner: Any = importlib.import_module(f"lightning_timing.{module}")
    *path, name = name.split(".")
    for each in path:
        owner = getattr(owner, each)
    original = vars(owner)[name]
    calls = 0

    def fails(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls >= failure.first:
            raise RuntimeError(OURS)
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, staticmethod(fails) if isinstance(original, staticmethod) else fails)


class Trained(NamedTuple):
    """What a training came to.

    Attributes:
        weights: The module's, in the end.
        steps: The steps that it took, training and validation.
    """

    weights: list[list[float]]
    steps: list[tuple[str, int]]


def train(root: Path, callbacks: list[Any]) -> Trained:
    """Two epochs of three batches with validation, a logger, and the user's own use of all that we offer."""
    pl = lightning()
    steps: list[tuple[str, int]] = []

    def training_step(self: Any, batch: Any, batch_idx: int) -> Any:
        steps.append(("train", batch_idx))
        with span("encoder"):
            NVTXRangeWrapper().range_push("mine")
            loss = self.layer(batch[0]).sum()
            NVTXRangeWrapper().range_pop("mine")
        self.log("loss", loss)
        return loss

    def validation_step(self: Any, batch: Any, batch_idx: int) -> None:
        steps.append(("validate", batch_idx))

    def start(self: Any) -> None:
        Stopwatch().start_one_time_measurement("training")

    def end(self: Any) -> None:
        Stopwatch().end_one_time_measurement("training")
        Stopwatch().print_eval_times()
        Stopwatch().summary()

    torch.manual_seed(5)
    hooks = {"training_step": training_step, "validation_step": validation_step}
    module = tiny_module(pl, **hooks, on_train_start=start, on_train_end=end)
    logger = CSVLogger(root, name="", version="")
    options = {"logger": logger, "log_every_n_steps": 1, "num_sanity_val_steps": 0, "max_epochs": 2}
    trainer = quiet_trainer(pl, root, callbacks=callbacks, **options)
    profiler = trainer.profiler
    try:
        trainer.fit(module, tiny_loader(3), tiny_loader(1))
    finally:
        assert trainer.profiler is profiler
        assert not {"log_metrics", "save"} & set(vars(logger))
        assert not Stopwatch().is_enabled
        assert not NVTXRangeWrapper().is_enabled
    return Trained([parameter.flatten().tolist() for parameter in module.parameters()], steps)


def what_works(suite: Suite, root: Path, printed: str) -> set[str]:
    """The parts of which there is all that there should be after `train`."""
    works = set()
    figures = Stopwatch().summary()
    measurements = figures.stages["train"].measurements if "train" in figures.stages else {}
    if [measurements[name].count for name in ("encoder", "iteration") if name in measurements] == [6, 6]:
        works.add(STOPWATCH)
    if figures.cpu_usage is not None:
        works.add(CPU)
    if (root / "timing" / "rank0.jsonl").exists() and (root / "timing" / "summary.json").exists():
        ends = [end["status"] for end in lines(root, "end")]
        if len(rows(root)) == 6 and [*ends, summary(root)["status"]] == ["completed"] * 2:
            works.add(RECORD)
    if "train: 6 iterations" in printed and printed.count("Written to") == (RECORD in works):
        works.add(REPORT)
    if "timing/iteration" in (root / "metrics.csv").read_text():
        works.add(LOGGED)
    events = suite.tool.events
    if events.count("+iteration") == events.count("-iteration") == 8 and events.count("-encoder") == 6:
        works.add(NVTX)
    if suite.runtime.calls == ["synchronize", "start", "synchronize", "stop"]:
        works.add(WINDOW)
    return works


@pytest.fixture(scope="module")
def untimed(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """The training without any of our callbacks."""
    return train(tmp_path_factory.mktemp("untimed"), [])


def options() -> dict[str, Any]:
    return {"log_to_logger": True, "print_every_n_iters": 2}


def test_where_nothing_fails_everything_works_and_nothing_is_said(
    untimed: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    suite = Suite(monkeypatch, **options())
    with our_warnings() as said:
        assert train(tmp_path, suite.callbacks) == untimed

    assert said == []
    assert what_works(suite, tmp_path, capsys.readouterr().out) == EVERYTHING


@pytest.mark.parametrize("failure", FAILURES, ids=str)
def test_a_failure_of_ours_costs_what_failed_and_nothing_else(
    failure: Failure,
    untimed: Trained,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    suite = Suite(monkeypatch, **options())
    with monkeypatch.context() as failing, our_warnings() as said:
        inject(failure, failing)
        assert train(tmp_path, suite.callbacks) == untimed

    assert [OURS in each for each in said] == [True]
    assert f"{failure.off} {failure.says}" in said[0]
    lost = EVERYTHING - what_works(suite, tmp_path, capsys.readouterr().out)
    assert lost <= {failure.off} | failure.takes_along
    assert suite.runtime.calls.count("start") == suite.runtime.calls.count("stop") <= 1

    suite.runtime.calls.clear()
    suite.tool.events.clear()
    suite.tool.by_thread.clear()
    suite.tool.bare_pops = 0
    suite.check_next_run_is_clean(tmp_path / "next")


LATE_FAILURES = [
    Failure("callbacks.trail:Trail.turn", FOLLOWING),
    Failure("callbacks.trail:Trail.note", FOLLOWING),
    Failure("callbacks.phase_machine:PhaseMachine.iteration_ended", FOLLOWING),
    Failure("callbacks.phase_machine:PhaseMachine.batch_started", FOLLOWING),
    Failure("callbacks.phase_machine:PhaseMachine.transferred", FOLLOWING),
    Failure("ledger:Ledger.leave", STOPWATCH, first=9),
    Failure("recorder:Recorder.count_iteration", STOPWATCH),
    Failure("late_recorder:LateRecorder.patience", FOLLOWING),
    Failure("stage_totals:StageTotals.take", STOPWATCH),
    Failure("closed_iterations:ClosedIterations.add", STOPWATCH),
]


@pytest.mark.parametrize("failure", LATE_FAILURES, ids=str)
def test_a_failure_where_the_stopwatch_follows_alone_and_late(
    failure: Failure, untimed: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = Suite(monkeypatch, **options())
    with monkeypatch.context() as failing, our_warnings() as said:
        inject(failure, failing)
        assert train(tmp_path, suite.callbacks[:1]) == untimed

    assert [OURS in each for each in said] == [True]
    assert f"{failure.off} {failure.says}" in said[0]
    assert summary(tmp_path)["status"] == "completed"
    suite.check_next_run_is_clean(tmp_path / "next")


def test_where_nothing_is_followed_any_more_nothing_is_measured_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the user measures waits for the end of its iteration, of which nobody tells."""
    pl, enabled = lightning(), []
    after = callback(pl, "After", on_train_end=lambda *_: enabled.append(Stopwatch().is_enabled))
    trainer = quiet_trainer(pl, tmp_path, callbacks=[StopwatchCallback(), after], max_epochs=1)
    with our_warnings() as said:
        inject(Failure("callbacks.phase_machine:PhaseMachine.iteration_ended", FOLLOWING), monkeypatch)
        trainer.fit(tiny_module(pl), tiny_loader(5))

    assert [f"{FOLLOWING} {OFF}" in each for each in said] == [True]
    assert enabled == [False]


def test_a_failure_to_tell_two_optimizers_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def step(self: Any, batch: Any, batch_idx: int) -> None:
        for optimizer in self.optimizers():
            self.manual_backward(self.layer(batch[0]).sum())
            optimizer.step()

    def optimizers(self: Any) -> list[Any]:
        return [torch.optim.SGD(self.parameters(), lr=0.1) for _ in range(2)]

    pl = lightning()
    module = tiny_module(pl, automatic_optimization=False, training_step=step, configure_optimizers=optimizers)
    trainer = quiet_trainer(pl, tmp_path, callbacks=Suite(monkeypatch).callbacks, max_epochs=1)
    with our_warnings() as said:
        inject(Failure("callbacks.session:Session.note_step_of", FOLLOWING), monkeypatch)
        trainer.fit(module, tiny_loader(3))

    assert trainer.global_step == 6
    assert [f"{FOLLOWING} {OFF}" in each and OURS in each for each in said] == [True]


@pytest.mark.parametrize("failure", [each for each in FAILURES if each.is_raised], ids=str)
def test_in_debug_it_is_raised_and_leaves_nothing_on(
    failure: Failure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = Suite(monkeypatch, on_misuse="raise", **options())
    with monkeypatch.context() as failing:
        inject(failure, failing)
        with pytest.raises(RuntimeError, match=OURS):
            train(tmp_path, suite.callbacks)


@pytest.mark.parametrize("failure", [each for each in FAILURES if not each.is_raised], ids=str)
def test_what_measures_no_time_is_only_warned_of_in_debug_too(
    failure: Failure, untimed: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = Suite(monkeypatch, on_misuse="raise", **options())
    with monkeypatch.context() as failing, our_warnings() as said:
        inject(failure, failing)
        assert train(tmp_path, suite.callbacks) == untimed

    assert [OURS in each for each in said] == [True]


def test_parts_that_need_what_fails_go_off_each_with_a_warning(
    untimed: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    suite = Suite(monkeypatch, **options())
    with monkeypatch.context() as failing, our_warnings() as said:
        inject(Failure("nvtx_ranges:open_domain", NVTX, first=1), failing)
        assert train(tmp_path, suite.callbacks) == untimed

    assert [each.partition(" is off ")[0].removeprefix("lightning_timing: ") for each in said] == [NVTX, WINDOW]
    assert what_works(suite, tmp_path, capsys.readouterr().out) == EVERYTHING - {NVTX, WINDOW}
    suite.runtime.calls.clear()


@pytest.mark.parametrize("at", ["synchronize", "profiler_start", "profiler_stop"])
def test_a_cuda_profiler_that_refuses(
    at: str, untimed: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    suite = Suite(monkeypatch, **options())

    def refuse() -> None:
        raise RuntimeError(f"CUDA error: {at}")

    monkeypatch.setattr(suite.runtime, at, refuse)
    with our_warnings() as said:
        assert train(tmp_path, suite.callbacks) == untimed

    assert [f"{WINDOW} is off for the rest of this run: RuntimeError: CUDA error: {at}" in each for each in said] == [
        True
    ]
    assert what_works(suite, tmp_path, capsys.readouterr().out) == EVERYTHING - {WINDOW}


@pytest.mark.parametrize("at", ["prepare", "push", "pop", "set_payload"])
def test_an_nvtx_tool_that_refuses(
    at: str, untimed: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    suite = Suite(monkeypatch, **options())
    monkeypatch.setattr(suite.tool, at, lambda *_: 1 / 0)
    with our_warnings() as said:
        assert train(tmp_path, suite.callbacks) == untimed

    assert f"{NVTX} is off for the rest of this run: ZeroDivisionError" in "".join(said)
    assert len(said) == (2 if at == "prepare" else 1)  # the window's range is prepared as well
    assert EVERYTHING - {NVTX, WINDOW} <= what_works(suite, tmp_path, capsys.readouterr().out)


def test_a_clock_that_fails_at_any_reading(untimed: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In our hooks, in the user's own calls, and between them."""
    suite = Suite(monkeypatch, cpu_usage_meas_name=None)
    readings = 0

    def read_or_fail() -> int:
        nonlocal readings
        readings += 1
        if failing_at is not None and readings >= failing_at:
            raise OSError("no clock")
        return suite.clock()

    suite.callbacks[0]._clock = read_or_fail
    failing_at = None
    train(tmp_path / "whole", suite.callbacks)
    assert readings > 100
    for failing_at in range(1, readings, 5):
        root, readings = tmp_path / f"{failing_at}", 0
        with our_warnings() as said:
            assert train(root, suite.callbacks) == untimed
        off = [RECORD, STOPWATCH] if failing_at == 1 else [STOPWATCH]  # the first reading is for the record's header
        assert said == [f"lightning_timing: {part} is off for the rest of this run: OSError: no clock" for part in off]
        if failing_at > 1:
            whole = [(row["epoch"], row["batch_idx"]) for row in rows(tmp_path / "whole")]
            kept = [(row["epoch"], row["batch_idx"]) for row in rows(root)]
            assert kept == whole[: len(kept)]
            assert summary(root)["stages"].get("train", {"iterations": 0})["iterations"] == len(kept)
            assert [end["status"] for end in lines(root, "end")] == ["completed"]
