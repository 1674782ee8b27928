"""The Stopwatch by scripted clocks: counting, warm-up, nesting, misuse, threads, the report."""

from __future__ import annotations

import copy
import pickle
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from known_cost import FakeClock

from lightning_timing import MisuseError, Stopwatch, TimingError
from lightning_timing.cpu_usage import CpuUsageMeter
from lightning_timing.failsafe import Failsafe
from lightning_timing.figures import Figures, MeasurementSummary
from lightning_timing.loop_recorder import LoopRecorder
from lightning_timing.names import MAX_MEASUREMENTS, MAX_NAME_LENGTH
from lightning_timing.phase_recorder import PhaseRecorder
from lightning_timing.recorder_settings import RecorderSettings

MS = 1_000_000


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(now_ns=0)


@pytest.fixture
def stopwatch(clock: FakeClock) -> Iterator[Stopwatch]:
    """Enabled, without warm-up."""
    stopwatch = Stopwatch()
    stopwatch.enable(num_warmup_iters=0, clock=clock)
    yield stopwatch
    stopwatch.reset()


def measure(stopwatch: Stopwatch, clock: FakeClock, name: str, ms: int) -> None:
    stopwatch.start_meas(name)
    clock.advance(ms * MS)
    stopwatch.end_meas(name)


def figures_of(name: str, stage: str = "train") -> MeasurementSummary:
    return Stopwatch().summary().stages[stage].measurements[name]


def test_there_is_one_in_the_process() -> None:
    assert Stopwatch() is Stopwatch()
    assert copy.deepcopy(Stopwatch()) is Stopwatch()
    assert pickle.loads(pickle.dumps(Stopwatch())) is Stopwatch()  # noqa: S301  # our own pickle


def test_until_enabled_every_method_does_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    stopwatch = Stopwatch()

    stopwatch.start_meas("a")
    stopwatch.end_meas("never started")
    stopwatch.start_one_time_measurement("b")
    stopwatch.end_one_time_measurement("c")
    stopwatch.set_cpu_usage_meas_name("d")
    stopwatch.finish_iter()
    stopwatch.print_eval_times()

    assert not stopwatch.is_enabled
    assert stopwatch.get_num_nonwarmup_iters_measured() == 0
    assert stopwatch.summary().stages == {}
    assert capsys.readouterr().out == ""


def test_arguments_enable_it_and_enabling_twice_is_an_error() -> None:
    stopwatch = Stopwatch(num_warmup_iters=3, print_every_n_iters=None, do_cuda_sync=False)
    try:
        assert stopwatch.is_enabled
        with pytest.raises(MisuseError, match="enabled already"):
            stopwatch.enable(3, None, False)
    finally:
        stopwatch.reset()


@pytest.mark.parametrize("bad", [{"num_warmup_iters": -1}, {"print_every_n_iters": 0}, {"on_misuse": "shrug"}])
def test_a_number_out_of_its_range_is_refused_with_what_was_given(bad: dict[str, object]) -> None:
    with pytest.raises(TimingError, match=repr(next(iter(bad.values())))):
        Stopwatch().enable(**bad)  # type: ignore[arg-type]  # the point of the test
    assert not Stopwatch().is_enabled


def test_the_mean_per_interval_and_per_iteration_differ_where_they_should(
    stopwatch: Stopwatch, clock: FakeClock
) -> None:
    for iteration in range(4):
        measure(stopwatch, clock, "twice", 10)
        measure(stopwatch, clock, "twice", 30)
        if iteration % 2:
            measure(stopwatch, clock, "sometimes", 8)
        stopwatch.finish_iter()

    twice, sometimes = figures_of("twice"), figures_of("sometimes")
    assert (twice.count, twice.total_s, twice.mean_s, twice.per_iteration_s) == (8, 0.16, 0.02, 0.04)
    assert (twice.min_s, twice.max_s, twice.p50_s) == (0.01, 0.03, 0.02)
    assert twice.std_s == pytest.approx(0.010690449676496976)
    assert (sometimes.count, sometimes.mean_s, sometimes.per_iteration_s) == (2, 0.008, 0.004)
    assert stopwatch.get_num_nonwarmup_iters_measured() == 4


def test_shares_are_of_the_iterations_time(stopwatch: Stopwatch, clock: FakeClock) -> None:
    for _ in range(3):
        measure(stopwatch, clock, "a", 30)
        clock.advance(70 * MS)
        stopwatch.finish_iter()

    assert figures_of("a").share == pytest.approx(0.3)


def test_warm_up_is_not_counted(clock: FakeClock) -> None:
    stopwatch = Stopwatch(num_warmup_iters=2, clock=clock)
    try:
        for ms in (500, 400, 10, 20):
            measure(stopwatch, clock, "a", ms)
            stopwatch.finish_iter()
        measure(stopwatch, clock, "only in an unfinished iteration", 1)
        stage = stopwatch.summary().stages["train"]
    finally:
        stopwatch.reset()

    assert (stage.iterations, stage.warmup_iterations) == (2, 2)
    assert stage.warmup_s == 0.9
    assert stage.measurements["a"].mean_s == 0.015
    assert stage.measurements["only in an unfinished iteration"].count == 0


def test_a_name_seen_only_in_warm_up_is_reported_as_not_measured(
    clock: FakeClock, capsys: pytest.CaptureFixture[str]
) -> None:
    stopwatch = Stopwatch(num_warmup_iters=1, clock=clock)
    try:
        measure(stopwatch, clock, "early", 5)
        stopwatch.finish_iter()
        measure(stopwatch, clock, "late", 5)
        stopwatch.finish_iter()
        stopwatch.print_eval_times()
        early = figures_of("early")
    finally:
        stopwatch.reset()

    assert (early.count, early.mean_s, early.total_s, early.share) == (0, None, None, None)
    out = capsys.readouterr().out
    assert "not measured (no interval that counts): early" in out
    assert "finish_iter" not in out


def test_a_plain_loop_that_finishes_no_iteration_is_told_why_there_are_no_figures(
    clock: FakeClock, capsys: pytest.CaptureFixture[str]
) -> None:
    stopwatch = Stopwatch(num_warmup_iters=1, clock=clock)
    try:
        measure(stopwatch, clock, "a", 5)
        stopwatch.print_eval_times()
    finally:
        stopwatch.reset()

    assert "finish_iter() was never called" in capsys.readouterr().out


def test_an_interval_that_straddles_the_end_of_warm_up_is_dropped(clock: FakeClock) -> None:
    stopwatch = Stopwatch(num_warmup_iters=1, clock=clock)
    try:
        stopwatch.start_meas("a")
        clock.advance(MS)
        stopwatch.finish_iter()
        clock.advance(MS)
        stopwatch.end_meas("a")
        measure(stopwatch, clock, "a", 4)
        stopwatch.finish_iter()
        a = figures_of("a")
    finally:
        stopwatch.reset()

    assert (a.count, a.mean_s) == (1, 0.004)


def test_nested_measurements_form_a_tree(stopwatch: Stopwatch, clock: FakeClock) -> None:
    for _ in range(2):
        stopwatch.start_meas("outer")
        measure(stopwatch, clock, "first", 1)
        stopwatch.start_meas("second")
        measure(stopwatch, clock, "inmost", 1)
        stopwatch.end_meas("second")
        stopwatch.end_meas("outer")
        measure(stopwatch, clock, "apart", 1)
        stopwatch.finish_iter()

    parents = {name: m.parent for name, m in stopwatch.summary().stages["train"].measurements.items()}
    assert parents == {"outer": None, "first": "outer", "second": "outer", "inmost": "second", "apart": None}


def test_crossing_measurements_are_no_parents_of_each_other(stopwatch: Stopwatch, clock: FakeClock) -> None:
    stopwatch.start_meas("a")
    clock.advance(MS)
    stopwatch.start_meas("b")
    clock.advance(MS)
    stopwatch.end_meas("a")
    clock.advance(MS)
    stopwatch.end_meas("b")
    stopwatch.finish_iter()

    assert (figures_of("a").parent, figures_of("b").parent) == (None, None)
    assert (figures_of("a").mean_s, figures_of("b").mean_s) == (0.002, 0.002)


# ---- misuse ----


def test_ending_what_was_not_started_names_the_measurement_and_the_place(stopwatch: Stopwatch) -> None:
    with pytest.raises(MisuseError, match=r"'a' was ended without having been started.*test_stopwatch\.py:\d+"):
        stopwatch.end_meas("a")


def test_starting_twice_is_misuse_and_the_sample_is_dropped(stopwatch: Stopwatch, clock: FakeClock) -> None:
    stopwatch.start_meas("a")
    with pytest.raises(
        MisuseError, match=r"'a' was started twice: .*give each level a name of its own.*test_stopwatch\.py:\d+"
    ):
        stopwatch.start_meas("a")
    clock.advance(MS)
    stopwatch.end_meas("a")
    measure(stopwatch, clock, "a", 3)
    stopwatch.finish_iter()

    assert (figures_of("a").count, figures_of("a").mean_s) == (1, 0.003)


def test_an_iteration_finished_with_something_open_is_misuse_and_still_counts(
    stopwatch: Stopwatch, clock: FakeClock
) -> None:
    stopwatch.start_meas("a")
    with pytest.raises(
        MisuseError,
        match=r"'a' was still open when its iteration was finished: end it with end_meas, or use `with span",
    ):
        stopwatch.finish_iter()
    clock.advance(MS)
    stopwatch.end_meas("a")
    measure(stopwatch, clock, "a", 3)
    stopwatch.finish_iter()

    assert stopwatch.get_num_nonwarmup_iters_measured() == 2
    assert (figures_of("a").count, figures_of("a").total_s) == (1, 0.003)


@pytest.mark.parametrize("started", [True, False])
def test_a_one_time_measurement_is_made_once(stopwatch: Stopwatch, clock: FakeClock, started: bool) -> None:
    stopwatch.start_one_time_measurement("load")
    clock.advance(2 * MS)
    stopwatch.end_one_time_measurement("load")
    with pytest.raises(MisuseError, match="'load' was"):
        (stopwatch.start_one_time_measurement if started else stopwatch.end_one_time_measurement)("load")

    assert stopwatch.summary().one_time == {"load": 0.002}


@pytest.mark.parametrize(
    ("calls", "consequence"),
    [("se s", "its first time stands"), ("se e", "its first time stands"), (" e", "it is not measured")],
)
def test_what_follows_of_a_one_time_measurement_out_of_order_is_said(calls: str, consequence: str) -> None:
    stopwatch = Stopwatch(num_warmup_iters=0, on_misuse="warn")
    in_order, out_of_order = calls.split(" ")
    call = {"s": stopwatch.start_one_time_measurement, "e": stopwatch.end_one_time_measurement}
    for each in in_order:
        call[each]("load")
    with pytest.warns(UserWarning, match=f"; {consequence}, and this is not warned of again"):
        call[out_of_order]("load")
    stopwatch.disable()

    assert list(stopwatch.summary().one_time) == ["load"] * bool(in_order)


def test_warnings_instead_of_errors_come_once_a_name_and_keep_the_rest_right(clock: FakeClock) -> None:
    stopwatch = Stopwatch(num_warmup_iters=0, on_misuse="warn", clock=clock)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(3):
                stopwatch.end_meas("a")
                stopwatch.start_meas("b")
                stopwatch.start_meas("b")
                stopwatch.end_meas("b")
                stopwatch.end_meas("d")
                measure(stopwatch, clock, "c", 7)
                stopwatch.finish_iter()
        c, b = figures_of("c"), figures_of("b")
    finally:
        stopwatch.reset()

    assert [str(w.message).split("'")[1] for w in caught] == ["a", "b", "d"]
    assert all(w.filename == __file__ for w in caught)
    assert (c.count, c.mean_s, b.count) == (3, 0.007, 0)


# ---- names ----


@pytest.mark.parametrize(
    "name", ["a/b", "..", "\x00\x1b[31m", "🚀", "\u202egnp", "<b>&amp;</b>", " ", "x" * MAX_NAME_LENGTH]
)
def test_a_strange_name_is_kept_exactly(stopwatch: Stopwatch, clock: FakeClock, name: str) -> None:
    measure(stopwatch, clock, name, 1)
    stopwatch.finish_iter()

    assert figures_of(name).count == 1


@pytest.mark.parametrize("name", ["", "x" * 100_000, "\ud800", None, 3, ["a"], b"a"])
def test_what_cannot_be_a_name_is_refused_at_once(stopwatch: Stopwatch, name: object) -> None:
    with pytest.raises(MisuseError, match="name"):
        stopwatch.start_meas(name)  # type: ignore[arg-type]  # the point of the test
    with pytest.raises(MisuseError):
        stopwatch.end_meas(name)  # type: ignore[arg-type]  # the point of the test
    with pytest.raises(MisuseError, match="name"):
        stopwatch.start_one_time_measurement(name)  # type: ignore[arg-type]  # the point of the test
    with pytest.raises(MisuseError):
        stopwatch.end_one_time_measurement(name)  # type: ignore[arg-type]  # the point of the test


def test_names_made_up_on_the_way_are_capped(clock: FakeClock) -> None:
    stopwatch = Stopwatch(num_warmup_iters=0, on_misuse="warn", clock=clock)
    try:
        for i in range(MAX_MEASUREMENTS):
            measure(stopwatch, clock, f"step {i}", 1)
        with pytest.warns(UserWarning, match=f"there are {MAX_MEASUREMENTS} different names already"):
            stopwatch.start_meas("one more")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            stopwatch.end_meas("one more")
            measure(stopwatch, clock, "and one more", 1)
        stopwatch.finish_iter()
        names = stopwatch.summary().stages["train"].measurements
    finally:
        stopwatch.reset()

    assert len(names) == MAX_MEASUREMENTS


# ---- time ----


def test_clock_readings_that_repeat_give_zero_and_not_nothing(stopwatch: Stopwatch, clock: FakeClock) -> None:
    for _ in range(2):
        measure(stopwatch, clock, "a", 0)
        stopwatch.finish_iter()

    a = figures_of("a")
    assert (a.count, a.mean_s, a.std_s, a.share) == (2, 0.0, 0.0, None)


# ---- threads ----


def test_one_name_open_on_many_threads_is_measured_on_each(stopwatch: Stopwatch) -> None:
    all_open = threading.Barrier(8)

    def work() -> None:
        for _ in range(50):
            stopwatch.start_meas("shared")
            stopwatch.end_meas("shared")
        stopwatch.start_meas("shared")
        all_open.wait(timeout=30)
        stopwatch.end_meas("shared")

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stopwatch.finish_iter()

    assert figures_of("shared").count == 8 * 51


def test_a_measurement_is_ended_on_the_thread_that_started_it(stopwatch: Stopwatch, clock: FakeClock) -> None:
    stopwatch.start_meas("a")
    errors: list[Exception] = []

    def end() -> None:
        try:
            stopwatch.end_meas("a")
        except MisuseError as error:
            errors.append(error)

    thread = threading.Thread(target=end)
    thread.start()
    thread.join()
    clock.advance(MS)
    stopwatch.end_meas("a")
    stopwatch.finish_iter()

    assert len(errors) == 1
    assert figures_of("a").mean_s == 0.001


# ---- stages ----


def test_an_interval_that_ends_in_another_stage_is_that_of_the_one_it_began_in(clock: FakeClock) -> None:
    stopwatch = Stopwatch()
    recorder = PhaseRecorder(RecorderSettings(num_warmup_iters=0), clock)
    stopwatch._attach(recorder)
    for _ in range(2):
        stopwatch.start_meas("a")
        clock.advance(MS)
        recorder.begin_stage("validate")
        clock.advance(2 * MS)
        stopwatch.end_meas("a")
        measure(stopwatch, clock, "b", 4)
        recorder.begin_stage("train")
    recorder.take_outside()
    stopwatch.disable()

    assert (figures_of("a").count, figures_of("a").total_s) == (2, 0.006)
    assert (figures_of("b", "validate").count, figures_of("b", "validate").total_s) == (2, 0.008)
    assert [list(stopwatch.summary().stages[stage].measurements) for stage in ("train", "validate")] == [
        ["iteration", "other", "a"],
        ["iteration", "other", "b"],
    ]


# ---- switching on and off ----


def test_figures_stay_readable_after_disable_and_are_gone_after_reset(
    clock: FakeClock, capsys: pytest.CaptureFixture[str]
) -> None:
    stopwatch = Stopwatch(num_warmup_iters=0, clock=clock)
    measure(stopwatch, clock, "a", 1)
    stopwatch.finish_iter()
    stopwatch.disable()
    measure(stopwatch, clock, "a", 1)
    stopwatch.finish_iter()

    assert not stopwatch.is_enabled
    assert (figures_of("a").count, stopwatch.get_num_nonwarmup_iters_measured()) == (1, 1)
    stopwatch.reset()
    assert stopwatch.summary().stages == {}


@pytest.mark.parametrize("switch_off", [Stopwatch.disable, Stopwatch.reset])
def test_switched_off_it_leaves_nothing_running(stopwatch: Stopwatch, switch_off: Callable[[Stopwatch], None]) -> None:
    before = set(threading.enumerate())

    def samplers() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread not in before]

    stopwatch.set_cpu_usage_meas_name("a")
    assert samplers() == ["lightning_timing-cpu-usage"]
    switch_off(stopwatch)
    assert samplers() == []


@pytest.mark.parametrize(("do_cuda_sync", "took_ms"), [(False, 10), (True, 11)])
def test_the_device_is_waited_for_at_each_edge_only_if_that_was_asked_for(
    do_cuda_sync: bool, took_ms: int, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lightning_timing.stopwatch.synchronize", lambda: clock.advance(MS))
    stopwatch = Stopwatch(num_warmup_iters=0, do_cuda_sync=do_cuda_sync, clock=clock)
    for _ in range(2):
        measure(stopwatch, clock, "a", 10)
        stopwatch.finish_iter()
    stopwatch.disable()

    assert (figures_of("a").min_s, figures_of("a").max_s) == (took_ms / 1000, took_ms / 1000)


def test_it_prints_every_so_many_counted_iterations(clock: FakeClock, capsys: pytest.CaptureFixture[str]) -> None:
    stopwatch = Stopwatch(num_warmup_iters=1, print_every_n_iters=2, clock=clock)
    try:
        printed = []
        for _ in range(6):
            measure(stopwatch, clock, "a", 1)
            stopwatch.finish_iter()
            printed.append("train:" in capsys.readouterr().out)
    finally:
        stopwatch.reset()

    assert printed == [False, False, True, False, True, False]


def test_it_prints_though_the_iteration_was_finished_with_something_open(
    clock: FakeClock, capsys: pytest.CaptureFixture[str]
) -> None:
    stopwatch = Stopwatch(num_warmup_iters=0, print_every_n_iters=2, clock=clock)
    try:
        for _ in range(2):
            stopwatch.start_meas("a")
            with pytest.raises(MisuseError, match=r"still open.*\(at .*test_stopwatch.py:\d+\)"):
                stopwatch.finish_iter()
            stopwatch.end_meas("a")
    finally:
        stopwatch.reset()

    assert capsys.readouterr().out.count("train: 2 iterations") == 1


def test_what_a_print_takes_is_in_no_iteration(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stopwatch, "_render", staticmethod(lambda *_: str(clock.advance(500 * MS))))
    stopwatch = Stopwatch(num_warmup_iters=0, print_every_n_iters=1, clock=clock)
    try:
        for _ in range(3):
            measure(stopwatch, clock, "a", 10)
            stopwatch.finish_iter()
        share = figures_of("a").share
    finally:
        stopwatch.reset()

    assert share == 1.0


def test_a_print_that_failed_is_not_tried_again(clock: FakeClock) -> None:
    tried: list[str] = []

    def refuse(text: str) -> None:
        tried.append(text)
        raise BrokenPipeError("nobody listens")

    stopwatch, recorder = Stopwatch(), LoopRecorder(RecorderSettings(num_warmup_iters=0), clock)
    stopwatch._attach(recorder, printer=refuse, printing=Failsafe("the printed report", strict=False))
    recorder.report_every(1, stopwatch.print_eval_times)
    with pytest.warns(UserWarning, match="the printed report is off.*nobody listens"):
        stopwatch.finish_iter()
    stopwatch.finish_iter()
    stopwatch.disable()

    assert (len(tried), stopwatch.get_num_nonwarmup_iters_measured()) == (1, 2)


def test_figures_that_cannot_be_had_are_not_printed(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(stage: str | None = None) -> Figures:
        raise RuntimeError("no figures")

    printed: list[str] = []
    stopwatch, recorder = Stopwatch(), LoopRecorder(RecorderSettings(num_warmup_iters=0), clock)
    monkeypatch.setattr(recorder, "figures", fail)
    stopwatch._attach(recorder, printer=printed.append, failsafe=Failsafe("the Stopwatch", strict=False))
    with pytest.warns(UserWarning, match="no figures") as warned:
        stopwatch.print_eval_times()
    nothing = stopwatch.summary()
    stopwatch.disable()

    assert nothing == Figures(stages={}, one_time={}, cpu_usage=None)
    assert (printed, ["the Stopwatch is off" in str(w.message) for w in warned]) == ([], [True])


@pytest.mark.parametrize("chosen_late", [False, True])
@pytest.mark.parametrize("do_cuda_sync", [False, True])
def test_cpu_usage_is_metered_round_each_interval_of_the_chosen_measurement(
    chosen_late: bool, do_cuda_sync: bool, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    metered: list[tuple[str, int]] = []
    monkeypatch.setattr(CpuUsageMeter, "begin", lambda _: metered.append(("begin", clock.now_ns // MS)))
    monkeypatch.setattr(CpuUsageMeter, "end", lambda _: metered.append(("end", clock.now_ns // MS)))
    stopwatch = Stopwatch(num_warmup_iters=0, do_cuda_sync=do_cuda_sync, clock=clock)
    if chosen_late:
        measure(stopwatch, clock, "chosen", 0)
    stopwatch.set_cpu_usage_meas_name("chosen")
    for _ in range(2):
        stopwatch.start_meas("other")
        clock.advance(2 * MS)
        measure(stopwatch, clock, "chosen", 5)
        clock.advance(MS)
        stopwatch.end_meas("other")
        stopwatch.finish_iter()
    stopwatch.disable()

    assert metered == [("begin", 2), ("end", 7), ("begin", 10), ("end", 15)]


def test_an_interval_whose_sample_is_dropped_is_in_no_cpu_usage(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    metered: list[str] = []
    for what in ("begin", "end", "drop"):
        monkeypatch.setattr(CpuUsageMeter, what, lambda _, what=what: metered.append(what))
    stopwatch = Stopwatch(num_warmup_iters=0, on_misuse="warn", clock=clock)
    stopwatch.set_cpu_usage_meas_name("chosen")
    with warnings.catch_warnings(record=True):
        stopwatch.start_meas("chosen")
        stopwatch.finish_iter()
        stopwatch.end_meas("chosen")
        stopwatch.start_meas("chosen")
        stopwatch.start_meas("chosen")
        stopwatch.end_meas("chosen")
    measure(stopwatch, clock, "chosen", 5)
    metered_by_now = list(metered)
    stopwatch.reset()

    assert metered_by_now == ["begin", "drop", "begin", "drop", "begin", "end"]


def test_an_interval_that_is_open_at_the_end_is_in_no_cpu_usage(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CpuUsageMeter, "start", lambda _: None)
    stopwatch = Stopwatch(num_warmup_iters=0, clock=clock)
    stopwatch.set_cpu_usage_meas_name("chosen")
    recorder = stopwatch._recorder
    assert recorder is not None
    stopwatch.start_meas("chosen")
    stopwatch.disable()

    assert recorder.cpu.reason == (
        "the CPU usage of 'chosen' is unknown: nothing of that name was measured after warm-up"
    )
    stopwatch.reset()


def test_the_cpu_usage_of_a_measurement_in_an_iteration_that_compiled_is_forgotten(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = [0]
    monkeypatch.setattr("lightning_timing.recorder.compilations_so_far", lambda: compiled[0])
    metered: list[str] = []
    monkeypatch.setattr(CpuUsageMeter, "forget", lambda _: metered.append("forget"))
    stopwatch = Stopwatch(num_warmup_iters=0, clock=clock)
    stopwatch.set_cpu_usage_meas_name("chosen")
    for compiled[0] in (1, 2, 2, 2):
        measure(stopwatch, clock, "chosen", 5)
        stopwatch.finish_iter()
    stopwatch.reset()

    assert metered == ["forget", "forget"]


@pytest.mark.parametrize(("bad", "why"), [(5, "not int"), ("", "empty"), ("x" * 600, "600"), (["a"], "not list")])
def test_the_cpu_usage_of_what_is_no_name_is_refused(bad: Any, why: str, stopwatch: Stopwatch) -> None:
    with pytest.raises(MisuseError, match=why):
        stopwatch.set_cpu_usage_meas_name(bad)

    assert stopwatch.summary().cpu_usage is None


def test_cpu_usage_is_measured_of_one_measurement_only(stopwatch: Stopwatch) -> None:
    stopwatch.set_cpu_usage_meas_name("a")
    stopwatch.set_cpu_usage_meas_name("a")
    with pytest.raises(TimingError, match="'a' already"):
        stopwatch.set_cpu_usage_meas_name("b")
    for _ in range(3):
        stopwatch.start_meas("a")
        stopwatch.end_meas("a")
        stopwatch.finish_iter()

    usage = stopwatch.summary().cpu_usage
    assert usage is not None
    assert usage.measurement == "a"
