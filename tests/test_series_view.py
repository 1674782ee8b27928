from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from records import MS, header, load_run, phases, row, rows, summary_of, write_lines

from lightning_timing.reporting.series_view import (
    MAX_EPOCH_MARKS,
    MAX_GROUPS,
    MAX_OTHERS,
    course,
    spread_names,
    spreads,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from lightning_timing.record import IterationRow
    from lightning_timing.record_series import StageSeries


def series_of(run_dir: Path, found: Sequence[IterationRow]) -> StageSeries:
    return load_run(write_lines(run_dir, [header(), *found])).ranks[0].stages["train"]


def test_few_iterations_are_shown_one_by_one(tmp_path: Path) -> None:
    shown = course(series_of(tmp_path, rows([phases(forward=n * MS, other=MS) for n in (1, 2, 3)])))
    assert (shown.group_size, shown.iterations, shown.first.tolist()) == (1, 3, [0, 1, 2])
    assert shown.phases["forward"] == pytest.approx([0.001, 0.002, 0.003])
    assert shown.slowest_s == pytest.approx([0.002, 0.003, 0.004])


def test_many_iterations_are_shown_as_the_means_and_the_slowest_of_groups(tmp_path: Path) -> None:
    count = 2 * MAX_GROUPS + 1
    shown = course(series_of(tmp_path, rows([phases(forward=(1 + n) * 1000) for n in range(count)])))
    assert (shown.group_size, len(shown.first)) == (3, -(-count // 3))
    assert shown.phases["forward"][:2] == pytest.approx([2e-6, 5e-6])
    assert shown.slowest_s[:2] == pytest.approx([3e-6, 6e-6])
    assert shown.slowest_s[-1] == pytest.approx(count * 1e-6)


def test_phases_that_are_absent_from_some_iterations_take_no_time_in_them(tmp_path: Path) -> None:
    found = rows([phases(forward=MS), phases(forward=MS, checkpoint=8 * MS)])
    assert course(series_of(tmp_path, found)).phases["checkpoint"] == pytest.approx([0, 0.008])


def test_without_phases_the_iteration_itself_is_shown(tmp_path: Path) -> None:
    shown = course(series_of(tmp_path, [row(0, {"iteration": MS, "mine": 3}, start_ns=0)]))
    assert list(shown.phases) == ["iteration"]


def test_epochs_are_marked_where_they_begin_unless_they_are_too_many(tmp_path: Path) -> None:
    def marks(name: str, epochs: Iterable[int]) -> list[tuple[int, int]]:
        found = [row(n, phases(forward=MS), start_ns=n, epoch=epoch) for n, epoch in enumerate(epochs)]
        return list(course(series_of(tmp_path / name, found)).epochs)

    assert marks("few", (n // 40 for n in range(100))) == [(0, 0), (1, 40), (2, 80)]
    assert MAX_EPOCH_MARKS < 100 // 2
    assert marks("many", (n // 2 for n in range(100))) == []
    assert marks("two calls", (n // 10 % 3 for n in range(50))) == [(0, 0), (1, 10), (2, 20), (0, 30), (1, 40)]


def test_a_distribution_counts_every_iteration_that_took_time(tmp_path: Path) -> None:
    times = [1, 10, 100, 1000, 10_000, 100_000, 1_000_000, 0]
    series = series_of(tmp_path, rows([phases(forward=time) for time in times]))
    (forward,) = spreads(series, ["forward"])
    assert forward.counts.sum() == 7
    assert forward.percentiles_s[50] == pytest.approx(1e-6)
    assert forward.edges_s[0] == pytest.approx(1e-9)
    assert forward.edges_s[-1] > 1e-3


def test_a_measurement_that_took_no_time_has_no_distribution(tmp_path: Path) -> None:
    series = series_of(tmp_path, rows([phases(forward=MS, logging=0)]))
    assert [spread.name for spread in spreads(series, ["forward", "logging"])] == ["forward"]
    assert spreads(series, ["logging"]) == []


def test_all_distributions_share_their_bins(tmp_path: Path) -> None:
    series = series_of(tmp_path, rows([phases(forward=MS, data_wait=5)]))
    first, second = spreads(series, ["forward", "data_wait"])
    assert np.array_equal(first.edges_s, second.edges_s)


def test_all_phases_and_the_longest_of_the_others_are_chosen_in_the_order_of_the_tree(tmp_path: Path) -> None:
    others = {f"m{n}": n + 1 for n in range(MAX_OTHERS + 5)}
    found = rows([{**phases(forward=MS, logging=1), **others}])
    measurements = summary_of(found, parents=dict.fromkeys(others, "forward")).stages["train"].measurements
    names = spread_names(series_of(tmp_path, found), measurements)
    assert names == ["iteration", "forward", *(f"m{n}" for n in range(5, MAX_OTHERS + 5)), "logging", "other"]
