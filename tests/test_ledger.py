"""The ledger by itself: every nanosecond in one phase, whatever nests in what."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from known_cost import FakeClock

from lightning_timing.ledger import Ledger
from lightning_timing.measurement import Measurement


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(now_ns=0)


def test_a_phase_s_sample_leaves_out_the_phases_inside_it(clock: FakeClock) -> None:
    ledger, outer, inner = Ledger(clock), Measurement("outer"), Measurement("inner")

    ledger.begin(keep_intervals=True)
    clock.advance(1)
    ledger.enter(outer)
    clock.advance(10)
    ledger.enter(inner)
    clock.advance(100)
    ledger.leave()
    clock.advance(1000)
    ledger.leave()
    clock.advance(10_000)
    balance = ledger.close()

    assert (outer.current, inner.current) == ([1010], [100])
    assert (balance.total_ns, balance.other_ns) == (11_111, 10_001)
    assert ledger.intervals == [("inner", 11, 111), ("outer", 1, 1111)]


def test_a_paused_phase_goes_on_in_one_sample(clock: FakeClock) -> None:
    ledger, step, forward = Ledger(clock), Measurement("step"), Measurement("forward")

    ledger.begin(keep_intervals=False)
    for _ in range(3):
        ledger.enter(forward)
        clock.advance(5)
        ledger.leave()
        ledger.enter(step)
        clock.advance(2)
        ledger.leave(paused=True)
    ledger.enter(step)
    clock.advance(1)
    ledger.leave()

    assert (step.current, forward.current) == ([7], [5, 5, 5])


def test_a_phase_recognised_late_begins_at_the_last_boundary(clock: FakeClock) -> None:
    ledger, forward, logging = Ledger(clock), Measurement("forward"), Measurement("logging")

    ledger.begin(keep_intervals=False)
    ledger.enter(forward)
    clock.advance(3)
    ledger.leave()
    clock.advance(4)
    ledger.enter(logging, since_last=True)
    clock.advance(5)
    ledger.leave()

    assert logging.current == [9]
    assert ledger.close().other_ns == 0


def test_closed_as_of_the_last_boundary_it_ends_there(clock: FakeClock) -> None:
    ledger, forward = Ledger(clock), Measurement("forward")

    ledger.begin(keep_intervals=False)
    ledger.enter(forward)
    clock.advance(3)
    ledger.leave()
    clock.advance(1_000_000)

    assert ledger.close(at_last=True)[1:] == (3, 0)


@given(st.lists(st.tuples(st.sampled_from("()"), st.integers(0, 10**9)), max_size=60))
def test_the_phases_and_the_rest_always_add_up_to_the_whole(steps: list[tuple[str, int]]) -> None:
    clock = FakeClock(now_ns=0)
    ledger, phases, depth = Ledger(clock), [Measurement(str(i)) for i in range(60)], 0

    ledger.begin(keep_intervals=False)
    for step, ns in steps:
        clock.advance(ns)
        if step == "(":
            ledger.enter(phases[depth])
            depth += 1
        elif depth:
            depth -= 1
            ledger.leave()
    for _ in range(depth):
        ledger.leave()
    balance = ledger.close()

    samples = [ns for phase in phases for ns in phase.current]
    assert balance.total_ns == sum(ns for _, ns in steps)
    assert sum(samples) + balance.other_ns == balance.total_ns
    assert min([balance.other_ns, *samples]) >= 0
