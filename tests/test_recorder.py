"""A recorder as callbacks drive it: how late it may be told, what it hands on, what counting takes."""

from __future__ import annotations

import sys
import threading
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest
from known_cost import FakeClock
from simulated_device import SimulatedClock, SimulatedDevice

from lightning_timing import MisuseError, Stopwatch
from lightning_timing.alike_iterations import PhaseEdges
from lightning_timing.closed_iterations import MAX_WAITING
from lightning_timing.cpu_usage import CpuUsageMeter
from lightning_timing.device_timer import DeviceTimer
from lightning_timing.distribution import EXACT_INTERVALS
from lightning_timing.late_recorder import LateRecorder
from lightning_timing.measured_iterations import IterationLabel, MeasuredIteration
from lightning_timing.phases import FIRST_DATA_WAIT, ITERATION
from lightning_timing.recorder_settings import RecorderSettings

if TYPE_CHECKING:
    from collections.abc import Callable

NS = 5
"""What `forward` takes in each iteration."""


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def new_recorder(clock: FakeClock, num_warmup_iters: int = 0, **options: Any) -> LateRecorder:
    return LateRecorder(RecorderSettings(num_warmup_iters=num_warmup_iters), clock, **options)


def go_through_one(recorder: LateRecorder, clock: FakeClock, at_last: bool = False) -> bool:
    """An iteration; returns whether it counts."""
    recorder.begin_iteration()
    recorder.enter("forward")
    clock.advance(NS)
    recorder.leave()
    recorder.close_iteration(at_last)
    return recorder.count_iteration(IterationLabel())


def tell_of_one(recorder: LateRecorder, clock: FakeClock) -> None:
    """The same, told of in one."""
    forward = recorder.stage.phases["forward"]
    begin = clock.now_ns
    clock.advance(NS)
    recorder.take_alike((PhaseEdges(forward, 0, 1, ((0, 1),)),), [(begin, clock.now_ns)], [IterationLabel()])


either_way = pytest.mark.parametrize("pass_one", [go_through_one, tell_of_one])


# ---- how late it may be told ----


def test_it_can_wait_until_iterations_are_worked_off_or_printed(clock: FakeClock) -> None:
    recorder = new_recorder(clock)

    assert (recorder.patience(), recorder.takes_whole_iterations) == (0, False)  # for the first may have compiled
    go_through_one(recorder, clock)  # worked off at once, as none was for long
    assert (recorder.patience(), recorder.takes_whole_iterations) == (MAX_WAITING - 1, True)
    go_through_one(recorder, clock)
    assert recorder.patience() == MAX_WAITING - 2
    recorder.report_every(10, lambda: None)
    assert recorder.patience() == 10 - 2 - 1
    recorder.report_every(1000, lambda: None)
    assert recorder.patience() == MAX_WAITING - 2
    recorder.report_every(2, lambda: None)
    assert recorder.patience() == 1


def test_it_cannot_wait_where_more_than_phases_matters(clock: FakeClock) -> None:
    recorder = new_recorder(clock)
    go_through_one(recorder, clock)
    recorder.choose_cpu_usage(ITERATION)
    assert (recorder.patience(), recorder.takes_whole_iterations) == (0, False)
    go_through_one(recorder, clock)
    assert (recorder.patience() > 0, recorder.takes_whole_iterations) == (True, True)
    recorder.rest()
    assert (recorder.patience(), recorder.takes_whole_iterations) == (0, False)
    go_through_one(recorder, clock)
    recorder.begin_stage("validate")
    assert (recorder.patience(), recorder.takes_whole_iterations) == (0, False)
    recorder.release()


def test_what_the_user_measures_waits_with_its_iteration(clock: FakeClock) -> None:
    """Both are told of when others have begun, in which the same is measured."""
    recorder = new_recorder(clock, keep_intervals=True)
    handed: list[MeasuredIteration] = []
    recorder.hand_on_to(handed.append)
    assert recorder.cut(clock.now_ns, nullcontext())  # for there is nothing to set apart
    recorder.user.add("mine")
    assert not recorder.cut(clock.now_ns, nullcontext())  # for no iteration was counted yet
    go_through_one(recorder, clock)
    recorder.begin_iteration()
    iterations = []
    for ns in (1, 2):
        begin = clock.now_ns
        recorder.user.start("mine")
        clock.advance(ns)
        recorder.user.end("mine")
        assert recorder.cut(clock.now_ns, nullcontext())
        iterations.append((begin, clock.now_ns))
    recorder.user.start("mine")
    recorder.take_alike((), iterations, [IterationLabel(batch_idx=n) for n in range(2)])
    recorder.work_off()

    assert [(row.ns["mine"], row.intervals) for row in handed[1:]] == [(1, [("mine", 0, 1)]), (2, [("mine", 0, 2)])]
    assert not recorder.cut(clock.now_ns, nullcontext())  # which leaves it open


def test_what_was_set_apart_at_no_end_is_in_the_iteration_that_goes_on(clock: FakeClock) -> None:
    recorder = new_recorder(clock)
    handed: list[MeasuredIteration] = []
    recorder.hand_on_to(handed.append)
    go_through_one(recorder, clock)
    recorder.begin_iteration()
    for ns in (1, 2):
        recorder.user.start("mine")
        clock.advance(ns)
        recorder.user.end("mine")
        assert recorder.cut(clock.now_ns, nullcontext())
    clock.advance(1)
    recorder.user.start("mine")
    clock.advance(3)
    recorder.user.end("mine")
    recorder.close_iteration()
    recorder.count_iteration(IterationLabel())
    recorder.work_off()

    assert handed[1].ns["mine"] == 6
    assert recorder.figures().stages["train"].measurements["mine"].count == 3


def test_it_may_be_told_late_unless_the_device_is_asked_at_each_boundary(clock: FakeClock) -> None:
    simulated = SimulatedClock()
    timer: DeviceTimer[Any] = DeviceTimer(SimulatedDevice(simulated), clock=simulated)

    assert new_recorder(clock).may_follow_late
    assert not new_recorder(clock, before_reading=lambda: None).may_follow_late
    assert not new_recorder(clock, device_timer=timer).may_follow_late


@pytest.mark.parametrize(
    "ask",
    [
        lambda recorder: recorder.work_off(),
        lambda recorder: recorder.figures(),
        lambda recorder: recorder.measured_ns,
        lambda recorder: recorder.counts_inside,
        lambda recorder: recorder.user.add("the user's"),
    ],
)
def test_whoever_asks_has_it_told_of_all_so_far(ask: Callable[[LateRecorder], object], clock: FakeClock) -> None:
    recorder = new_recorder(clock)
    times: list[int] = []
    recorder.follow_late(lambda: times.append(clock.now_ns), lambda: False)
    go_through_one(recorder, clock)
    assert times == []
    ask(recorder)

    assert times == [clock.now_ns]


@pytest.mark.parametrize("is_stuck", [False, True])
def test_what_waits_is_handed_on_by_another_thread_if_the_measuring_one_is_stuck(
    is_stuck: bool, clock: FakeClock
) -> None:
    recorder = new_recorder(clock)
    handed: list[MeasuredIteration] = []
    go_through_one(recorder, clock)
    recorder.hand_on_to(handed.append)
    recorder.follow_late(lambda: None, lambda: is_stuck)
    go_through_one(recorder, clock)
    recorder.keep_up()

    assert len(handed) == is_stuck


# ---- what it counts and hands on ----


@either_way
@pytest.mark.parametrize("keep_intervals", [False, True])
def test_intervals_are_handed_on_with_the_first_iterations_only(
    pass_one: Callable[..., object], keep_intervals: bool, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lightning_timing.phase_recorder.INTERVALS_KEPT_ITERATIONS", 2)
    recorder = new_recorder(clock, keep_intervals=keep_intervals)
    handed: list[MeasuredIteration] = []
    recorder.hand_on_to(handed.append)
    for _ in range(4):
        pass_one(recorder, clock)
    recorder.work_off()

    kept = [("forward", 0, NS)] if keep_intervals else None
    assert [iteration.intervals for iteration in handed] == [kept, kept, None, None]
    assert [iteration.ns for iteration in handed] == [{"iteration": NS, "other": 0, "forward": NS}] * 4


@either_way
def test_what_it_measured_includes_the_iterations_that_wait(pass_one: Callable[..., object], clock: FakeClock) -> None:
    recorder = new_recorder(clock)
    for _ in range(3):
        pass_one(recorder, clock)
    assert recorder.measured_ns == 3 * NS
    pass_one(recorder, clock)
    assert recorder.counts_inside == (4, 0, 0, 4)  # of `forward`
    pass_one(recorder, clock)
    assert recorder.figures().stages["train"].iterations == 5


@pytest.mark.parametrize(
    ("num_warmup_iters", "counted"), [(0, [False, False, True, True, True]), (3, [False, False, False, True, True])]
)
def test_first_iterations_that_compile_are_warm_up_and_later_ones_are_not(
    num_warmup_iters: int, counted: list[bool], clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = [0]
    monkeypatch.setattr("lightning_timing.recorder.compilations_so_far", lambda: compiled[0])
    compiled[0] = 7  # before there was a recorder
    recorder = new_recorder(clock, num_warmup_iters)
    found = []
    for compiles in (2, 1, 0, 0, 1):
        compiled[0] += compiles
        found.append(go_through_one(recorder, clock))

    assert found == counted
    assert recorder.figures().stages["train"].warmup_iterations == counted.count(False)


def test_device_times_of_iterations_that_do_not_count_are_left_out() -> None:
    clock = SimulatedClock()
    device = SimulatedDevice(clock)
    timer: DeviceTimer[Any] = DeviceTimer(device, clock=clock)
    recorder = LateRecorder(RecorderSettings(num_warmup_iters=1), clock, device_timer=timer)

    def begin_with_kernel(ms: float) -> None:
        recorder.begin_iteration()
        recorder.enter("forward")
        Stopwatch().start_meas("kernel")
        device.launch(ms)
        clock.work(1)
        Stopwatch().end_meas("kernel")
        recorder.leave()

    def count() -> bool:
        recorder.close_iteration()
        return recorder.count_iteration(IterationLabel())

    Stopwatch()._attach(recorder)
    begin_with_kernel(50)
    assert not count()
    begin_with_kernel(30)
    assert count()
    begin_with_kernel(40)
    recorder.drop_iteration()
    begin_with_kernel(20)
    assert count()
    Stopwatch().disable()

    for name in ("forward", "kernel"):
        measured = recorder.figures().stages["train"].measurements[name]
        assert (measured.count, measured.total_s) == (2, 0.002)
        assert measured.device is not None
        assert (measured.device.count, measured.device.untimed, measured.device.total_s) == (2, 0, 0.05)


def test_phases_belong_to_the_iteration_only_while_it_is_open(clock: FakeClock) -> None:
    recorder = new_recorder(clock)

    def checkpoint() -> None:
        recorder.enter("checkpoint")
        clock.advance(3)
        recorder.leave()

    checkpoint()
    recorder.begin_iteration()
    assert recorder.is_in_iteration
    checkpoint()
    recorder.drop_iteration()
    assert not recorder.is_in_iteration
    checkpoint()
    go_through_one(recorder, clock)
    checkpoint()

    measurements = recorder.figures().stages["train"].measurements
    assert measurements["checkpoint"].count == 0
    between = measurements["between_iterations/checkpoint"]
    assert (between.count, between.total_s, between.share) == (3, 9e-9, None)


def test_each_stage_has_its_own_and_warms_up_again_when_it_is_told_to(clock: FakeClock) -> None:
    recorder = new_recorder(clock, num_warmup_iters=2)

    def go_through_stages() -> None:
        for stage, iterations in (("train", 3), ("validate", 3)):
            recorder.begin_stage(stage)
            for _ in range(iterations):
                go_through_one(recorder, clock)
            recorder.enter("checkpoint")
            clock.advance(3)
            recorder.leave()

    def counts() -> dict[str, tuple[int, int, int, int]]:
        return {
            name: (
                stage.warmup_iterations,
                stage.iterations,
                stage.measurements["forward"].count,
                stage.measurements["between_iterations/checkpoint"].count,
            )
            for name, stage in recorder.figures().stages.items()
        }

    go_through_stages()
    assert counts() == {"train": (2, 1, 1, 1), "validate": (1, 2, 2, 1)}
    go_through_stages()
    assert counts() == {"train": (2, 4, 4, 2), "validate": (1, 5, 5, 2)}
    recorder.restart_warmup()
    go_through_stages()
    assert counts() == {"train": (4, 5, 5, 3), "validate": (2, 7, 7, 3)}


def test_a_stretch_of_iterations_is_metered_as_one_once_they_are_warm(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    metered: list[tuple[str, int]] = []
    monkeypatch.setattr(CpuUsageMeter, "begin", lambda _: metered.append(("begin", clock.now_ns)))
    monkeypatch.setattr(CpuUsageMeter, "end", lambda _: metered.append(("end", clock.now_ns)))
    clock.now_ns = 0
    recorder = new_recorder(clock, num_warmup_iters=2)
    recorder.choose_cpu_usage(ITERATION)
    for _ in range(4):
        go_through_one(recorder, clock)
    recorder.rest()
    clock.advance(1000)
    go_through_one(recorder, clock)
    recorder.release()

    assert metered == [("begin", 2 * NS), ("end", 4 * NS), ("begin", 1000 + 4 * NS), ("end", 1000 + 5 * NS)]


def test_the_cpu_usage_of_an_iteration_that_compiled_is_forgotten(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = [0]
    monkeypatch.setattr("lightning_timing.recorder.compilations_so_far", lambda: compiled[0])
    metered: list[tuple[str, int]] = []
    for what in ("begin", "end", "forget"):
        monkeypatch.setattr(CpuUsageMeter, what, lambda _, what=what: metered.append((what, clock.now_ns)))
    clock.now_ns = 0
    recorder = new_recorder(clock)
    recorder.choose_cpu_usage(ITERATION)
    compiled[0] = 1
    assert [go_through_one(recorder, clock) for _ in range(3)] == [False, True, True]
    recorder.rest()
    recorder.release()

    assert metered == [("begin", 0), ("forget", NS), ("begin", NS), ("end", 3 * NS)]


@pytest.mark.parametrize("num_warmup_iters", [0, 1, 2])
def test_no_cpu_usage_of_the_user_s_measurements_is_metered_in_warm_up(
    num_warmup_iters: int, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[tuple[str, int]] = []
    monkeypatch.setattr(CpuUsageMeter, "begin", lambda _: begun.append(now))
    recorder = new_recorder(clock, num_warmup_iters)
    Stopwatch()._attach(recorder)
    recorder.choose_cpu_usage("mine")
    for segment in ("first", "second"):
        if segment == "second":
            recorder.restart_warmup()
        for iteration in range(4):
            now = segment, iteration
            recorder.begin_iteration()
            Stopwatch().start_meas("mine")
            Stopwatch().end_meas("mine")
            recorder.close_iteration()
            recorder.count_iteration(IterationLabel())
    Stopwatch().disable()

    measured = range(num_warmup_iters, 4)
    assert begun == [(segment, iteration) for segment in ("first", "second") for iteration in measured]


def test_a_first_wait_is_counted_with_the_first_iteration_even_in_warm_up(clock: FakeClock) -> None:
    recorder = new_recorder(clock, num_warmup_iters=1)
    recorder.begin_first_data_wait()
    clock.advance(8)
    recorder.end_first_data_wait()
    assert not go_through_one(recorder, clock)

    waited = recorder.figures().stages["train"].measurements[FIRST_DATA_WAIT]
    assert (waited.count, waited.total_s) == (1, 8e-9)


def test_the_cpu_usage_of_a_phase_is_refused_with_what_can_be_had(clock: FakeClock) -> None:
    recorder = new_recorder(clock)
    with pytest.raises(MisuseError, match=r"'forward' is a phase.*choose 'iteration' or a measurement of yours"):
        recorder.choose_cpu_usage("forward")

    assert recorder.figures().cpu_usage is None


def test_a_first_wait_that_no_iteration_followed_is_counted_when_the_run_ends(clock: FakeClock) -> None:
    recorder = new_recorder(clock)
    recorder.begin_first_data_wait()
    clock.advance(8)
    recorder.end_first_data_wait()
    assert not recorder.figures().stages
    recorder.take_outside()

    waited = recorder.figures().stages["train"].measurements[FIRST_DATA_WAIT]
    assert (waited.count, waited.total_s) == (1, 8e-9)


# ---- what counting takes ----


@either_way
def test_the_time_from_one_iteration_to_the_next_is_the_bookkeeping(
    pass_one: Callable[..., object], clock: FakeClock
) -> None:
    recorder = new_recorder(clock)
    for _ in range(3):
        pass_one(recorder, clock)
        clock.advance(7)
        recorder.begin_iteration()
        clock.advance(100)
        recorder.drop_iteration()
        clock.advance(1000)

    assert recorder.bookkeeping_ns == 3 * 7


def test_what_follows_the_last_iteration_of_a_loop_is_no_bookkeeping(clock: FakeClock) -> None:
    recorder = new_recorder(clock)
    go_through_one(recorder, clock, at_last=True)
    clock.advance(1000)
    go_through_one(recorder, clock)

    assert recorder.bookkeeping_ns == 0


@either_way
def test_the_time_from_one_epoch_to_the_next_is_no_bookkeeping(
    pass_one: Callable[..., object], clock: FakeClock
) -> None:
    recorder = new_recorder(clock)
    pass_one(recorder, clock)
    recorder.rest()
    clock.advance(3_000)  # the next epoch's workers start
    recorder.begin_iteration()

    assert recorder.bookkeeping_ns == 0


def test_what_is_handed_on_at_the_end_is_bookkeeping_too(clock: FakeClock) -> None:
    recorder = new_recorder(clock)
    for _ in range(3):
        go_through_one(recorder, clock)
    recorder.hand_on_to(lambda _: clock.advance(11))
    recorder.release()

    assert recorder.bookkeeping_ns == 2 * 11  # the first one was handed on before


def test_a_failure_to_hand_on_leaves_nothing_running(clock: FakeClock) -> None:
    before = set(threading.enumerate())
    recorder = new_recorder(clock)
    recorder.choose_cpu_usage(ITERATION)
    for _ in range(2):
        go_through_one(recorder, clock)
    recorder.hand_on_to(lambda _: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        recorder.release()

    assert not set(threading.enumerate()) - before


def test_what_the_user_measures_does_not_pile_up_where_no_iteration_follows(clock: FakeClock) -> None:
    recorder = new_recorder(clock)
    for _ in range(2 * EXACT_INTERVALS):
        recorder.user.start("mine")
        recorder.user.end("mine")
        recorder.take_outside()

    mine = recorder.stage.user_measurements["mine"].distribution
    assert mine.count == 2 * EXACT_INTERVALS
    assert len(mine.pending) <= EXACT_INTERVALS


def test_what_the_user_measures_between_iterations_is_counted_once_though_another_thread_asks(
    clock: FakeClock,
) -> None:
    recorder = new_recorder(clock)
    is_over = threading.Event()

    def ask() -> None:
        while not is_over.is_set():
            recorder.figures()

    asking = threading.Thread(target=ask)
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        asking.start()
        for _ in range(3000):
            recorder.begin_iteration()
            recorder.close_iteration()
            recorder.count_iteration(IterationLabel())
            for _ in range(4):
                recorder.user.start("mine")
                recorder.user.end("mine")
    finally:
        sys.setswitchinterval(usual)
        is_over.set()
        asking.join()
    recorder.take_outside()

    assert recorder.figures().stages["train"].measurements["mine"].count == 12_000


def test_the_warm_up_of_another_stage_is_known_from_its_beginning(clock: FakeClock) -> None:
    recorder = new_recorder(clock, num_warmup_iters=3)
    recorder.begin_stage("validate")
    assert recorder.stage.warmup_left == 1
    assert recorder.cpu.is_warming_up

    go_through_one(recorder, clock)
    assert not recorder.cpu.is_warming_up


def test_what_it_costs_to_count_the_user_s_measurements_between_iterations_is_in_no_iteration(
    clock: FakeClock,
) -> None:
    recorder = new_recorder(clock)
    rows: list[int] = []
    recorder.hand_on_to(lambda row: rows.append(row.ns[ITERATION]), lambda _: clock.advance(1000))
    for _ in range(2):
        go_through_one(recorder, clock)
        recorder.user.start("mine")
        clock.advance(5)
        recorder.user.end("mine")
    go_through_one(recorder, clock)
    recorder.work_off()

    assert rows == [NS] * 3
