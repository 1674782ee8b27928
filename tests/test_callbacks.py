"""The callbacks in real Trainers: what they print, log, leave alone, and how they take what others do to a Trainer."""

from __future__ import annotations

import csv
import re
import shlex
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest
from known_cost import FakeClock
from known_cost_model import quiet_trainer
from ledger_records import lightning, lines, rows, stopwatch, summary
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from lightning.pytorch.profilers import SimpleProfiler
from tiny_training import callback, fit_tiny, spends, step_costing, tiny_loader, tiny_module
from whole_suite import FakeRuntime, Suite, our_warnings

from lightning_timing import (
    CUDAProfilerCallback,
    MisuseError,
    NVTXCallback,
    NVTXRangeWrapper,
    Stopwatch,
    StopwatchCallback,
    TimingError,
    span,
)
from lightning_timing.callbacks.run_files import RunFiles
from lightning_timing.overhead import UnitCosts
from lightning_timing.run_report import read_report

MS = 1_000_000


def logging_step(self: Any, batch: Any, *_: Any) -> Any:
    loss = self.layer(batch[0]).sum()
    self.log("loss", loss)
    return loss


# ---- printing ----


def test_the_report_is_printed_every_so_many_iterations_and_at_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pl = lightning()
    fit_tiny(pl, tmp_path, tiny_module(pl), tiny_loader(6), callbacks=[stopwatch(FakeClock(), print_every_n_iters=2)])

    out = capsys.readouterr().out
    assert [f"train: {n} iterations" in out for n in (1, 2, 4, 6)] == [False, True, True, True]
    assert out.count("Written to") == 1
    assert str(tmp_path / "timing") in out


@pytest.mark.parametrize("is_found", [True, False])
def test_the_command_at_the_end_makes_the_page(
    is_found: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the shell finds it or not, as where the environment is not activated."""
    bin_dir = Path(sys.executable).parent
    monkeypatch.setenv("PATH", str(bin_dir) if is_found else "/nowhere")
    pl = lightning()
    root = tmp_path / "a folder"
    fit_tiny(pl, root, tiny_module(pl), tiny_loader(6), callbacks=[stopwatch(FakeClock())])

    *_, last_line = capsys.readouterr().out.splitlines()
    label, _, command = last_line.partition(": ")
    program, *arguments = shlex.split(command)
    assert label == "As a page"
    assert program == ("lightning-timing" if is_found else str(bin_dir / "lightning-timing"))
    subprocess.run([program, *arguments], cwd=tmp_path, check=True)
    assert "<html" in (tmp_path / "timing.html").read_text()


@pytest.mark.parametrize("bar", ["TQDMProgressBar", "RichProgressBar"])
def test_it_prints_through_the_progress_bar_as_long_as_there_is_one(
    bar: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pl = lightning()
    progress_bar = getattr(pl.callbacks, bar)()
    printed: list[str] = []
    monkeypatch.setattr(progress_bar, "print", lambda text, **_: printed.append(text))
    callbacks = [stopwatch(FakeClock(), print_every_n_iters=2), progress_bar]
    trainer = quiet_trainer(pl, tmp_path, max_epochs=1, callbacks=callbacks, enable_progress_bar=True)
    trainer.fit(tiny_module(pl), tiny_loader(4))

    assert len(printed) == 2
    assert "Written to" in capsys.readouterr().out


def test_a_print_that_fails_costs_the_print_only(tmp_path: Path) -> None:
    pl = lightning()

    def refuse(*_: Any) -> None:
        raise BrokenPipeError("nobody listens")

    with pytest.warns(UserWarning, match="the printed report is off.*nobody listens"):
        fit_tiny(
            pl,
            tmp_path,
            tiny_module(pl, print=refuse),
            tiny_loader(3),
            callbacks=[stopwatch(FakeClock(), print_every_n_iters=1)],
        )

    assert len(rows(tmp_path)) == 3
    assert summary(tmp_path)["status"] == "completed"


# ---- loggers ----


def test_phases_go_to_every_logger_on_the_trainer_s_own_axis_and_interval(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    pl, clock = lightning(), FakeClock()
    loggers = [
        CSVLogger(tmp_path / "csv", name="", version=""),
        TensorBoardLogger(tmp_path / "tb", name="", version=""),
    ]
    costly = callback(pl, "Costly", on_train_batch_start=spends(clock, 3 * MS))
    trainer = quiet_trainer(
        pl,
        tmp_path,
        max_epochs=1,
        logger=loggers,
        log_every_n_steps=4,
        callbacks=[stopwatch(clock, log_to_logger=True), costly],
    )
    trainer.fit(tiny_module(pl, training_step=logging_step), tiny_loader(12))

    with (tmp_path / "csv" / "metrics.csv").open() as lines:
        table = list(csv.DictReader(lines))
    assert [int(line["step"]) for line in table] == [3, 7, 11]
    assert all(line["loss"] for line in table)
    assert [float(line["timing/callbacks"]) for line in table] == pytest.approx([0.003] * 3)
    assert [float(line["timing/iteration"]) for line in table] == pytest.approx([0.003] * 3)

    events = EventAccumulator(str(tmp_path / "tb"))
    events.Reload()
    assert [event.step for event in events.Scalars("timing/callbacks")] == [3, 7, 11]
    assert [event.step for event in events.Scalars("loss")] == [3, 7, 11]


def test_the_phases_of_a_step_that_fetches_for_itself_are_logged_too(tmp_path: Path) -> None:
    """There Lightning asks whoever logs for the batch's size."""
    pl = lightning()

    def step(self: Any, dataloader_iter: Any) -> Any:
        (batch,), _, _ = next(dataloader_iter)
        return self.layer(batch).sum()

    logger = CSVLogger(tmp_path / "csv", name="", version="")
    options = {"logger": logger, "log_every_n_steps": 3, "callbacks": [stopwatch(FakeClock(), log_to_logger=True)]}
    with our_warnings() as said:
        fit_tiny(pl, tmp_path, tiny_module(pl, training_step=step), tiny_loader(6), **options)

    assert said == []
    assert "timing/iteration" in (tmp_path / "csv" / "metrics.csv").read_text()


def test_without_being_asked_nothing_goes_to_the_loggers(tmp_path: Path) -> None:
    pl = lightning()
    logger = CSVLogger(tmp_path / "csv", name="", version="")
    trainer = quiet_trainer(
        pl, tmp_path, max_epochs=1, logger=logger, log_every_n_steps=2, callbacks=[stopwatch(FakeClock())]
    )
    trainer.fit(tiny_module(pl, training_step=logging_step), tiny_loader(4))

    assert (tmp_path / "csv" / "metrics.csv").read_text().splitlines()[0] == "epoch,loss,step"


def test_lightning_still_has_the_one_private_attribute_that_logging_asks() -> None:
    trainer = lightning().Trainer(logger=False, enable_checkpointing=False, enable_progress_bar=False)

    assert isinstance(trainer._logger_connector.should_update_logs, bool)


# ---- settings ----


@pytest.mark.parametrize(
    ("make", "bad"),
    [
        (StopwatchCallback, {"num_warmup_iters": -1}),
        (StopwatchCallback, {"print_every_n_iters": 0}),
        (StopwatchCallback, {"print_every_n_iters": 7.5}),
        (StopwatchCallback, {"num_warmup_iters": "abc"}),
        (StopwatchCallback, {"ranks": 0}),
        (StopwatchCallback, {"device_time": "sometimes"}),
        (StopwatchCallback, {"on_misuse": "shrug"}),
        (StopwatchCallback, {"folder": "../elsewhere"}),
        (StopwatchCallback, {"folder": ".."}),
        (StopwatchCallback, {"ranks": "every"}),
        (StopwatchCallback, {"enable": "yes"}),
        (CUDAProfilerCallback, {"start_step": -1}),
        (CUDAProfilerCallback, {"num_steps": 0}),
        (StopwatchCallback, {"cpu_usage_meas_name": 5}),
        (StopwatchCallback, {"cpu_usage_meas_name": ""}),
        (StopwatchCallback, {"cpu_usage_meas_name": ["a"]}),
        (CUDAProfilerCallback, {"ranks": [-1]}),
        (CUDAProfilerCallback, {"ranks": [True]}),
    ],
)
def test_an_argument_out_of_its_range_is_refused_with_what_was_given(make: Any, bad: dict[str, Any]) -> None:
    with pytest.raises(TimingError, match=f"{next(iter(bad))}.*got {next(iter(bad.values()))!r}".replace("[", r"\[")):
        make(**bad)


def test_ranks_that_the_run_does_not_have_are_said_to_measure_nothing(tmp_path: Path) -> None:
    pl = lightning()
    nobody = [StopwatchCallback(ranks=[1, 3]), CUDAProfilerCallback(ranks=[2]), StopwatchCallback(ranks=[])]
    with our_warnings() as said:
        fit_tiny(pl, tmp_path, tiny_module(pl), tiny_loader(2), callbacks=nobody)

    none = "is off, as the run has none of the ranks"
    assert said == [
        f"lightning_timing: the Stopwatch {none} [1, 3]: its ranks are 0 to 0",
        f"lightning_timing: the CUDA profiler's window {none} [2]: its ranks are 0 to 0",
    ]
    assert not (tmp_path / "timing").exists()


def test_events_are_not_timed_where_each_edge_waits_for_the_device() -> None:
    with pytest.raises(TimingError, match=r"do_cuda_sync.*device_time='events'.*leave one of the two out"):
        StopwatchCallback(do_cuda_sync=True, device_time="events")


def test_callbacks_that_are_off_do_nothing(tmp_path: Path) -> None:
    pl = lightning()
    off = [StopwatchCallback(enable=False), NVTXCallback(enable=False), CUDAProfilerCallback(enable=False)]
    profilers: list[Any] = []
    hooks: list[Any] = []

    def look(_: Any, trainer: Any, __: Any) -> None:
        profilers.append(trainer.profiler)
        hooks.extend((each.on_train_batch_start, each.on_before_optimizer_step) for each in off[:2])

    looks = callback(pl, "Looks", on_train_start=look)
    trainer = fit_tiny(pl, tmp_path, tiny_module(pl), tiny_loader(2), callbacks=[*off, looks])

    assert profilers == [trainer.profiler]
    assert hooks == [(None, None)] * 2  # so that calling them costs nothing
    assert not (tmp_path / "timing").exists()


# ---- the Stopwatch and others ----


def test_user_measurements_lie_below_the_phase_they_ran_in(tmp_path: Path) -> None:
    pl, clock = lightning(), FakeClock()

    def step(self: Any, batch: Any, *_: Any) -> Any:
        with span("encoder"):
            clock.advance(5 * MS)
            with span("attention"):
                clock.advance(2 * MS)
        return self.layer(batch[0]).sum()

    fit_tiny(pl, tmp_path, tiny_module(pl, training_step=step), tiny_loader(3), callbacks=[stopwatch(clock)])

    measurements = summary(tmp_path)["stages"]["train"]["measurements"]
    assert {name: measurements[name]["parent"] for name in ("forward", "encoder", "attention")} == {
        "forward": "iteration",
        "encoder": "forward",
        "attention": "encoder",
    }
    assert (measurements["encoder"]["mean_s"], measurements["attention"]["mean_s"]) == (0.007, 0.002)
    assert measurements["forward"]["mean_s"] == 0.007


def test_a_measurement_that_spans_several_phases_lies_below_the_iteration(tmp_path: Path) -> None:
    pl, clock = lightning(), FakeClock()

    def start(self: Any, *_: Any) -> None:
        Stopwatch().start_meas("from hook to hook")
        clock.advance(MS)

    def end(self: Any, *_: Any) -> None:
        clock.advance(MS)
        Stopwatch().end_meas("from hook to hook")

    across = callback(pl, "Across", on_train_batch_start=start, on_train_batch_end=end)
    fit_tiny(pl, tmp_path, tiny_module(pl), tiny_loader(2), callbacks=[stopwatch(clock), across])

    measured = summary(tmp_path)["stages"]["train"]["measurements"]["from hook to hook"]
    assert (measured["parent"], measured["count"]) == ("iteration", 2)


def test_a_measurement_lies_below_the_phase_that_it_first_ran_in(tmp_path: Path) -> None:
    pl, clock = lightning(), FakeClock()

    def measured(ns: int) -> None:
        with span("everywhere"):
            clock.advance(ns)

    def step(self: Any, batch: Any, *_: Any) -> Any:
        measured(2 * MS)
        return self.layer(batch[0]).sum()

    later = callback(pl, "Later", on_train_batch_end=lambda *_: measured(5 * MS))
    module = tiny_module(pl, training_step=step)
    fit_tiny(pl, tmp_path, module, tiny_loader(3), callbacks=[stopwatch(clock), later])

    everywhere = summary(tmp_path)["stages"]["train"]["measurements"]["everywhere"]
    assert (everywhere["parent"], everywhere["count"], everywhere["total_s"]) == ("forward", 6, 0.021)


def test_a_measurement_between_iterations_lies_below_the_hook_that_it_ran_in(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pl, clock = lightning(), FakeClock()

    def saves(*_: Any) -> None:
        clock.advance(MS)
        with span("files"), span("weights"):
            clock.advance(2 * MS)

    callbacks = [stopwatch(clock), callback(pl, "Saves", on_train_epoch_end=saves)]
    fit_tiny(pl, tmp_path, tiny_module(pl), tiny_loader(3), callbacks=callbacks)

    found = summary(tmp_path)["stages"]["train"]["measurements"]
    assert found["files"]["parent"] == "between_iterations/callbacks/Saves"
    assert found["weights"]["parent"] == "files"
    assert found["between_iterations/callbacks/Saves"]["total_s"] == pytest.approx(0.003)
    first_columns = [re.split(r"\b  +", line)[0] for line in capsys.readouterr().out.splitlines()]
    place = first_columns.index("between_iterations/callbacks")
    assert first_columns[place + 1 : place + 4] == ["  Saves", "    files", "      weights"]


@pytest.mark.parametrize("name", ["forward", "between_iterations/callbacks"])
def test_the_name_of_a_phase_is_not_free(name: str, tmp_path: Path) -> None:
    pl = lightning()

    def step(self: Any, batch: Any, *_: Any) -> Any:
        with span(name):
            return self.layer(batch[0]).sum()

    with pytest.warns(UserWarning, match=f"'{name}' is the name of a phase"):
        fit_tiny(pl, tmp_path, tiny_module(pl, training_step=step), tiny_loader(2), callbacks=[stopwatch(FakeClock())])


def test_in_debug_misuse_ends_the_run_with_the_record_written(tmp_path: Path) -> None:
    pl = lightning()

    def step(self: Any, batch: Any, *_: Any) -> Any:
        Stopwatch().end_meas("never started")

    with pytest.raises(MisuseError, match="'never started'"):
        fit_tiny(
            pl,
            tmp_path,
            tiny_module(pl, training_step=step),
            tiny_loader(2),
            callbacks=[stopwatch(FakeClock(), on_misuse="raise")],
        )

    assert summary(tmp_path)["status"] == "failed"


def test_a_stopwatch_enabled_by_hand_stays_its_owner_s_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pl = lightning()
    mine = Stopwatch(num_warmup_iters=0)
    try:
        callbacks = [stopwatch(FakeClock(), print_every_n_iters=2)]
        with our_warnings() as said:
            fit_tiny(pl, tmp_path, tiny_module(pl), tiny_loader(3), callbacks=callbacks)

        assert ["the Stopwatch was enabled before the run" in each for each in said] == [True]
        assert re.findall(r"train: (\d) iterations", capsys.readouterr().out) == ["2", "3"]
        assert mine.is_enabled
        assert mine.get_num_nonwarmup_iters_measured() == 0
        assert len(rows(tmp_path)) == 3
    finally:
        mine.reset()


def test_a_stopwatch_enabled_by_hand_is_said_of_each_run_of_the_process(tmp_path: Path) -> None:
    pl = lightning()
    mine = Stopwatch(num_warmup_iters=0)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            for name in ("a", "b", "c"):
                fit_tiny(pl, tmp_path / name, tiny_module(pl), tiny_loader(1), callbacks=[stopwatch(FakeClock())])
    finally:
        mine.reset()

    assert ["enabled before the run" in str(each.message) for each in caught].count(True) == 3


def test_a_profiler_set_by_somebody_else_in_mid_epoch_is_said_once_and_ends_nothing(tmp_path: Path) -> None:
    pl = lightning()

    def replace(self: Any, trainer: Any, module: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx == 2:
            trainer.profiler = SimpleProfiler()

    callbacks = [stopwatch(FakeClock()), callback(pl, "Replaces", on_train_batch_start=replace)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit_tiny(pl, tmp_path, tiny_module(pl), tiny_loader(6), callbacks=callbacks)

    said = [str(w.message) for w in caught if "place of the Trainer's profiler" in str(w.message)]
    assert len(said) == 1
    assert [row["batch_idx"] for row in rows(tmp_path)] == [0, 1]


# ---- the overhead ----


def test_the_summary_and_the_report_say_what_the_timing_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What runs inside the iterations by how often it did; the first iteration has no wait for its batch."""

    def in_a_span(self: Any, batch: Any, *_: Any) -> Any:
        with span("mine"):
            return self.layer(batch[0]).sum()

    pl, clock = lightning(), FakeClock()
    monkeypatch.setattr(RunFiles, "write_iteration", lambda self, iteration: clock.advance(MS))
    unit_costs = UnitCosts(phase_ns=1000, user_ns=100, user_again_ns=1, iteration_ns=10)
    monkeypatch.setattr("lightning_timing.callbacks.stopwatch.try_out", lambda *_, **__: unit_costs)

    costly = callback(pl, "Costly", on_train_batch_start=spends(clock, 9 * MS))
    callbacks = [StopwatchCallback(num_warmup_iters=0, clock=clock), costly]
    fit_tiny(pl, tmp_path, tiny_module(pl, training_step=in_a_span), tiny_loader(11), callbacks=callbacks)

    overhead = summary(tmp_path)["timing_overhead"]
    phases = 6 * 11 + 10
    inside_s = (phases * unit_costs.phase_ns + 11 * unit_costs.user_ns + 11 * unit_costs.iteration_ns) * 1e-9
    assert overhead["seconds"] == pytest.approx(11 * 0.001 + inside_s)
    assert overhead["share"] == pytest.approx(overhead["seconds"] / (11 * 0.009 + 11 * 0.001), rel=1e-6)
    assert "timing itself: 11.1 ms, 10.1 % of the time of the iterations" in capsys.readouterr().out


def test_intervals_of_user_measurements_are_kept_in_their_places(tmp_path: Path) -> None:
    pl, clock = lightning(), FakeClock()

    def step(self: Any, batch: Any, *_: Any) -> Any:
        for _ in range(2):
            clock.advance(MS)
            with span("encoder"):
                clock.advance(5 * MS)
        return self.layer(batch[0]).sum()

    fit_tiny(pl, tmp_path, tiny_module(pl, training_step=step), tiny_loader(2), callbacks=[stopwatch(clock)])

    kept = [interval for interval in rows(tmp_path)[1]["intervals"] if interval[0] in ("encoder", "forward")]
    assert kept == [["encoder", MS, 6 * MS], ["encoder", 7 * MS, 12 * MS], ["forward", 0, 12 * MS]]


def test_intervals_of_other_threads_have_no_place_in_the_iteration(tmp_path: Path) -> None:
    pl, clock = lightning(), FakeClock()

    def beside() -> None:
        with span("beside"):
            clock.advance(5 * MS)

    def step(self: Any, batch: Any, *_: Any) -> Any:
        thread = threading.Thread(target=beside)
        thread.start()
        thread.join()
        return self.layer(batch[0]).sum()

    fit_tiny(pl, tmp_path, tiny_module(pl, training_step=step), tiny_loader(3), callbacks=[stopwatch(clock)])

    assert [row["ns"]["beside"] for row in rows(tmp_path)] == [5 * MS] * 3
    assert not [name for row in rows(tmp_path) for name, *_ in row["intervals"] if name == "beside"]
    assert summary(tmp_path)["stages"]["train"]["measurements"]["beside"]["parent"] is None


def test_a_row_has_no_interval_of_another_iterations(tmp_path: Path) -> None:
    pl, clock = lightning(), FakeClock()

    def step(self: Any, batch: Any, batch_idx: int) -> Any:
        clock.advance(MS)
        if batch_idx in (5, 6):
            with span("rare"):
                clock.advance(MS)
        return self.layer(batch[0]).sum()

    fit_tiny(pl, tmp_path, tiny_module(pl, training_step=step), tiny_loader(10), callbacks=[stopwatch(clock)])

    kept = [[interval for interval in row["intervals"] if interval[0] == "rare"] for row in rows(tmp_path)]
    assert kept == [[]] * 5 + [[["rare", MS, 2 * MS]]] * 2 + [[]] * 3


def test_a_span_in_every_step_has_its_share_in_every_epoch_and_validation(tmp_path: Path) -> None:
    pl, clock = lightning(), FakeClock()

    def step(self: Any, batch: Any, batch_idx: int) -> Any:
        clock.advance(7)
        with span("mine"):
            clock.advance(3)
        return self.layer(batch[0]).sum()

    module = tiny_module(pl, training_step=step, validation_step=lambda *args: step(*args) and None)
    fit_tiny(pl, tmp_path, module, tiny_loader(5), tiny_loader(2), callbacks=[stopwatch(clock)], max_epochs=3)

    for stage, count in (("train", 15), ("validate", 6)):
        mine = summary(tmp_path)["stages"][stage]["measurements"]["mine"]
        assert (mine["count"], mine["share"], mine["per_iteration_s"]) == (count, 0.3, 3e-9)
        assert [row["ns"]["mine"] for row in rows(tmp_path, stage)] == [3] * count


def test_what_lies_between_epochs_is_of_the_one_that_it_follows(tmp_path: Path) -> None:
    pl, clock = lightning(), FakeClock()
    ends = callback(pl, "Ends", on_train_epoch_end=spends(clock, MS))
    fit_tiny(pl, tmp_path, tiny_module(pl), tiny_loader(2), callbacks=[stopwatch(clock), ends], max_epochs=3)

    found = [(line["name"], line["epoch"]) for line in lines(tmp_path, "outside")]
    of_an_epoch = ["first_data_wait", "between_iterations/callbacks/Ends", "between_iterations/callbacks"]
    assert found == [(name, epoch) for epoch in range(3) for name in of_an_epoch]


def test_what_is_left_open_is_said_without_a_line_of_lightning(tmp_path: Path) -> None:
    def step(module: Any, batch: Any, *_: Any) -> Any:
        Stopwatch().start_meas("mine")
        return module.layer(batch[0]).sum()

    pl = lightning()
    with our_warnings() as said:
        fit_tiny(
            pl,
            tmp_path,
            tiny_module(pl, training_step=step),
            tiny_loader(1),
            callbacks=[StopwatchCallback(num_warmup_iters=0)],
        )

    assert said == [
        "lightning_timing: measurement 'mine' was still open when its iteration was finished: end it with end_meas, or "
        "use `with span(...)`; its sample is dropped, and this is not warned of again"
    ]


@pytest.mark.parametrize("name", ["forward", "optimizer_step/0"])
def test_a_phase_cannot_have_cpu_usage_and_that_is_said(name: str, tmp_path: Path) -> None:
    pl = lightning()
    with pytest.warns(UserWarning, match=f"'{name}' is a phase, whose CPU usage is not measured; choose 'iteration'"):
        fit_tiny(pl, tmp_path, tiny_module(pl), tiny_loader(2), callbacks=[StopwatchCallback(cpu_usage_meas_name=name)])

    assert summary(tmp_path)["cpu_usage"] is None


def test_cpu_usage_of_what_is_never_measured_is_said_to_be_unknown(tmp_path: Path) -> None:
    pl = lightning()
    callbacks = [StopwatchCallback(cpu_usage_meas_name="typo", num_warmup_iters=0)]
    with our_warnings() as said:
        fit_tiny(pl, tmp_path, tiny_module(pl), tiny_loader(2), callbacks=callbacks)

    unknown = "the CPU usage of 'typo' is unknown: nothing of that name was measured after warm-up"
    assert said == [f"lightning_timing: {unknown}"]


@pytest.mark.parametrize("on_misuse", ["raise", "warn"])
@pytest.mark.parametrize("by_default", ["iteration", None])
def test_what_was_chosen_for_cpu_usage_stays_so_in_a_later_call(
    on_misuse: Literal["raise", "warn"], by_default: str | None, tmp_path: Path
) -> None:
    """And its children and the machine are sampled again."""
    sampling: list[bool] = []

    def step(module: Any, batch: Any, *_: Any) -> Any:
        Stopwatch().set_cpu_usage_meas_name("mine")
        with span("mine"):
            loss = module.layer(batch[0]).sum()
        sampling.append("lightning_timing-cpu-usage" in {thread.name for thread in threading.enumerate()})
        return loss

    pl = lightning()
    timing = StopwatchCallback(num_warmup_iters=0, cpu_usage_meas_name=by_default, on_misuse=on_misuse)
    trainer = quiet_trainer(pl, tmp_path, callbacks=[timing], max_epochs=1)
    module = tiny_module(pl, training_step=step, test_step=step)
    with our_warnings() as said:
        trainer.fit(module, tiny_loader(2))
        trainer.test(module, tiny_loader(3), verbose=False)

    assert said == []
    assert sampling == [True] * 5
    assert summary(tmp_path)["cpu_usage"]["measurement"] == "mine"


def test_a_run_within_another_says_that_it_does_not_get_the_spans(tmp_path: Path) -> None:
    pl = lightning()

    def fits(self: Any, trainer: Any, module: Any) -> None:
        fit_tiny(pl, tmp_path / "inner", tiny_module(pl), tiny_loader(1), callbacks=[StopwatchCallback()])

    outer = [StopwatchCallback(), callback(pl, "Fits", on_train_start=fits)]
    with our_warnings() as said:
        fit_tiny(pl, tmp_path / "outer", tiny_module(pl), tiny_loader(1), callbacks=outer)

    assert said == [
        "lightning_timing: another run that is not over has the Stopwatch, so what you measure meanwhile, spans "
        "included, is in that run's figures and not in this one's"
    ]


# ---- ranges ----


def test_ranges_that_were_enabled_before_the_run_get_no_phases_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite, pl = Suite(monkeypatch), lightning()
    NVTXRangeWrapper().enable()
    with our_warnings() as said:
        fit_tiny(pl, tmp_path, tiny_module(pl), tiny_loader(2), callbacks=[NVTXCallback()])

    assert (NVTXRangeWrapper().is_enabled, suite.tool.events) == (True, [])
    NVTXRangeWrapper().disable()
    remedy = "the NVTXRangeWrapper was enabled before the run, so no phases are pushed: disable() it first"
    assert said == [f"lightning_timing: {remedy}"]


def warnings_of(fit: Callable[[], object], containing: str) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit()
    return [str(w.message) for w in caught if containing in str(w.message)]


def test_a_run_that_hides_an_earlier_one_in_its_folder_says_so(tmp_path: Path) -> None:
    pl = lightning()

    def fit() -> None:
        trainer = fit_tiny(pl, tmp_path, tiny_module(pl), tiny_loader(3), callbacks=[stopwatch(FakeClock())])
        trainer.test(tiny_module(pl), tiny_loader(3), verbose=False)  # the same run

    assert warnings_of(fit, "earlier run") == []
    (said,) = warnings_of(fit, "earlier run")
    assert f"{tmp_path / 'timing'} holds the record of an earlier run" in said
    assert "default_root_dir" in said
    (problem,) = read_report(tmp_path).problems
    assert "1 earlier run in the same folder left out: RUN~1 shows it" in problem


def test_a_second_stopwatch_says_where_it_writes(tmp_path: Path) -> None:
    pl = lightning()
    clock = FakeClock()

    def fit(*folders: str) -> None:
        callbacks = [stopwatch(clock, folder=folder) for folder in folders]
        fit_tiny(pl, tmp_path / "-".join(folders), tiny_module(pl), tiny_loader(3), callbacks=callbacks)

    (said,) = warnings_of(partial(fit, "timing", "timing"), "several StopwatchCallbacks")
    assert "this one writes to timing-2" in said
    assert warnings_of(partial(fit, "timing", "other"), "several StopwatchCallbacks") == []


def test_each_of_two_stopwatches_prints_when_it_was_asked_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pl, clock = lightning(), FakeClock()
    callbacks = [stopwatch(clock), stopwatch(clock, folder="other", print_every_n_iters=2)]

    fit_tiny(pl, tmp_path, tiny_module(pl), tiny_loader(5), callbacks=callbacks)

    assert re.findall(r"train: (\d) iterations", capsys.readouterr().out) == ["2", "4", "5", "5"]


def test_a_second_callback_leaves_the_ranges_to_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite, pl = Suite(monkeypatch), lightning()
    with our_warnings() as said:
        fit_tiny(pl, tmp_path, tiny_module(pl), tiny_loader(2), callbacks=[NVTXCallback(), NVTXCallback()])

    assert said == []
    assert suite.tool.events.count("+iteration") == 2


# ---- capture windows ----


def test_each_batch_has_its_own_row_once_a_capture_window_is_closed(tmp_path: Path) -> None:
    """The window's callback goes on to say which batch it is, though only the Stopwatch follows then, and late."""
    pl, clock = lightning(), FakeClock()
    window = CUDAProfilerCallback(start_step=3, num_steps=2, runtime=FakeRuntime())
    module = tiny_module(pl, training_step=step_costing(clock, MS))
    fit_tiny(pl, tmp_path, module, tiny_loader(40), callbacks=[stopwatch(clock), window])

    assert [(row["batch_idx"], row["global_step"]) for row in rows(tmp_path)] == [(i, i) for i in range(40)]
    assert [row["start_ns"] for row in rows(tmp_path)] == sorted({row["start_ns"] for row in rows(tmp_path)})


@pytest.mark.parametrize("settings", [{}, {"enable": False}, {"ranks": [1]}], ids=str)
def test_hooks_of_a_subclass_are_its_own(settings: dict[str, Any], tmp_path: Path) -> None:
    called: list[str] = []

    class Mine(StopwatchCallback):
        def on_train_batch_start(self, *args: Any) -> None:
            called.append("batch")
            super().on_train_batch_start(*args)

        def on_before_optimizer_step(self, *args: Any) -> None:
            called.append("step")
            super().on_before_optimizer_step(*args)

    with our_warnings():
        fit_tiny(lightning(), tmp_path, tiny_module(lightning()), tiny_loader(3), callbacks=[Mine(**settings)])

    assert called == ["batch", "step"] * 3


def test_a_callback_that_is_wrapped_in_its_next_run_has_its_hooks(tmp_path: Path) -> None:
    """What hands hooks on would call those that an earlier run left empty."""
    pl, timing = lightning(), stopwatch(FakeClock())
    fit_tiny(pl, tmp_path / "own", tiny_module(pl), tiny_loader(3), callbacks=[timing])

    class Wrapper(pl.Callback):
        def __getattribute__(self, name: str) -> Any:
            return (
                getattr(timing, name)
                if name.startswith(("on_", "setup", "teardown"))
                else super().__getattribute__(name)
            )

    with our_warnings():
        fit_tiny(pl, tmp_path / "wrapped", tiny_module(pl), tiny_loader(3), callbacks=[Wrapper()])

    assert len(rows(tmp_path / "wrapped")) == 3
