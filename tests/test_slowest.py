from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from records import MS, header, load_run, phases, row, rows, write_lines

from lightning_timing.reporting.slowest import NUM_SHOWN, SlowIteration, slowest_iterations

if TYPE_CHECKING:
    from pathlib import Path

    from lightning_timing.record import IterationRow

USUAL = phases(data_wait=2 * MS, forward=10 * MS, backward=20 * MS, other=MS)


def slowest(run_dir: Path, found: list[IterationRow]) -> list[SlowIteration]:
    return slowest_iterations(load_run(write_lines(run_dir, [header(), *found])).ranks[0].stages["train"])


def after_usual_ones(run_dir: Path, unusual: IterationRow) -> SlowIteration:
    """What is said of an iteration that follows 30 usual ones."""
    return slowest(run_dir, [*rows([USUAL] * 30, start_ns=0), unusual])[0]


def test_the_slowest_come_first_with_all_that_they_are_known_by(tmp_path: Path) -> None:
    found = rows([phases(forward=(1 + number % 17) * MS) for number in range(50)], epoch=3)
    first, *others = slowest(tmp_path, found)
    assert (first.number, first.epoch, first.batch_idx, first.global_step) == (16, 3, 16, 16)
    assert (first.time_s, first.times_median) == (0.017, pytest.approx(17 / 9))
    assert first.phases_s == {"forward": 0.017, "other": 0.0}
    assert [iteration.number for iteration in others[:3]] == [33, 15, 32]
    assert len(others) == NUM_SHOWN - 1


def test_the_phase_that_made_it_slow_is_named_with_its_usual_time(tmp_path: Path) -> None:
    found = after_usual_ones(
        tmp_path, row(30, phases(data_wait=50 * MS, forward=11 * MS, backward=20 * MS), start_ns=0)
    )
    assert found.unusual == ("data_wait took 50.0 ms, usually 2.00 ms",)


def test_several_phases_are_named_largest_first(tmp_path: Path) -> None:
    found = after_usual_ones(
        tmp_path, row(30, phases(data_wait=20 * MS, forward=40 * MS, backward=20 * MS), start_ns=0)
    )
    assert found.unusual == ("forward took 40.0 ms, usually 10.0 ms", "data_wait took 20.0 ms, usually 2.00 ms")


def test_a_phase_that_is_rare_is_said_to_be_usually_nothing(tmp_path: Path) -> None:
    found = after_usual_ones(tmp_path, row(30, {**USUAL, "iteration": 533 * MS, "checkpoint": 500 * MS}, start_ns=0))
    assert found.unusual == ("checkpoint took 500.0 ms, usually nothing",)


def test_the_batch_is_named_where_it_is_unlike_the_others(tmp_path: Path) -> None:
    long = phases(data_wait=2 * MS, forward=30 * MS, backward=60 * MS)
    found = after_usual_ones(tmp_path, row(0, long, start_ns=0, samples=96, epoch=1))
    assert found.unusual[2:] == ("96 samples, usually 32", "first batch of its epoch")


def test_a_batch_of_unknown_size_is_not_unlike_the_others(tmp_path: Path) -> None:
    found = slowest(tmp_path, rows([USUAL] * 5, start_ns=0, samples=None))
    assert found[1].unusual == ()


def test_nothing_is_unusual_where_all_are_alike(tmp_path: Path) -> None:
    found = slowest(tmp_path, rows([USUAL] * 5, start_ns=0))
    assert [iteration.unusual for iteration in found[1:]] == [()] * 4
    assert found[1].times_median == 1.0


def test_iterations_that_took_no_time_are_no_slower_than_the_median(tmp_path: Path) -> None:
    assert slowest(tmp_path, rows([phases(forward=0)] * 3))[0].times_median == 1.0
