"""Iterations wait for each other before they are taken, not for long, and never for whoever asks for figures."""

from __future__ import annotations

import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError  # its own until Python 3.11
from typing import TYPE_CHECKING

import pytest
from known_cost import FakeClock

from lightning_timing.closed_iterations import MAX_WAIT_NS, MAX_WAITING, ClosedIteration, ClosedIterations
from lightning_timing.distribution import EXACT_INTERVALS
from lightning_timing.measured_iterations import NOTHING, IterationLabel, MeasuredIteration, MeasuredOutside
from lightning_timing.phase_recorder import PhaseRecorder
from lightning_timing.recorder_settings import RecorderSettings
from lightning_timing.stage_totals import StageTotals

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightning_timing.figures import StageSummary

PATIENCE_S = 60


class Handed:
    """Iterations that were added at given moments, and those that were handed on since."""

    def __init__(self) -> None:
        self.closed = ClosedIterations()
        self.stage = StageTotals("train", 0)
        self.batches: list[int] = []
        self.closed.on_iteration = self.take
        self.add(-1, end_ns=5 * MAX_WAIT_NS)  # none came for long
        self.batches.clear()

    def take(self, iteration: MeasuredIteration) -> None:
        self.batches.append(iteration.label.batch_idx)

    def add(self, batch: int, *, end_ns: int) -> None:
        closed: ClosedIteration = self.stage, IterationLabel(batch_idx=batch), end_ns - 10, 10, 0, [], NOTHING, False
        self.closed.add(closed)


def test_as_many_wait_as_are_worth_the_while() -> None:
    handed = Handed()
    for batch in range(2 * MAX_WAITING):
        handed.add(batch, end_ns=5 * MAX_WAIT_NS + batch)
        assert len(handed.batches) == (batch + 1) // MAX_WAITING * MAX_WAITING
    assert handed.batches == list(range(2 * MAX_WAITING))


def test_none_waits_longer_than_a_second_if_another_ends() -> None:
    handed = Handed()
    for batch in range(3):
        handed.add(batch, end_ns=6 * MAX_WAIT_NS - 3 + batch)
    assert handed.batches == []
    handed.add(3, end_ns=6 * MAX_WAIT_NS)
    assert handed.batches == [0, 1, 2, 3]
    handed.add(4, end_ns=7 * MAX_WAIT_NS - 1)
    assert handed.batches == [0, 1, 2, 3]


def test_one_that_took_a_second_itself_does_not_wait() -> None:
    handed = Handed()
    begin_ns = 5 * MAX_WAIT_NS
    handed.closed.add((handed.stage, IterationLabel(batch_idx=0), begin_ns, MAX_WAIT_NS, 0, [], NOTHING, False))
    assert handed.batches == [0]


def test_what_was_taken_does_not_pile_up() -> None:
    handed = Handed()
    for batch in range(5000):
        handed.add(batch, end_ns=5 * MAX_WAIT_NS + batch)
    handed.closed.work_off()

    distributions = [measurement.distribution for measurement in handed.stage.phases.values()]
    assert [distribution.count for distribution in distributions] == [5001, 5001]
    assert max(len(distribution.pending) for distribution in distributions) <= EXACT_INTERVALS + 2 * MAX_WAITING


def test_whoever_asks_has_all_of_them() -> None:
    handed = Handed()
    handed.add(0, end_ns=5 * MAX_WAIT_NS + 1)
    handed.closed.work_off()
    assert handed.batches == [0]


def test_what_another_thread_is_at_is_waited_for_or_left_to_it() -> None:
    handed = Handed()
    is_at_it, may_go_on = threading.Event(), threading.Event()

    def take_slowly(iteration: MeasuredIteration) -> None:
        is_at_it.set()
        assert may_go_on.wait(PATIENCE_S)
        handed.take(iteration)

    handed.closed.on_iteration = take_slowly
    handed.add(0, end_ns=5 * MAX_WAIT_NS + 1)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(handed.closed.work_off)
        assert is_at_it.wait(PATIENCE_S)
        handed.closed.work_off(wait=False)
        second = pool.submit(lambda: (handed.closed.work_off(), handed.batches[:])[1])
        with pytest.raises(FutureTimeoutError):
            second.result(0.05)
        may_go_on.set()
        assert second.result(PATIENCE_S) == [0]
        first.result(PATIENCE_S)


def trained(recorder: PhaseRecorder, iterations: int) -> None:
    """So many iterations of a loop."""
    for _ in range(iterations):
        recorder.begin_iteration()
        recorder.enter("forward")
        recorder.leave()
        recorder.close_iteration()
        recorder.count_iteration(IterationLabel(samples=2))


def new_recorder(clock: Callable[[], int] | None = None) -> PhaseRecorder:
    settings = RecorderSettings(num_warmup_iters=0)
    return PhaseRecorder(settings) if clock is None else PhaseRecorder(settings, clock)


def check_consistent(stage: StageSummary) -> None:
    counts = {stage.measurements[name].count for name in ("iteration", "other", "forward") if stage.iterations}
    assert counts <= {stage.iterations}
    assert (stage.samples or 0) == 2 * stage.iterations


@pytest.mark.usefixtures("_threads_change_all_the_time")
def test_the_figures_that_another_thread_asks_for_are_whole() -> None:
    recorder = new_recorder()

    def ask_again_and_again() -> None:
        counted = 0
        while counted < 2000:
            counted = recorder.stage.iterations
            stages = recorder.figures().stages
            if stages:
                check_consistent(stages["train"])
                assert stages["train"].iterations >= counted - 1  # the last one may be counted and not added yet

    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask_again_and_again)
        iterations = 0
        while not asking.done():
            trained(recorder, 10)
            iterations += 10
        asking.result()
    assert recorder.figures().stages["train"].iterations == iterations


def test_a_handler_of_a_signal_may_ask_for_figures_amid_the_work() -> None:
    recorder = new_recorder()
    batches: list[int] = []
    seen: list[StageSummary] = []

    def take(iteration: MeasuredIteration) -> None:
        batches.append(iteration.begin_ns)
        if len(batches) in (3, 70):
            signal.raise_signal(signal.SIGINT)

    recorder.hand_on_to(take)
    before = signal.signal(signal.SIGINT, lambda *_: seen.append(recorder.figures().stages["train"]))
    try:
        trained(recorder, 100)
        recorder.work_off()
    finally:
        signal.signal(signal.SIGINT, before)

    assert len(seen) == 2
    for stage in seen:
        check_consistent(stage)
    assert len(batches) == len(set(batches)) == 100


def test_what_lies_between_iterations_is_handed_on_between_them() -> None:
    clock = FakeClock()
    recorder = new_recorder(clock)
    handed: list[str] = []

    def take(iteration: MeasuredIteration) -> None:
        handed.append(f"iteration {iteration.begin_ns}")

    def take_outside(outside: MeasuredOutside) -> None:
        handed.append(f"{outside.name} {outside.end_ns}")

    recorder.hand_on_to(take, take_outside)
    for moment in (1, 2):
        clock.now_ns = moment
        trained(recorder, 1)
        recorder.enter("checkpoint")
        recorder.leave()

    checkpoint = "between_iterations/checkpoint"
    assert handed == ["iteration 1", f"{checkpoint} 1", "iteration 2", f"{checkpoint} 2"]
