"""What is noted is handled in its order, as of its moments, and when it is due."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest
from known_cost import FakeClock

from lightning_timing.callbacks.edges import STRIDE, one_by_one
from lightning_timing.callbacks.trail import MAX_EDGES, MAX_WAIT_NS, Trail
from lightning_timing.failsafe import Failsafe
from lightning_timing.interrupts import InterruptGuard

if TYPE_CHECKING:
    from collections.abc import Callable

Told = list[tuple[str, int]]


class Follower:
    """Stands in for a `LateRecorder`: writes down what it is told of, and what its clock shows then.

    Attributes:
        clock: Its own clock.
        told: What it was told of, and the moment that it read.
        can_wait: Its patience.
    """

    def __init__(self, can_wait: int = 0) -> None:
        self.clock = FakeClock(0)
        self.bookkeeping_ns = 0
        self.told: Told = []
        self.can_wait = can_wait
        self.is_in_iteration = True
        self.catch_up: Callable[[], None] = pytest.fail
        self.read: Callable[[], int] = self.clock
        self.cuts: list[int] = []

    def follow_late(self, catch_up: Callable[[], None], catch_up_if_stuck: Callable[[], bool]) -> None:
        self.catch_up = catch_up

    def read_moments_by(self, read: Callable[[], int]) -> None:
        self.read = read

    def patience(self) -> int:
        return self.can_wait

    def cut(self, end_ns: int, undisturbed: object) -> bool:
        self.cuts.append(end_ns)
        return True

    def telling(self, what: str, cost_ns: int = 0) -> Callable[[], None]:
        """Tells it of something, which takes it some time."""

        def tell() -> None:
            self.told.append((what, self.read()))
            self.clock.advance(cost_ns)

        return tell


class EdgeByEdge:
    """Stands in for `Routines`: handles whole iterations an edge at a time."""

    def __init__(self, follower: Follower) -> None:
        self.recorder = follower

    def recognise(self, edges: list[Any], at: int, whole: dict[int, int]) -> tuple[int, Callable[[list[int]], None]]:
        found = edges[at : whole[at]]

        def handle_all(moment: list[int]) -> None:
            for handle, moment[0], _ in one_by_one(found):
                handle()

        return whole[at], handle_all


def lead(trail: Trail, follower: Follower) -> None:
    trail.set_late_follower(EdgeByEdge(follower))  # type: ignore[arg-type]  # all that is asked of it


def trail_of(follower: Follower | None) -> Trail:
    trail = Trail(Failsafe("following", strict=False), InterruptGuard())
    if follower is not None:
        lead(trail, follower)
    return trail


def note_at(trail: Trail, follower: Follower, *moments: int) -> None:
    for moment in moments:
        follower.clock.now_ns = moment
        trail.note(follower.telling(f"at {moment}"))


def turn(trail: Trail, follower: Follower, batch: int) -> None:
    """The fetch of a batch begins."""
    trail.turn(follower.telling(f"end {batch - 1}"), follower.telling(f"begin {batch}"))


def test_edges_are_handled_in_their_order_and_as_of_their_moments() -> None:
    follower = Follower()
    trail = trail_of(follower)
    note_at(trail, follower, 10, 20, 30)
    assert follower.told == []

    follower.clock.now_ns = 100
    trail.catch_up()
    follower.telling("later")()

    assert follower.told == [("at 10", 10), ("at 20", 20), ("at 30", 30), ("later", 100)]
    assert trail.edges == []


def test_whoever_has_the_list_of_edges_may_add_to_it_for_ever() -> None:
    follower = Follower()
    trail = trail_of(follower)
    add = trail.edges.extend
    for moment in (1, 2):
        add((follower.telling("edge"), moment, None))
        follower.catch_up()

    assert follower.told == [("edge", 1), ("edge", 2)]


def test_where_nobody_is_told_late_an_edge_is_handled_at_once() -> None:
    follower = Follower()
    trail = trail_of(None)
    trail.note(follower.telling("noted"))
    trail.at_once(follower.telling("at once"))()

    assert [what for what, _ in follower.told] == ["noted", "at once"]
    assert trail.edges == []


def test_without_patience_each_turn_is_the_time() -> None:
    follower = Follower()
    trail = trail_of(follower)
    for batch in range(3):
        follower.clock.advance(10)
        turn(trail, follower, batch)

    assert [what for what, _ in follower.told] == ["end -1", "begin 0", "end 0", "begin 1", "end 1", "begin 2"]


def test_an_iteration_begins_after_the_catching_up_before_it() -> None:
    """What that takes is in neither of the two."""
    follower = Follower()
    trail = trail_of(follower)
    follower.clock.now_ns = 100
    trail.turn(follower.telling("end", cost_ns=7), follower.telling("begin"))

    assert follower.told == [("end", 100), ("begin", 107)]


@pytest.mark.parametrize("patience", [1, 2, 9])
def test_with_patience_so_many_further_iterations_wait(patience: int) -> None:
    follower = Follower(can_wait=patience)
    trail = trail_of(follower)
    caught_up_at = []
    for batch in range(30):
        told = len(follower.told)
        follower.clock.advance(10)
        turn(trail, follower, batch)
        if len(follower.told) > told:
            caught_up_at.append(batch)

    assert caught_up_at == list(range(0, 30, patience + 1))
    follower.catch_up()
    assert [what for what, _ in follower.told] == [what for b in range(30) for what in (f"end {b - 1}", f"begin {b}")]
    assert [moment for _, moment in follower.told] == [10 * (b + 1) for b in range(30) for _ in range(2)]


def test_after_a_second_no_patience_helps() -> None:
    follower = Follower(can_wait=1000)
    trail = trail_of(follower)
    turn(trail, follower, 0)
    follower.clock.advance(MAX_WAIT_NS - 1)
    turn(trail, follower, 1)
    assert len(follower.told) == 2
    follower.clock.advance(1)
    turn(trail, follower, 2)
    assert len(follower.told) == 6
    follower.clock.advance(MAX_WAIT_NS - 1)
    turn(trail, follower, 3)
    assert len(follower.told) == 6


def test_with_too_many_edges_no_patience_helps() -> None:
    follower = Follower(can_wait=1000)
    trail = trail_of(follower)
    turn(trail, follower, 0)
    follower.told.clear()
    for moment in range(MAX_EDGES):
        trail.edges += follower.telling("an edge"), moment, None
    turn(trail, follower, 1)

    assert trail.edges == []
    assert follower.told[:MAX_EDGES] == [("an edge", moment) for moment in range(MAX_EDGES)]


def test_a_batch_without_an_end_has_too_many_edges_as_well() -> None:
    follower = Follower(can_wait=1000)
    trail = trail_of(follower)
    turn(trail, follower, 0)
    for moment in range(3 * MAX_EDGES):
        note_at(trail, follower, moment)
        assert len(trail.edges) < STRIDE * MAX_EDGES
    trail.catch_up()

    assert follower.told[2:] == [(f"at {moment}", moment) for moment in range(3 * MAX_EDGES)]


def test_whoever_asks_has_it_caught_up_at_the_next_turn_too() -> None:
    """Its patience may be another from then on."""
    follower = Follower(can_wait=1000)
    trail = trail_of(follower)
    turn(trail, follower, 0)
    follower.catch_up()
    follower.can_wait = 0
    for batch in range(1, 4):
        turn(trail, follower, batch)

    assert follower.told[-1][0] == "begin 3"


@pytest.mark.parametrize("patience", [0, 1000])
def test_what_begins_an_iteration_between_two_turns_does_not_wait(patience: int) -> None:
    """For what the user measures from then on is in it."""
    follower = Follower(can_wait=patience)
    follower.is_in_iteration = False
    trail = trail_of(follower)
    trail.at_once(follower.telling("the epoch begins"))()

    def begin() -> None:
        follower.telling("first batch is there")()
        follower.is_in_iteration = True

    trail.note(begin)
    trail.note(follower.telling("it is handled"))

    assert [what for what, _ in follower.told] == ["the epoch begins", "first batch is there"]
    assert len(trail.edges) == STRIDE


def test_what_cannot_wait_comes_after_what_was_noted_and_as_of_its_own_moment() -> None:
    follower = Follower(can_wait=1000)
    trail = trail_of(follower)
    note_at(trail, follower, 10)
    trail.edges += follower.telling("slow", cost_ns=5), 20, None
    follower.clock.now_ns = 30
    trail.at_once(follower.telling("at once", cost_ns=2))()

    assert follower.told == [("at 10", 10), ("slow", 20), ("at once", 30)]
    assert follower.bookkeeping_ns == 7


def test_another_thread_has_nothing_handled_but_hastens_the_next_turn() -> None:
    follower = Follower(can_wait=1000)
    trail = trail_of(follower)
    turn(trail, follower, 0)
    told = len(follower.told)
    note_at(trail, follower, 10)
    thread = threading.Thread(target=follower.catch_up)
    thread.start()
    thread.join()
    assert len(follower.told) == told

    turn(trail, follower, 1)
    assert follower.told[-1][0] == "begin 1"


def test_who_asks_amid_the_catching_up_gets_what_there_is() -> None:
    follower = Follower()
    trail = trail_of(follower)
    seen: list[Told] = []
    note_at(trail, follower, 10)
    trail.note(lambda: (follower.catch_up(), seen.append(follower.told[:])))
    note_at(trail, follower, 30)
    trail.catch_up()

    assert seen == [[("at 10", 10)]]
    assert follower.told == [("at 10", 10), ("at 30", 30)]


def test_what_is_noted_amid_the_catching_up_is_handled_last() -> None:
    follower = Follower()
    trail = trail_of(follower)
    trail.note(lambda: note_at(trail, follower, 50))
    note_at(trail, follower, 30)
    trail.catch_up()

    assert follower.told == [("at 30", 30), ("at 50", 50)]


def test_what_a_handler_raises_is_the_part_s_and_the_rest_is_dropped() -> None:
    follower = Follower()
    trail = trail_of(follower)
    note_at(trail, follower, 10)
    trail.note(lambda: 1 // 0)
    note_at(trail, follower, 30)
    with pytest.warns(UserWarning, match="following is off for the rest of this run: ZeroDivisionError"):
        trail.catch_up()

    assert follower.told == [("at 10", 10)]
    assert trail.edges == []
    assert follower.read is follower.clock
    note_at(trail, follower, 40)
    trail.catch_up()
    assert follower.told[1:] == [("at 40", 40)]


def test_ctrl_c_amid_the_catching_up_loses_no_further_edge() -> None:
    follower = Follower()
    trail = trail_of(follower)

    def interrupt() -> None:
        raise KeyboardInterrupt

    note_at(trail, follower, 10)
    trail.note(interrupt)
    note_at(trail, follower, 30)
    with pytest.raises(KeyboardInterrupt):
        trail.catch_up()
    assert follower.read is follower.clock
    trail.catch_up()

    assert follower.told == [("at 10", 10), ("at 30", 30)]


@pytest.mark.usefixtures("_ctrl_c_raises")
def test_a_signal_amid_the_catching_up_waits_until_all_is_handled() -> None:
    follower = Follower()
    trail = trail_of(follower)
    note_at(trail, follower, 10)
    trail.note(lambda: signal.raise_signal(signal.SIGINT))
    note_at(trail, follower, 30)
    with pytest.raises(KeyboardInterrupt):
        trail.catch_up()

    assert follower.told == [("at 10", 10), ("at 30", 30)]
    assert trail.edges == []


def test_who_is_not_told_late_any_more_is_told_what_is_left() -> None:
    follower = Follower()
    trail = trail_of(follower)
    note_at(trail, follower, 10, 20)
    trail.set_late_follower(None)

    assert follower.told == [("at 10", 10), ("at 20", 20)]
    follower.catch_up()  # is not the trail's any more, nor that of a test that fails
    trail.note(follower.telling("now"))
    assert follower.told[-1] == ("now", 20)


def test_what_ended_while_nobody_was_told_late_is_nobody_s() -> None:
    """A context that was entered before notes its end where it noted its beginning."""
    follower, other = Follower(), Follower()
    trail = trail_of(follower)
    trail.set_late_follower(None)
    trail.edges += follower.telling("too late"), 10, None
    lead(trail, other)
    trail.catch_up()

    assert follower.told == other.told == []


def test_a_follower_that_leaves_amid_the_catching_up_is_told_of_nothing_more() -> None:
    follower = Follower()
    trail = trail_of(follower)
    handlers: list[Any] = [lambda: trail.set_late_follower(None), follower.telling("after it left")]
    for handle in handlers:
        trail.note(handle)
    trail.catch_up()

    assert follower.told == []
    assert trail.edges == []


def test_a_follower_that_leaves_at_a_turn_is_not_asked_for_its_patience() -> None:
    follower = Follower(can_wait=1000)
    trail = trail_of(follower)
    trail.turn(lambda: trail.set_late_follower(None), follower.telling("begin"))

    assert follower.told == [("begin", 0)]
    assert trail.edges == []


def test_one_who_is_not_told_late_any_more_does_not_hasten_another() -> None:
    follower, other = Follower(), Follower()
    trail = trail_of(follower)
    lead(trail, other)
    note_at(trail, other, 10)
    follower.catch_up()
    assert other.told == []

    other.catch_up()
    assert other.told == [("at 10", 10)]


def test_iterations_are_handled_on_another_thread_where_that_of_the_loop_is_stuck() -> None:
    follower = Follower()
    trail = trail_of(follower)
    turn(trail, follower, 0)
    follower.can_wait = 10
    turn(trail, follower, 1)
    for batch in (1, 2):
        note_at(trail, follower, 10 * batch)
        turn(trail, follower, batch + 1)
    note_at(trail, follower, 30)
    follower.told.clear()
    found: list[bool] = []

    def look_in() -> None:
        beside = threading.Thread(target=lambda: found.append(trail.catch_up_if_stuck()))
        beside.start()
        beside.join()

    for _ in range(3):
        look_in()
    assert found == [False, True, False]
    ended = [("at 10", 10), ("end 1", 10), ("begin 2", 10), ("at 20", 20), ("end 2", 20)]
    assert follower.told == ended

    trail.catch_up()
    assert follower.told == [*ended, ("begin 3", 20), ("at 30", 30)]
    assert not trail.edges


def test_a_loop_that_gets_on_is_left_to_its_own_thread() -> None:
    follower = Follower(can_wait=10)
    trail = trail_of(follower)
    for batch in range(5):
        turn(trail, follower, batch)
        note_at(trail, follower, batch)
        told = [*follower.told]
        beside = threading.Thread(target=trail.catch_up_if_stuck)
        beside.start()
        beside.join()
        assert follower.told == told
