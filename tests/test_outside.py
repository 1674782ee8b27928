"""What is measured between iterations, by itself: what it is counted for, when it is handed on, and as of when."""

from __future__ import annotations

import pytest
from known_cost import FakeClock

from lightning_timing.measured_iterations import MeasuredOutside
from lightning_timing.measurement import Measurement
from lightning_timing.outside import Outside
from lightning_timing.phases import FIRST_DATA_WAIT
from lightning_timing.stage_totals import StageTotals


class Between:
    """What lies between iterations, and what is handed on of it.

    Attributes:
        handed: What was handed on; `before` whenever something was about to be.
    """

    def __init__(self) -> None:
        self.clock = FakeClock(0)
        self.stage = StageTotals("train", 0)
        self.handed: list[object] = []
        self.outside = Outside(self.stage, self.clock, None, lambda: self.handed.append("before"))
        self.outside.on_measured = self.take

    def take(self, measured: MeasuredOutside) -> None:
        self.handed.append((measured.stage, measured.name, measured.end_ns, measured.ns))

    def spend(self, phase: str, ns: int) -> None:
        self.outside.enter(phase)
        self.clock.advance(ns)
        self.outside.leave()

    def first_wait(self, ns: int, resumed: bool = False) -> None:
        self.outside.begin_first_wait(resumed)
        self.clock.advance(ns)
        self.outside.end_first_wait()

    def counted(self, stage: StageTotals | None = None) -> dict[str, tuple[int, int]]:
        """How many intervals there were of each, and their sum."""
        between = (stage or self.stage).between
        return {m.name: (m.distribution.count, m.distribution.total_ns) for m in between.values()}


@pytest.fixture
def between() -> Between:
    return Between()


def test_a_phase_s_own_time_is_counted_and_handed_on_with_that_of_its_whole(between: Between) -> None:
    between.clock.advance(100)
    between.outside.enter("callbacks/Saves")
    between.clock.advance(3)
    between.spend("checkpoint", 40)
    between.clock.advance(5)
    between.outside.leave()
    between.clock.advance(1000)
    between.spend("checkpoint", 1)

    prefix = "between_iterations"
    assert between.counted() == {
        f"{prefix}/callbacks": (1, 8),
        f"{prefix}/callbacks/Saves": (1, 8),
        f"{prefix}/checkpoint": (2, 41),
    }
    assert between.handed == [
        "before",
        ("train", f"{prefix}/checkpoint", 143, 40),
        "before",
        ("train", f"{prefix}/callbacks/Saves", 148, 8),
        "before",
        ("train", f"{prefix}/callbacks", 148, 8),
        "before",
        ("train", f"{prefix}/checkpoint", 1149, 1),
    ]
    assert (between.outside.ledger.is_open, between.outside.ledger.depth) == (False, 0)


def test_without_anybody_to_take_it_it_is_counted_all_the_same(between: Between) -> None:
    between.outside.on_measured = None
    between.spend("logging", 7)

    assert between.counted() == {"between_iterations/logging": (1, 7)}


def test_each_stage_gets_its_own(between: Between) -> None:
    between.spend("logging", 7)
    validation = StageTotals("validate", 0)
    between.outside.begin_stage(validation)
    between.spend("logging", 9)

    assert between.counted() == {"between_iterations/logging": (1, 7)}
    assert between.counted(validation) == {"between_iterations/logging": (1, 9)}
    assert [each[0] for each in between.handed if isinstance(each, tuple)] == ["train", "validate"]


def test_a_first_wait_is_counted_once_it_is_known_to_be_over(between: Between) -> None:
    between.outside.take_first_wait()
    assert between.counted() == {}
    between.first_wait(10)
    assert between.counted() == {}
    for _ in range(2):
        between.outside.take_first_wait()
    assert between.counted() == {FIRST_DATA_WAIT: (1, 10)}
    between.clock.advance(100)
    between.first_wait(20)
    between.outside.take_first_wait()

    assert between.counted() == {FIRST_DATA_WAIT: (2, 30)}
    assert [each for each in between.handed if each != "before"] == [
        ("train", FIRST_DATA_WAIT, 10, 10),
        ("train", FIRST_DATA_WAIT, 130, 20),
    ]
    assert not between.stage.between[FIRST_DATA_WAIT].inside


def test_a_first_wait_that_was_not_over_goes_on(between: Between) -> None:
    between.first_wait(10)
    between.clock.advance(5)
    between.first_wait(20, resumed=True)
    between.outside.take_first_wait()

    assert between.counted() == {FIRST_DATA_WAIT: (1, 30)}
    assert between.handed[1:] == [("train", FIRST_DATA_WAIT, 35, 30)]


def test_of_a_first_wait_that_is_not_over_when_the_run_ends_what_was_waited_for_is_counted(between: Between) -> None:
    between.first_wait(10)
    between.outside.begin_first_wait(resumed=True)
    between.clock.advance(20)
    between.outside.take_first_wait()

    assert between.counted() == {FIRST_DATA_WAIT: (1, 10)}


def test_it_belongs_to_the_epoch_whose_first_batch_was_last_waited_for(between: Between) -> None:
    epochs: list[int] = []
    between.outside.on_measured = lambda measured: epochs.append(measured.epoch)
    between.spend("logging", 1)
    between.first_wait(10)
    between.outside.take_first_wait()
    between.outside.current_epoch = lambda: 7
    between.spend("logging", 1)
    between.first_wait(10)
    between.outside.take_first_wait()
    between.spend("logging", 1)

    assert epochs == [0, 0, 0, 7, 7]


def test_what_was_over_long_ago_does_not_go_on(between: Between) -> None:
    between.first_wait(10)
    between.outside.take_first_wait()
    between.clock.advance(1000)
    between.first_wait(20, resumed=True)
    between.outside.take_first_wait()

    assert between.counted() == {FIRST_DATA_WAIT: (2, 30)}


def test_what_the_user_measures_is_handed_on_as_of_its_end(between: Between) -> None:
    validation = StageTotals("validate", 0)
    mine = validation.user_measurements["mine"] = Measurement("mine")
    mine.begin_ns = 50
    mine.current.append(4)
    between.outside.take_user_times_of(between.stage)
    assert between.handed == []
    between.outside.take_user_times_of(validation)

    assert between.handed == ["before", ("validate", "mine", 54, 4)]
    assert (mine.distribution.count, mine.distribution.total_ns, mine.current) == (1, 4, [])


def test_of_several_intervals_the_earlier_ones_lie_before_the_last_and_not_after_it(between: Between) -> None:
    mine = between.stage.user_measurements["mine"] = Measurement("mine")
    mine.current.extend((300, 20, 10))
    mine.begin_ns = 1000
    between.outside.take_user_times_of(between.stage)

    assert [handed for handed in between.handed if handed != "before"] == [
        ("train", "mine", 980, 300),
        ("train", "mine", 1000, 20),
        ("train", "mine", 1010, 10),
    ]


def test_the_wait_of_an_epoch_without_an_iteration_counts_too(between: Between) -> None:
    for ns in (3, 5):
        between.outside.begin_first_wait(resumed=False)
        between.clock.advance(ns)
        between.outside.end_first_wait()
    between.outside.take_first_wait()

    assert between.counted()[FIRST_DATA_WAIT] == (2, 8)
