from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from threading import Thread

import pytest
from simulated_device import MS, SimulatedClock, SimulatedDevice, SimulatedEvent, Stream

from lightning_timing.device import synchronize
from lightning_timing.device_overlap import LAUNCH_NS
from lightning_timing.device_timer import DeviceTimer, DeviceTimes


class Bench:
    """A host, a device and a timer, with intervals as a training makes them."""

    def __init__(self, max_events: int = 4096) -> None:
        self.clock = SimulatedClock()
        self.device = SimulatedDevice(self.clock)
        self.timer: DeviceTimer[int] = DeviceTimer(self.device, clock=self.clock, max_events=max_events)
        self._ended = 0

    @contextmanager
    def interval(self, measurement: str) -> Iterator[None]:
        start = self.timer.mark()
        yield
        self.timer.add(measurement, (start, self.timer.mark()))

    def end_iteration(self) -> None:
        self._ended += 1
        self.timer.end_iteration(self._ended, self.timer.mark())

    def iteration(self, kernel_ms: float, host_ms: float) -> None:
        with self.interval("forward"):
            self.device.launch(kernel_ms)
            self.clock.work(host_ms)
        self.end_iteration()


@pytest.fixture
def bench() -> Bench:
    return Bench()


def samples_ms(times: DeviceTimes[int]) -> dict[str, list[float]]:
    return {name: [ns / MS for ns in samples] for name, samples in times.samples_ns.items()}


def ahead_ms(resolved: list[DeviceTimes[int]]) -> list[float | None]:
    return [None if times.ahead_ns is None else times.ahead_ns / MS for times in resolved]


# ---- asynchronous work (A2) ----


def test_a_kernel_counts_where_it_was_enqueued_though_the_host_waits_for_it_elsewhere(bench: Bench) -> None:
    with bench.interval("forward"):
        bench.device.launch(50.0)
        bench.clock.work(1.0)
    with bench.interval("backward"):
        bench.device.launch(20.0)
        bench.clock.work(1.0)
        host_begin = bench.clock()
        bench.device.synchronize()
    assert (bench.clock() - host_begin) / MS == 68.0, "a host timer puts both kernels here"
    bench.end_iteration()
    (times,) = bench.timer.collect()
    assert samples_ms(times) == {"forward": [50.0], "backward": [20.0]}
    assert not times.untimed


def test_a_kernel_on_a_side_stream_counts_by_that_streams_events(bench: Bench) -> None:
    side = bench.device.new_stream()
    bench.device.launch(5.0)
    with bench.device.on(side), bench.interval("copy"):
        bench.device.launch(30.0)
    bench.end_iteration()
    bench.clock.work(10.0)
    assert bench.timer.collect() == [], "the default stream is done, the side stream is not"
    bench.clock.work(20.0)
    (times,) = bench.timer.collect()
    assert samples_ms(times) == {"copy": [30.0]}


def test_synchronizing_waits_for_the_device_that_it_was_given_and_no_other() -> None:
    clock = SimulatedClock()
    devices = SimulatedDevice(clock), SimulatedDevice(clock)
    for device in devices:
        device.launch(30.0)
    with devices[1].on(devices[1].new_stream()):
        devices[1].launch(70.0)
    begin = clock()
    synchronize(devices[1])
    assert (clock() - begin) / MS == 70.0
    assert [device.synchronizations for device in devices] == [0, 1]


def test_a_paused_interval_is_the_sum_of_its_parts(bench: Bench) -> None:
    begin = bench.timer.mark()
    bench.device.launch(3.0)
    paused = bench.timer.mark()
    bench.device.launch(40.0)
    resumed = bench.timer.mark()
    bench.device.launch(4.0)
    end = bench.timer.mark()
    bench.timer.add("forward", (paused, resumed))
    bench.timer.add("optimizer_step", (begin, paused), (resumed, end))
    bench.timer.end_iteration(1, end)
    bench.clock.work(47.0)
    (times,) = bench.timer.collect()
    assert samples_ms(times) == {"forward": [40.0], "optimizer_step": [7.0]}
    assert bench.device.events_made == 4, "an edge that two intervals share takes one event"


def test_every_interval_of_an_iteration_is_a_sample(bench: Bench) -> None:
    for kernel_ms in (1.0, 2.0, 3.0):
        with bench.interval("loss"):
            bench.device.launch(kernel_ms)
    bench.end_iteration()
    bench.clock.work(6.0)
    (times,) = bench.timer.collect()
    assert samples_ms(times) == {"loss": [1.0, 2.0, 3.0]}


# ---- later, in order, without waiting ----


def test_iterations_come_back_in_order_when_the_device_has_got_to_them(bench: Bench) -> None:
    for _ in range(3):
        bench.iteration(kernel_ms=10.0, host_ms=1.0)
    before = bench.clock()
    assert bench.timer.collect() == []
    assert bench.clock() == before
    bench.clock.work(18.0)
    assert [times.key for times in bench.timer.collect()] == [1, 2]
    bench.clock.work(10.0)
    assert [times.key for times in bench.timer.collect()] == [3]
    assert bench.timer.collect() == []
    assert bench.device.synchronizations == 0


def test_while_the_device_is_behind_collecting_asks_one_question(bench: Bench) -> None:
    for _ in range(10):
        bench.iteration(kernel_ms=10.0, host_ms=0.0)
    asked_before = bench.device.queries
    bench.timer.collect()
    assert bench.device.queries - asked_before == 1


def test_an_iteration_of_many_events_in_order_is_asked_about_once(bench: Bench) -> None:
    for _ in range(20):
        with bench.interval("forward"):
            bench.device.launch(1.0)
    bench.end_iteration()
    bench.clock.work(20.0)
    asked_before = bench.device.queries
    (times,) = bench.timer.collect()
    assert len(times.samples_ns["forward"]) == 20
    assert bench.device.queries - asked_before == 1


def test_an_event_of_another_thread_is_asked_about_since_it_may_be_recorded_after_the_last_one(bench: Bench) -> None:
    def on_another_thread(work: Callable[[], None]) -> None:
        thread = Thread(target=work)
        thread.start()
        thread.join()

    def end_of_copy() -> None:
        bench.device.launch(30.0)
        bench.timer.add("copy", (start, bench.timer.mark()))

    start = bench.timer.mark()
    end = bench.timer.mark()
    on_another_thread(end_of_copy)
    bench.timer.end_iteration(1, end)
    assert bench.timer.collect() == [], "the last event of the loop's thread is ready, the other thread's is not"
    bench.clock.work(30.0)
    (times,) = bench.timer.collect()
    assert samples_ms(times) == {"copy": [30.0]}
    assert bench.timer.reason is None


def test_at_the_end_it_waits_once_and_nothing_is_lost(bench: Bench) -> None:
    for _ in range(3):
        bench.iteration(kernel_ms=10.0, host_ms=1.0)
    assert [samples_ms(times) for times in bench.timer.drain()] == [{"forward": [10.0]}] * 3
    assert bench.device.synchronizations == 1
    assert bench.timer.drain() == []
    assert bench.device.synchronizations == 1


@pytest.mark.parametrize(("kernel_ms", "is_known"), [(500.0, True), (1e9, False)])
def test_a_device_that_may_hang_is_not_waited_for_without_end(kernel_ms: float, is_known: bool) -> None:
    clock = SimulatedClock()
    device = SimulatedDevice(clock)
    timer: DeviceTimer[int] = DeviceTimer(device, clock=clock, sleep=lambda seconds: clock.work(seconds * 1000))
    begin = timer.mark()
    device.launch(kernel_ms)
    end = timer.mark()
    timer.add("forward", (begin, end))
    timer.end_iteration(1, end)
    began_ns = clock()
    (times,) = timer.drain(may_hang=True)
    assert clock() - began_ns <= 2_000 * MS
    assert device.synchronizations == 0
    assert (times.samples_ns, times.untimed["forward"]) == (({"forward": [500 * MS]}, 0) if is_known else ({}, 1))


def test_a_dropped_iteration_leaves_nothing_to_the_next(bench: Bench) -> None:
    with bench.interval("backward"):
        bench.device.launch(1.0)
    bench.timer.drop_iteration()
    bench.clock.work(1.0)
    bench.iteration(kernel_ms=2.0, host_ms=2.0)
    (times,) = bench.timer.collect()
    assert samples_ms(times) == {"forward": [2.0]}


def test_events_are_used_again(bench: Bench) -> None:
    for _ in range(500):
        bench.iteration(kernel_ms=10.0, host_ms=10.0)
        bench.timer.collect()
    assert bench.device.events_made <= 8


def test_an_interval_that_was_dropped_gives_its_events_back() -> None:
    bench = Bench(max_events=4)
    for _ in range(10):
        bench.timer.mark()
    gc.collect()
    bench.iteration(kernel_ms=1.0, host_ms=1.0)
    (times,) = bench.timer.collect()
    assert samples_ms(times) == {"forward": [1.0]}


def test_beyond_the_bound_intervals_are_untimed_until_events_come_back() -> None:
    bench = Bench(max_events=5)
    for _ in range(3):
        bench.iteration(kernel_ms=10.0, host_ms=0.0)
    resolved = bench.timer.drain()
    assert [samples_ms(times) for times in resolved] == [{"forward": [10.0]}, {"forward": [10.0]}, {}]
    assert [times.untimed["forward"] for times in resolved] == [0, 0, 1]
    assert bench.device.events_made == 5
    assert bench.timer.reason is None
    bench.iteration(kernel_ms=10.0, host_ms=10.0)
    (times,) = bench.timer.collect()
    assert samples_ms(times) == {"forward": [10.0]}


# ---- graph capture (A18) ----


def test_while_capturing_nothing_is_asked_and_the_sample_is_untimed_and_replays_are_timed(bench: Bench) -> None:
    bench.iteration(kernel_ms=100.0, host_ms=0.0)
    with bench.device.capture() as graph, bench.interval("forward"):
        bench.device.launch(7.0)
        assert bench.timer.collect() == []
    bench.end_iteration()
    for _ in range(10):
        with bench.interval("forward"):
            bench.device.replay(graph)
        bench.end_iteration()
    resolved = bench.timer.drain()
    assert [samples_ms(times) for times in resolved] == [{"forward": [100.0]}, {}, *[{"forward": [7.0]}] * 10]
    assert [times.untimed["forward"] for times in resolved] == [0, 1, *[0] * 10]
    assert bench.timer.reason is None


@pytest.mark.parametrize("captured", ["begin", "end"])
def test_an_interval_with_one_edge_in_a_capture_is_untimed(bench: Bench, captured: str) -> None:
    before = bench.timer.mark()
    with bench.device.capture():
        inside = bench.timer.mark()
    after = bench.timer.mark()
    bench.timer.add("forward", (inside, after) if captured == "begin" else (before, inside))
    bench.end_iteration()
    (times,) = bench.timer.collect()
    assert samples_ms(times) == {}
    assert times.untimed["forward"] == 1


def test_an_iteration_that_ends_in_a_capture_still_gives_its_samples_but_no_lead(bench: Bench) -> None:
    with bench.interval("forward"):
        bench.device.launch(5.0)
    with bench.device.capture():
        bench.end_iteration()
    (times,) = bench.timer.drain()
    assert samples_ms(times) == {"forward": [5.0]}
    assert times.ahead_ns is None


def test_a_run_that_ends_in_a_capture_does_not_wait(bench: Bench) -> None:
    bench.iteration(kernel_ms=5.0, host_ms=0.0)
    with bench.device.capture():
        (times,) = bench.timer.drain()
    assert times.untimed["forward"] == 1
    assert bench.device.synchronizations == 0


def test_a_synchronize_while_capturing_is_left_out(bench: Bench) -> None:
    with bench.device.capture():
        synchronize(bench.device)
    synchronize(bench.device)
    assert bench.device.synchronizations == 1


# ---- failures ----


def test_a_device_that_refuses_turns_the_timer_off_and_nothing_else(bench: Bench) -> None:
    bench.iteration(kernel_ms=1.0, host_ms=1.0)
    bench.device.failure = RuntimeError("an illegal memory access was encountered")
    bench.iteration(kernel_ms=1.0, host_ms=1.0)
    resolved = bench.timer.collect()
    assert [(times.key, times.samples_ns, times.untimed["forward"]) for times in resolved] == [(1, {}, 1), (2, {}, 1)]
    assert bench.timer.reason is not None
    assert "an illegal memory access was encountered" in bench.timer.reason


def test_once_off_the_device_is_left_alone(bench: Bench) -> None:
    bench.device.failure = RuntimeError("no")
    bench.timer.mark()
    bench.device.failure = None
    bench.iteration(kernel_ms=1.0, host_ms=1.0)
    (times,) = bench.timer.drain()
    assert times.untimed["forward"] == 1
    assert (bench.device.events_made, bench.device.queries, bench.device.synchronizations) == (0, 0, 0)


@pytest.mark.parametrize("resolve", ["collect", "drain"])
def test_a_failure_while_resolving_keeps_what_was_resolved(bench: Bench, resolve: str) -> None:
    bench.iteration(kernel_ms=1.0, host_ms=1.0)
    assert [samples_ms(times) for times in bench.timer.collect()] == [{"forward": [1.0]}]
    bench.iteration(kernel_ms=1.0, host_ms=1.0)
    bench.device.failure = RuntimeError("no")
    assert [times.untimed["forward"] for times in getattr(bench.timer, resolve)()] == [1]
    assert bench.timer.reason is not None


# ---- how far the host is ahead ----


def test_where_the_device_sets_the_pace_the_host_runs_ahead_by_the_backlog(bench: Bench) -> None:
    bench.end_iteration()
    for _ in range(4):
        bench.iteration(kernel_ms=10.0, host_ms=3.0)
    assert ahead_ms(bench.timer.drain()) == [0.0, 7.0, 14.0, 21.0, 28.0]


def test_where_the_host_sets_the_pace_it_is_not_ahead(bench: Bench) -> None:
    for _ in range(4):
        bench.iteration(kernel_ms=2.0, host_ms=10.0)
    assert ahead_ms(bench.timer.drain()) == [0.0] * 4


@pytest.mark.parametrize("ppm", [-500, -20, 0, 20, 500])
@pytest.mark.parametrize(
    ("kernel_ms", "wait_ms", "host_ms", "lead_ms", "error_ms"),
    [
        (2.0, 7.0, 3.0, 0.0, 0.1),  # the host waits for data
        (2.0, 0.0, 10.0, 0.0, 0.1),  # the host has too much to do
        (10.0, 0.0, 3.0, 30.0, 7.1),  # the device has; where its queue is full the host waits in one go, for 7 ms
    ],
)
def test_the_drift_of_the_two_clocks_does_not_add_up(
    bench: Bench, ppm: int, kernel_ms: float, wait_ms: float, host_ms: float, lead_ms: float, error_ms: float
) -> None:
    """In a minute and a half, on a device that takes a while to reach even an event that has nothing before it."""
    bench.device.clock_rate = 1 + ppm / 1e6
    bench.device.latency_ns = 8_000
    ahead: list[float | None] = []
    for _ in range(9_000):
        bench.timer.mark()
        bench.clock.work(wait_ms)
        bench.timer.mark()
        bench.clock.work(0.05)
        for _ in range(2):
            with bench.interval("forward"):
                bench.device.launch(kernel_ms / 2)
                bench.clock.work(host_ms / 2)
        full_ns = round(max(lead_ms, 1.0) * MS)
        bench.clock.now_ns = max(bench.clock.now_ns, bench.device.default.free_ns - full_ns)
        bench.end_iteration()
        ahead += ahead_ms(bench.timer.collect())
    *_, last = ahead
    assert last == pytest.approx(lead_ms, abs=error_ms)


def test_an_interval_that_ends_on_a_stream_that_is_ahead_is_untimed(bench: Bench) -> None:
    side = bench.device.new_stream()
    bench.device.launch(50.0)
    start = bench.timer.mark()
    with bench.device.on(side):
        bench.timer.add("copy", (start, bench.timer.mark()))
    bench.end_iteration()
    (times,) = bench.timer.drain()
    assert (times.samples_ns, times.untimed["copy"]) == ({}, 1)


def test_whatever_the_device_raises_it_is_the_timer_alone_that_goes_off(bench: Bench) -> None:
    bench.device.failure = ValueError("the event must be recorded")
    bench.iteration(kernel_ms=1.0, host_ms=1.0)
    assert bench.timer.reason is not None
    assert "the event must be recorded" in bench.timer.reason


def test_a_backlog_from_before_is_found_out_when_the_device_catches_up(bench: Bench) -> None:
    bench.device.launch(25.0)
    bench.end_iteration()
    bench.clock.work(40.0)
    bench.end_iteration()
    bench.iteration(kernel_ms=10.0, host_ms=4.0)
    assert ahead_ms(bench.timer.drain()) == [0.0, 0.0, 6.0]


def test_a_device_clock_that_runs_fast_cannot_build_up_a_backlog_that_is_not_there(bench: Bench) -> None:
    bench.device.clock_rate = 1.01
    for _ in range(1000):
        bench.iteration(kernel_ms=10.0, host_ms=10.0)
        bench.clock.work(0.5)
        resolved = bench.timer.collect()
    assert ahead_ms(resolved) == [0.0]


# ---- what of the host's time the device's work overlaps ----

LAUNCH_MS = LAUNCH_NS / MS


class PhasedBench(Bench):
    """Iterations whose edges are known: phases that follow each other, each of which enqueues a kernel first."""

    def phases(self, **phases: tuple[float, float | None]) -> None:
        """One iteration.

        Args:
            phases: For each, how long its kernel takes and how long the host, in milliseconds; None: until the device
                has done all that is enqueued.
        """
        edges = [self.timer.mark()]
        for name, (kernel_ms, host_ms) in phases.items():
            self.device.launch(kernel_ms)
            if host_ms is None:
                self.device.synchronize()
            else:
                self.clock.work(host_ms)
            edges.append(self.timer.mark())
            self.timer.add(name, (edges[-2], edges[-1]))
        self.timer.add("iteration", (edges[0], edges[-1]))
        self.timer.end_iteration(0, edges[-1], edges)


def overlapped_ms(times: DeviceTimes[int]) -> dict[str, float]:
    return {name: ns / MS for name, ns in times.overlapped_ns.items()}


def test_a_wait_for_the_device_is_overlapped_by_what_was_enqueued_before() -> None:
    """As where a progress bar shows the loss: all of the device's work is waited for in one hook."""
    bench = PhasedBench()
    for _ in range(3):
        bench.phases(data_wait=(0, 2.0), forward=(20.0, 1.0), backward=(50.0, 1.0), callbacks=(0, None))

    *_, last = bench.timer.drain()
    # At the end of forward the host is 19 ms ahead, at the end of backward 68 ms.
    expected = {"data_wait": 0.0, "forward": 0.0, "backward": 1.0, "callbacks": 68.0 - LAUNCH_MS}
    assert overlapped_ms(last) == {**expected, "iteration": 69.0 - LAUNCH_MS}


def test_where_the_host_never_waits_all_of_its_time_is_overlapped() -> None:
    bench = PhasedBench()
    for _ in range(3):
        bench.phases(forward=(20.0, 1.0), optimizer_step=(5.0, 2.0))

    *_, last = bench.timer.drain()
    assert overlapped_ms(last) == {"forward": 1.0, "optimizer_step": 2.0, "iteration": 3.0}


def test_of_a_wait_for_data_only_what_the_device_works_meanwhile_is_overlapped() -> None:
    bench = PhasedBench()
    for _ in range(3):
        bench.phases(data_wait=(0, 30.0), forward=(12.0, 2.0))

    *_, last = bench.timer.drain()
    # The device has 10 ms left as the wait begins, and nothing to do for the 20 ms that follow.
    assert overlapped_ms(last) == pytest.approx(
        {"data_wait": 10.0 - LAUNCH_MS, "forward": 0, "iteration": 10 - LAUNCH_MS}
    )


def test_what_an_idle_device_takes_to_begin_overlaps_nothing() -> None:
    bench = PhasedBench()
    bench.device.latency_ns = LAUNCH_NS // 2
    for _ in range(5):
        bench.phases(data_wait=(0, 0.04), forward=(0, 0.04))

    *_, last = bench.timer.drain()
    assert overlapped_ms(last) == {"data_wait": 0.0, "forward": 0.0, "iteration": 0.0}


def test_nothing_is_known_of_stretches_round_an_edge_without_an_event_alone() -> None:
    bench = PhasedBench()
    bench.phases(forward=(50.0, 1.0))
    edges = [bench.timer.mark()]
    bench.clock.work(2.0)
    edges.append(bench.timer.mark())
    with bench.device.capture():
        bench.clock.work(1.0)
        edges.append(bench.timer.mark())
    bench.clock.work(1.0)
    edges += [bench.timer.mark()]
    bench.clock.work(3.0)
    edges += [bench.timer.mark()]
    stretches = list(pairwise(edges))
    bench.timer.add("other", stretches[0], stretches[3])
    bench.timer.add("zero_grad", stretches[1])
    bench.timer.add("forward", stretches[2])
    bench.timer.add("iteration", (edges[0], edges[-1]))
    bench.timer.end_iteration(0, edges[-1], edges)

    *_, last = bench.timer.drain()
    # Of the stretch before that edge it is known, since it is what comes before all others that tells.
    assert overlapped_ms(last) == {"other": 5.0, "zero_grad": 1.0, "iteration": 6.0}
    assert bench.timer.reason is None


def test_edges_on_several_streams_tell_as_much_as_on_one() -> None:
    """As where a hook makes another stream current, and a later one reads the loss."""
    bench = PhasedBench()
    bench.phases(forward=(1.0, None))
    side = bench.device.new_stream()
    edges = [bench.timer.mark()]
    with bench.device.on(side):
        bench.device.launch(40.0)
        edges.append(bench.timer.mark())
        bench.clock.work(30.0)
    edges.append(bench.timer.mark())
    bench.timer.add("callbacks", (edges[1], edges[2]))
    bench.timer.add("iteration", (edges[0], edges[2]))
    bench.timer.end_iteration(0, edges[2], edges)

    *_, last = bench.timer.drain()
    assert overlapped_ms(last) == {"callbacks": 30.0, "iteration": 30.0}


def test_a_host_that_is_held_up_as_it_records_an_event_is_not_taken_to_be_ahead() -> None:
    """The operating system, or Python's lock, gives the processor to another thread between the event and the clock."""
    bench = PhasedBench()
    record = bench.device.record

    def record_slowly(event: SimulatedEvent) -> Stream:
        stream = record(event)
        bench.clock.work(5.0)
        return stream

    for _ in range(3):
        edges = [bench.timer.mark()]
        bench.device.launch(1.0)
        bench.clock.work(20.0)
        with pytest.MonkeyPatch.context() as slow:
            slow.setattr(bench.device, "record", record_slowly)
            edges.append(bench.timer.mark())
        bench.timer.add("iteration", (edges[0], edges[1]))
        bench.timer.end_iteration(0, edges[1], edges)

    resolved = bench.timer.drain()
    assert [overlapped_ms(times) for times in resolved] == [{"iteration": 0.0}] * 3
    assert ahead_ms(resolved) == [0.0] * 3


def test_each_stretch_is_asked_of_the_device_once(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = PhasedBench()
    asked: list[object] = []
    elapsed_ns = bench.device.elapsed_ns
    monkeypatch.setattr(bench.device, "elapsed_ns", lambda *events: (asked.append(events), elapsed_ns(*events))[1])
    bench.phases(forward=(1.0, 1.0), backward=(1.0, 1.0))
    bench.timer.drain()

    # The two phases and the iteration; and the way from one sighting to the end, by which the lead is told.
    assert len(asked) == 4
