"""The ledger by itself: every nanosecond in one phase, whatever nests in what."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from known_cost import FakeClock

from lightning_timing.ledger import Ledger
from lightning_timing.measurement import Measurement

NAMES = [str(i) for i in range(60)]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(now_ns=0)


def new_ledger(clock: FakeClock) -> Ledger:
    return Ledger(clock, {name: Measurement(name) for name in (*NAMES, "outer", "inner", "step", "forward", "logging")})


def own_ns(ledger: Ledger) -> list[tuple[str, int]]:
    """The samples so far, without those of what was paused."""
    return [(measurement.name, ns) for measurement, ns, _, _ in ledger.times if ns is not None]


def test_a_phase_s_sample_leaves_out_the_phases_inside_it(clock: FakeClock) -> None:
    ledger = new_ledger(clock)

    ledger.begin(keep_intervals=True)
    clock.advance(1)
    ledger.enter("outer")
    clock.advance(10)
    ledger.enter("inner")
    clock.advance(100)
    ledger.leave()
    clock.advance(1000)
    ledger.leave()
    clock.advance(10_000)
    ledger.close()

    assert own_ns(ledger) == [("inner", 100), ("outer", 1010)]
    assert [interval for _, _, *interval in ledger.times] == [[11, 111], [1, 1111]]
    assert (ledger.total_ns, ledger.other_ns) == (11_111, 10_001)


def test_a_paused_phase_goes_on_in_one_sample(clock: FakeClock) -> None:
    ledger = new_ledger(clock)

    ledger.begin(keep_intervals=False)
    for _ in range(3):
        ledger.enter("forward")
        clock.advance(5)
        ledger.leave()
        ledger.enter("step")
        clock.advance(2)
        ledger.leave(paused=True)
    ledger.enter("step")
    clock.advance(1)
    ledger.leave()

    assert own_ns(ledger) == [("forward", 5)] * 3 + [("step", 7)]


def test_a_phase_recognised_late_begins_at_the_last_boundary(clock: FakeClock) -> None:
    ledger = new_ledger(clock)

    ledger.begin(keep_intervals=False)
    ledger.enter("forward")
    clock.advance(3)
    ledger.leave()
    clock.advance(4)
    ledger.enter("logging", since_last=True)
    clock.advance(5)
    ledger.leave()
    ledger.close()

    assert own_ns(ledger) == [("forward", 3), ("logging", 9)]
    assert ledger.other_ns == 0


def test_closed_as_of_the_last_boundary_it_ends_there(clock: FakeClock) -> None:
    ledger = new_ledger(clock)

    ledger.begin(keep_intervals=False)
    ledger.enter("forward")
    clock.advance(3)
    ledger.leave()
    clock.advance(1_000_000)
    ledger.close(at_last=True)

    assert (ledger.total_ns, ledger.other_ns) == (3, 0)


def test_what_was_dropped_leaves_nothing_behind(clock: FakeClock) -> None:
    ledger = new_ledger(clock)

    ledger.begin(keep_intervals=False)
    ledger.enter("forward")
    clock.advance(3)
    ledger.drop()
    assert (ledger.is_open, ledger.depth, ledger.enclosing(clock.now_ns)) == (False, 0, (None, None))
    ledger.begin(keep_intervals=False)
    clock.advance(5)
    ledger.close()

    assert (ledger.total_ns, ledger.other_ns, ledger.times) == (5, 5, [])


def test_a_new_beginning_forgets_what_was_left_open(clock: FakeClock) -> None:
    ledger = new_ledger(clock)

    ledger.begin(keep_intervals=True)
    ledger.enter("outer")
    clock.advance(1)
    ledger.enter("inner")
    clock.advance(3)
    ledger.leave()
    before = ledger.times, ledger.keeps_intervals
    ledger.begin(keep_intervals=False)
    assert (ledger.depth, ledger.times, ledger.keeps_intervals) == (0, [], False)
    clock.advance(5)
    ledger.enter("outer")
    clock.advance(7)
    assert ledger.enclosing(clock.now_ns) == ("outer", 9)
    ledger.leave()
    ledger.close()

    assert (ledger.total_ns, ledger.other_ns, own_ns(ledger)) == (12, 5, [("outer", 7)])
    assert (len(before[0]), before[1]) == (1, True)  # whoever took them has them still


def test_one_iteration_leaves_nothing_to_the_next(clock: FakeClock) -> None:
    ledger = new_ledger(clock)

    for ns in (10, 20):
        ledger.begin(keep_intervals=False)
        ledger.enter("outer")
        clock.advance(ns)
        ledger.leave()
        clock.advance(1)
        ledger.close()

        assert (ledger.total_ns, ledger.other_ns, own_ns(ledger)) == (ns + 1, 1, [("outer", ns)])


def test_it_knows_the_thread_that_opened_it(clock: FakeClock) -> None:
    ledger = new_ledger(clock)
    opener = threading.Thread(target=ledger.begin, args=(False,))
    opener.start()
    opener.join()

    assert ledger.thread == opener.ident


@pytest.mark.parametrize("at", range(1, 6))
@pytest.mark.parametrize("comes", ["while the device is waited for", "after the clock"])
def test_a_phase_that_runs_while_a_boundary_is_read_is_counted_once(comes: str, at: int, clock: FakeClock) -> None:
    """As a signal's handler does that saves a checkpoint."""
    readings = 0

    def handle_signal() -> None:
        nonlocal readings
        readings += 1
        if readings - 1 == at:
            clock.advance(7)
            ledger.enter("step")
            clock.advance(100)
            ledger.leave()

    def read_and_handle_signal() -> int:
        now = clock()
        handle_signal()
        return now

    measurements = {name: Measurement(name) for name in ("outer", "inner", "step")}
    if comes == "after the clock":
        ledger = Ledger(read_and_handle_signal, measurements)
    else:
        ledger = Ledger(clock, measurements, before_reading=handle_signal)
    ledger.begin(keep_intervals=True)
    ledger.enter("outer")
    clock.advance(1)
    ledger.enter("inner")
    clock.advance(2)
    ledger.leave()
    ledger.leave()
    ledger.close()

    own = own_ns(ledger)
    assert min(ns for _, ns in own) >= 0
    assert ledger.total_ns == sum(ns for _, ns in own) + ledger.other_ns
    assert [ns for name, ns in own if name == "step"] == [100]


def test_the_device_is_waited_for_at_each_boundary_if_that_was_asked_for(clock: FakeClock) -> None:
    ledger = Ledger(clock, {"step": Measurement("step")}, before_reading=lambda: clock.advance(1000))

    ledger.begin(keep_intervals=False)
    ledger.enter("step")
    clock.advance(5)
    ledger.leave()
    ledger.close()

    assert (ledger.total_ns, own_ns(ledger)) == (3005, [("step", 1005)])


def test_what_encloses_is_the_innermost_that_was_open_at_the_moment_and_is_still(clock: FakeClock) -> None:
    ledger = new_ledger(clock)
    nothing = (None, None)

    assert ledger.enclosing(0) == nothing
    clock.advance(10)
    ledger.begin(keep_intervals=False)
    clock.advance(10)
    ledger.enter("outer")
    clock.advance(10)
    ledger.enter("inner")
    clock.advance(5)
    assert [ledger.enclosing(moment) for moment in (9, 10, 19)] == [nothing, (None, 10), (None, 10)]
    assert [ledger.enclosing(moment) for moment in (20, 29)] == [("outer", 20)] * 2
    assert [ledger.enclosing(moment) for moment in (30, 35)] == [("inner", 30)] * 2
    ledger.leave()
    assert ledger.enclosing(33) == ("outer", 20)
    ledger.leave()
    assert ledger.enclosing(33) == (None, 10)
    ledger.close()
    assert ledger.enclosing(33) == nothing


@given(st.lists(st.tuples(st.sampled_from("()"), st.integers(0, 10**9)), max_size=60))
def test_the_phases_and_the_rest_always_add_up_to_the_whole(steps: list[tuple[str, int]]) -> None:
    clock = FakeClock(now_ns=0)
    ledger, depth = new_ledger(clock), 0

    ledger.begin(keep_intervals=False)
    for step, ns in steps:
        clock.advance(ns)
        if step == "(":
            ledger.enter(NAMES[depth])
            depth += 1
        elif depth:
            depth -= 1
            ledger.leave()
    for _ in range(depth):
        ledger.leave()
    ledger.close()

    samples = [ns for _, ns in own_ns(ledger)]
    assert ledger.total_ns == sum(ns for _, ns in steps)
    assert sum(samples) + ledger.other_ns == ledger.total_ns
    assert min([ledger.other_ns, *samples]) >= 0
