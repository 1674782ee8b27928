"""An edge is noted as three entries of a list, by Python code or by none."""

from __future__ import annotations

import sys
import time

import pytest
from known_cost import FakeClock

from lightning_timing.callbacks.boundary_contexts import ignore, noted
from lightning_timing.callbacks.edges import Edges, noting, one_by_one
from lightning_timing.callbacks.trail import Trail
from lightning_timing.clocks import Clock
from lightning_timing.failsafe import Failsafe
from lightning_timing.interrupts import InterruptGuard


def begin() -> None:
    """Stands for what handles a beginning."""


def end() -> None:
    """Stands for what handles an end."""


def fail() -> None:
    """Stands for what handles an end by an exception."""


def failing_clock() -> int:
    raise RuntimeError("no time")


def trail_with(clock: Clock) -> Trail:
    trail = Trail(Failsafe("following", strict=False), InterruptGuard())
    trail.clock = clock
    return trail


def handles(edges: Edges) -> list[object]:
    return [handle for handle, _, _ in one_by_one(edges)]


def test_what_notes_an_edge_without_python_code_notes_the_moment_of_each_call() -> None:
    edges: Edges = []
    note = noting(edges, begin, time.perf_counter_ns)
    assert note is not None
    moments = []
    for _ in range(3):
        moments.append(time.perf_counter_ns())
        note()
    moments.append(time.perf_counter_ns())

    assert [(handle, label) for handle, _, label in one_by_one(edges)] == [(begin, None)] * 3
    for before, (_, moment, _), after in zip(moments, one_by_one(edges), moments[1:], strict=False):
        assert before <= moment <= after


def test_it_runs_no_python_code() -> None:
    note = noting([], begin, time.perf_counter_ns)
    assert note is not None
    ran: list[object] = []
    sys.setprofile(lambda frame, event, _: ran.append(frame.f_code) if event == "call" else None)
    note()
    sys.setprofile(None)

    assert ran == []


def test_a_clock_of_python_code_may_fail_so_somebody_has_to_catch_that() -> None:
    assert noting([], begin, FakeClock(0)) is None


@pytest.mark.parametrize("clock", [time.perf_counter_ns, FakeClock(0)])
def test_a_context_notes_those_of_its_edges_that_are_any(clock: Clock) -> None:
    trail = trail_with(clock)
    failsafe = Failsafe("following", strict=True)
    both = noted(begin, end, fail, trail, failsafe)
    with both, noted(begin, ignore, ignore, trail, failsafe), noted(ignore, end, fail, trail, failsafe):
        pass
    assert handles(trail.edges) == [begin, begin, end, end]

    trail.edges.clear()
    with pytest.raises(KeyError), both:  # the same once more
        raise KeyError
    assert handles(trail.edges) == [begin, fail]


def test_a_clock_that_fails_ends_nothing() -> None:
    trail = trail_with(failing_clock)
    with (
        pytest.warns(UserWarning, match="no time"),
        noted(begin, end, fail, trail, Failsafe("following", strict=False)),
    ):
        done = True
    assert done
    assert trail.edges == []
