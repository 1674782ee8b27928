"""Which iteration gets what the user measured, where iterations are counted only after they have ended."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Thread, get_ident

import pytest

from lightning_timing.measured_iterations import NOTHING, MeasuredByUser
from lightning_timing.measurement import Measurement
from lightning_timing.user_cuts import UserCuts


class Loop:
    """A loop that measures `augment` and `net`, on a thread whose iterations keep their intervals' positions."""

    def __init__(self) -> None:
        self.cuts = UserCuts(always_in_iteration=False)
        self.cuts.begin_iterations(are_placed=True)
        self.measurements = {name: Measurement(name) for name in ("augment", "net")}

    def measure(self, name: str, begin_ns: int, end_ns: int) -> None:
        self.cuts.place(name, begin_ns, end_ns)
        self.measurements[name].append(end_ns - begin_ns)

    def set_apart(self, end_ns: int) -> bool:
        return self.cuts.set_apart(end_ns, list(self.measurements.values()))

    def take(self) -> MeasuredByUser:
        return self.cuts.take(self.measurements.values())


@pytest.fixture
def loop() -> Loop:
    return Loop()


def in_words(found: MeasuredByUser | None) -> tuple[dict[str, Sequence[int]], list[tuple[str, int, int]]] | None:
    if found is None:
        return None
    return {measurement.name: times for measurement, times in found.times}, list(found.placed)


def test_each_iteration_gets_its_own(loop: Loop) -> None:
    loop.measure("augment", 0, 3)
    assert loop.set_apart(10)
    loop.measure("augment", 11, 15)
    loop.measure("net", 15, 19)
    assert loop.set_apart(20)

    assert in_words(loop.cuts.of_iteration(10)) == ({"augment": [3]}, [("augment", 0, 3)])
    assert loop.cuts.cut_at_ns == 10
    assert in_words(loop.cuts.of_iteration(20)) == (
        {"augment": [4], "net": [4]},
        [("augment", 11, 15), ("net", 15, 19)],
    )
    assert loop.cuts.cut_at_ns == 20


def test_without_anything_set_apart_an_iteration_has_to_take_what_there_is(loop: Loop) -> None:
    loop.measure("net", 0, 3)

    assert loop.cuts.of_iteration(10) is None
    assert in_words(loop.take()) == ({"net": [3]}, [("net", 0, 3)])
    assert loop.take() is NOTHING


def test_what_was_set_apart_at_no_iterations_end_is_the_next_ones(loop: Loop) -> None:
    """As when a loop inside a hook turns to its next batch."""
    loop.measure("net", 0, 3)
    loop.set_apart(5)
    loop.measure("augment", 5, 6)
    loop.measure("net", 6, 8)
    loop.set_apart(10)

    assert in_words(loop.cuts.of_iteration(10)) == (
        {"net": [3, 2], "augment": [1]},
        [("net", 0, 3), ("augment", 5, 6), ("net", 6, 8)],
    )


def test_one_that_ended_elsewhere_gets_nothing_and_what_was_set_apart_can_be_taken_again(loop: Loop) -> None:
    loop.measure("net", 0, 3)
    loop.set_apart(5)
    loop.measure("net", 6, 8)

    assert loop.cuts.of_iteration(9) is None
    assert loop.cuts.cut_at_ns is None
    assert in_words(loop.take()) == ({"net": [3, 2]}, [("net", 0, 3), ("net", 6, 8)])


def test_two_iterations_may_end_at_the_same_moment(loop: Loop) -> None:
    loop.measure("net", 0, 3)
    loop.set_apart(10)
    loop.set_apart(10)

    assert in_words(loop.cuts.of_iteration(10)) == ({"net": [3]}, [("net", 0, 3)])
    assert in_words(loop.cuts.of_iteration(10)) == ({}, [])


def test_an_iteration_with_a_measurement_open_is_not_set_apart(loop: Loop) -> None:
    loop.measure("augment", 0, 3)
    loop.measurements["net"].thread = get_ident()

    assert not loop.set_apart(5)
    assert loop.cuts.of_iteration(5) is None
    assert in_words(loop.take()) == ({"augment": [3]}, [("augment", 0, 3)])


def test_positions_are_those_of_the_loops_own_thread(loop: Loop) -> None:
    other = Thread(target=loop.measure, args=("augment", 1, 2))
    other.start()
    other.join()
    loop.measure("net", 0, 3)
    assert in_words(loop.take()) == ({"augment": [1], "net": [3]}, [("net", 0, 3)])

    def loop_of_its_own() -> None:
        loop.cuts.begin_stage()
        loop.measure("augment", 4, 6)

    stage = Thread(target=loop_of_its_own)
    stage.start()
    stage.join()
    assert in_words(loop.take()) == ({"augment": [2]}, [("augment", 4, 6)])


def test_positions_between_iterations_are_forgotten_while_times_count(loop: Loop) -> None:
    loop.cuts.rest()
    assert loop.cuts.are_placed is None
    loop.measure("net", 0, 3)
    loop.cuts.forget_places()

    assert in_words(loop.take()) == ({"net": [3]}, [])
