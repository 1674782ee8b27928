from __future__ import annotations

import os
import sys
import threading

import pytest

from lightning_timing.cpu_readings import CpuReading
from lightning_timing.cpu_usage import CpuUsageMeter

S = 1_000_000_000


class Bench:
    """A meter with everything scripted: set the attributes, then call the meter."""

    def __init__(self, allowed: float = 4.0) -> None:
        self.now_s = 100.0
        self.own_s = 7.0
        self.children_s: float | None = 50.0
        self.machine_busy_s: float | None = 1000.0
        self.machine_total_s: float | None = 9000.0
        self.reason: str | None = None
        self.meter = CpuUsageMeter(
            "iteration",
            clock=lambda: int(self.now_s * S),
            process_clock=lambda: int(self.own_s * S),
            reader=lambda: CpuReading(self.children_s, self.machine_busy_s, self.machine_total_s, self.reason),
            allowed=lambda: allowed,
            machine_cores=8,
        )

    def pass_time(self, seconds: float, *, own: float = 0.0, children: float = 0.0, machine: float = 0.0) -> None:
        """Lets time pass on a machine of eight cores; the rest is how many cores each kept busy."""
        self.now_s += seconds
        self.own_s += own * seconds
        if self.children_s is not None:
            self.children_s += children * seconds
        if self.machine_busy_s is not None and self.machine_total_s is not None:
            self.machine_busy_s += machine * seconds
            self.machine_total_s += 8 * seconds

    def interval(self, seconds: float, **busy: float) -> None:
        self.meter.begin()
        self.pass_time(seconds, **busy)
        self.meter.end()


def figures(meter: CpuUsageMeter) -> tuple[float | None, float | None, float | None]:
    usage = meter.result()
    return usage.process_tree_percent, usage.machine_percent, usage.share_of_allowed


def test_a_hundred_percent_is_one_core_and_the_share_is_of_the_cores_allowed() -> None:
    bench = Bench(allowed=4.0)
    bench.meter.sample()
    bench.interval(1.0, own=1.5, children=0.5, machine=4.0)
    bench.meter.sample()
    assert bench.meter.result().measurement == "iteration"
    assert figures(bench.meter) == pytest.approx((200.0, 50.0, 0.5))


def test_only_the_measurement_counts() -> None:
    bench = Bench()
    bench.meter.sample()
    for _ in range(10):
        bench.interval(0.1, own=2.0)
        bench.pass_time(0.9, own=0.0)
    bench.meter.sample()
    assert bench.meter.result().process_tree_percent == pytest.approx(200.0)


def test_windows_count_by_the_measured_time_in_them() -> None:
    bench = Bench()
    bench.meter.sample()
    bench.interval(3.0, children=1.0, machine=8.0)
    bench.meter.sample()
    bench.pass_time(5.0, children=2.0, machine=0.0)  # a validation: none of it is measured
    bench.meter.sample()
    bench.interval(1.0, children=3.0, machine=3.0)
    bench.meter.sample()
    assert figures(bench.meter)[:2] == pytest.approx(((3 * 100 + 1 * 300) / 4, (3 * 100 + 1 * 37.5) / 4))


def test_what_this_process_does_outside_of_the_measurement_is_not_others() -> None:
    """Iterations that wait beside work between them, in the same window: the machine is idle during iterations."""
    bench = Bench()
    bench.meter.sample()
    bench.interval(0.5, own=0.0, machine=1.0)
    bench.pass_time(0.5, own=7.0, machine=8.0)
    bench.meter.sample()
    # A core is in use by others throughout.
    assert figures(bench.meter)[:2] == pytest.approx((0.0, 12.5))


def test_the_machine_is_never_less_busy_than_a_part_of_it() -> None:
    """Iterations that compute beside long waits in the same window."""
    bench = Bench()
    bench.meter.sample()
    bench.interval(0.2, own=4.0, machine=4.0)
    bench.pass_time(0.8)
    bench.meter.sample()
    assert figures(bench.meter)[:2] == pytest.approx((400.0, 50.0))


def test_an_interval_longer_than_the_windows_fills_them() -> None:
    bench = Bench()
    bench.meter.begin()
    bench.meter.sample()
    for _ in range(3):
        bench.pass_time(1.0, own=1.0, children=1.0)
        bench.meter.sample()
    bench.meter.end()
    assert bench.meter.result().process_tree_percent == pytest.approx(200.0)


def test_the_first_sample_is_only_a_baseline() -> None:
    bench = Bench()
    bench.interval(1.0, own=1.0, children=1.0, machine=8.0)
    bench.meter.sample()
    assert figures(bench.meter) == (None, None, None)


def test_a_measurement_that_never_ran_is_unknown() -> None:
    bench = Bench()
    bench.meter.sample()
    bench.pass_time(1.0, own=1.0, children=1.0, machine=8.0)
    bench.meter.sample()
    assert figures(bench.meter) == (None, None, None)


def test_children_that_nobody_waited_for_never_make_the_use_negative() -> None:
    bench = Bench()
    bench.meter.sample()
    bench.children_s = 10.0
    bench.interval(1.0, own=1.0)
    bench.meter.sample()
    bench.interval(1.0, own=1.0, children=2.0)
    bench.meter.sample()
    assert bench.meter.result().process_tree_percent == pytest.approx(100.0 + 200.0 / 2)


def test_a_missing_reading_widens_the_window() -> None:
    bench = Bench()
    bench.meter.sample()
    bench.interval(1.0, children=2.0)
    known, bench.children_s = bench.children_s, None
    bench.meter.sample()
    bench.children_s = known
    bench.interval(1.0, children=1.0)
    bench.meter.sample()
    assert bench.meter.result().process_tree_percent == pytest.approx(150.0)


def test_what_cannot_be_read_is_unknown_and_says_why_once() -> None:
    bench = Bench()
    bench.children_s, bench.reason = None, "access denied"
    bench.meter.sample()
    bench.reason = "access denied again"
    bench.interval(1.0, own=1.0, machine=4.0)
    bench.meter.sample()
    assert figures(bench.meter) == (None, None, None)
    assert bench.meter.reason == "access denied"


def test_what_used_up_no_time_is_zero_and_known() -> None:
    bench = Bench()
    bench.meter.sample()
    bench.interval(1.0)
    bench.meter.sample()
    assert figures(bench.meter) == (0.0, 0.0, 0.0)


def test_an_end_without_a_begin_and_a_second_begin_count_nothing() -> None:
    bench = Bench()
    bench.meter.sample()
    bench.meter.end()
    bench.meter.begin()
    bench.pass_time(1.0, own=8.0)
    bench.interval(1.0, own=1.0)
    bench.meter.end()
    bench.meter.sample()
    assert bench.meter.result().process_tree_percent == pytest.approx(100.0)


def test_what_is_forgotten_is_in_no_figure_nor_what_else_ran_meanwhile() -> None:
    bench = Bench()
    bench.meter.sample()
    bench.interval(1.0, own=1.0, children=1.0, machine=2.0)
    bench.meter.sample()
    bench.meter.keep()
    kept = figures(bench.meter)

    bench.interval(3.0, own=4.0)
    bench.meter.begin()
    bench.pass_time(5.0, children=8.0, machine=8.0)  # a compilation by processes of its own
    bench.meter.sample()
    bench.meter.forget()
    assert figures(bench.meter) == kept == pytest.approx((200.0, 25.0, 0.5))

    bench.meter.sample()
    bench.interval(1.0, own=1.0, children=3.0, machine=4.0)
    bench.meter.sample()
    assert figures(bench.meter) == pytest.approx((300.0, 37.5, 0.75))


def test_a_sample_that_is_being_taken_as_something_is_forgotten_goes_with_it() -> None:
    bench = Bench()
    bench.meter.sample()
    bench.interval(1.0, children=1.0)

    def read() -> CpuReading:
        bench.meter.forget()
        return CpuReading(bench.children_s, bench.machine_busy_s, bench.machine_total_s)

    bench.meter._read = read
    bench.meter.sample()
    bench.interval(1.0)
    assert figures(bench.meter) == (None, None, None)


def test_two_meters_do_not_upset_each_other() -> None:
    first, second = Bench(), Bench()
    first.meter.sample()
    second.meter.sample()
    first.interval(1.0, own=1.0)
    second.interval(1.0, own=2.0, children=1.0)
    first.meter.sample()
    second.meter.sample()
    assert first.meter.result().process_tree_percent == pytest.approx(100.0)
    assert second.meter.result().process_tree_percent == pytest.approx(300.0)


class SignallingReader:
    """Tells when it is called, and by which thread."""

    def __init__(self) -> None:
        self.called = threading.Event()
        self.threads: list[threading.Thread] = []

    def __call__(self) -> CpuReading:
        self.threads.append(threading.current_thread())
        self.called.set()
        return CpuReading(float(len(self.threads)), 0.0, 0.0)


def test_the_sampler_reads_at_the_start_and_at_the_stop_and_never_on_this_thread() -> None:
    reader = SignallingReader()
    meter = CpuUsageMeter("iteration", reader=reader, allowed=lambda: 1.0)
    meter.start()
    meter.start()
    assert reader.called.wait(30)
    meter.stop()
    meter.stop()
    assert len(reader.threads) == 2
    assert threading.current_thread() not in reader.threads
    assert all(thread.daemon and not thread.is_alive() for thread in reader.threads)


def test_started_again_it_takes_a_new_baseline() -> None:
    bench = Bench()
    bench.meter.sample()
    bench.interval(1.0, own=1.0, children=1.0)
    bench.meter.sample()
    bench.interval(1.0, own=1.0, children=7.0)  # after a stop: not watched
    bench.meter.start()
    bench.meter.stop()
    assert bench.meter.result().process_tree_percent == pytest.approx(200.0)


@pytest.mark.parametrize("is_running", [False, True])
def test_a_sampler_whose_start_was_interrupted_is_not_waited_for(
    is_running: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start
    started: list[threading.Thread] = []

    def interrupted(thread: threading.Thread) -> None:
        if is_running:
            start(thread)
            started.append(thread)
        raise KeyboardInterrupt

    meter = Bench().meter
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            meter.start()
    meter.stop()
    for thread in started:
        thread.join(10)
        assert not thread.is_alive()


def test_in_a_forked_child_it_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = SignallingReader()
    meter = CpuUsageMeter("iteration", reader=reader, allowed=lambda: 1.0)
    meter.begin()
    meter.end()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    meter.start()
    meter.stop()
    assert reader.threads == []
    assert figures(meter) == (None, None, None)


def test_without_psutil_it_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psutil", None)
    with pytest.raises(ImportError, match="psutil"):
        CpuUsageMeter("iteration")
