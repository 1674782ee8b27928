"""The distribution: exact where it says so, within 0.4 % where it does not, in bounded memory."""

from __future__ import annotations

import statistics
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightning_timing.distribution import EXACT_INTERVALS, Distribution

PERCENTS = (0, 1, 50, 95, 99, 99.9, 100)


def distribution_of(durations: list[int]) -> Distribution:
    distribution = Distribution()
    for ns in durations:
        distribution.pending.append(ns)
        distribution.fold_if_full()
    return distribution


def test_nothing_is_unknown_and_not_zero() -> None:
    empty = Distribution()

    assert empty.count == 0
    assert (empty.min_ns, empty.max_ns, empty.std_ns, empty.percentiles_ns(50)) == (None, None, None, None)


def test_one_duration_has_no_spread() -> None:
    one = distribution_of([7])

    assert (one.count, one.total_ns, one.min_ns, one.max_ns) == (1, 7, 7, 7)
    assert one.std_ns is None
    assert one.percentiles_ns(1, 50, 99) == [7, 7, 7]


def test_what_another_thread_adds_during_a_fold_is_kept() -> None:
    class AddedTo(list[int]):
        """Gets another duration while it is copied."""

        def __getitem__(self, index: Any) -> Any:
            found = super().__getitem__(index)
            self.append(3)
            return found

    distribution = Distribution()
    distribution.pending = AddedTo([7] * (EXACT_INTERVALS + 1))
    assert distribution.fold_if_full()
    assert list(distribution.pending) == [3]
    assert (distribution.count, distribution.min_ns) == (EXACT_INTERVALS + 2, 3)


@given(st.lists(st.integers(0, 10**12), min_size=2, max_size=60))
def test_few_durations_give_exact_figures(durations: list[int]) -> None:
    distribution = distribution_of(durations)

    assert distribution.total_ns == sum(durations)
    assert distribution.std_ns == pytest.approx(statistics.stdev(durations), rel=1e-12, abs=1e-6)
    assert distribution.percentiles_ns(*PERCENTS) == pytest.approx(list(np.percentile(durations, PERCENTS)), rel=1e-12)


@given(st.lists(st.integers(0, 10**11), min_size=1, max_size=40), st.integers(2, 5))
def test_many_durations_give_exact_sums_and_percentiles_within_the_promise(some: list[int], thousands: int) -> None:
    durations = (some * (thousands * EXACT_INTERVALS // len(some) + 1))[: thousands * EXACT_INTERVALS + 3]
    distribution = distribution_of(durations)

    assert distribution.count == len(durations)
    assert distribution.total_ns == sum(durations)
    assert (distribution.min_ns, distribution.max_ns) == (min(durations), max(durations))
    assert distribution.std_ns == pytest.approx(float(np.std(durations, ddof=1)), rel=1e-6, abs=1e-3)
    nearest = np.percentile(durations, PERCENTS, method="lower")
    above = np.percentile(durations, PERCENTS, method="higher")
    for found, low, high in zip(distribution.percentiles_ns(*PERCENTS) or [], nearest, above, strict=True):
        assert low * 0.996 - 1 <= found <= high * 1.004 + 1


def test_equal_durations_keep_their_value_however_many() -> None:
    assert distribution_of([10_000_001] * 5000).percentiles_ns(50, 99) == [10_000_001, 10_000_001]


def test_memory_does_not_grow_with_the_number_of_durations() -> None:
    distribution = distribution_of([1_000_000 + 997 * i % 500_000 for i in range(50_000)])

    assert len(distribution.pending) <= EXACT_INTERVALS
    assert sys.getsizeof(distribution._buckets) < 20_000


def test_it_says_when_it_folds_which_is_only_when_it_is_full() -> None:
    distribution = Distribution()
    distribution.pending.extend(range(EXACT_INTERVALS))
    assert distribution.fold_if_full() is False
    distribution.pending.append(1)
    assert distribution.fold_if_full() is True
    assert distribution.fold_if_full() is False

    assert (distribution.pending, distribution.count) == ([], EXACT_INTERVALS + 1)


def test_adding_one_by_one_lets_nothing_pile_up() -> None:
    distribution = Distribution()
    for ns in range(2 * EXACT_INTERVALS + 2):
        distribution.add(ns)
        assert len(distribution.pending) <= EXACT_INTERVALS

    assert (distribution.count, distribution.max_ns) == (2 * EXACT_INTERVALS + 2, 2 * EXACT_INTERVALS + 1)


def test_percentiles_between_two_durations_are_interpolated_however_many_there_are() -> None:
    for each in (4, 5000):
        distribution = Distribution()
        for ns in (1_000_000, 100_000_000) * each:
            distribution.add(ns)

        assert distribution.percentiles_ns(50) == pytest.approx([50_500_000], rel=0.004)


def test_a_percentile_lies_between_the_two_ranks_next_to_it_and_no_others() -> None:
    shorter, longer = 1500, 500
    distribution = distribution_of([1_000_000] * shorter + [100_000_000] * longer)
    last_of_the_shorter = 100 * (shorter - 1) / (shorter + longer - 1)
    one_rank = 100 / (shorter + longer - 1)

    assert distribution.percentiles_ns(last_of_the_shorter - one_rank / 2) == pytest.approx([1_000_000], rel=0.004)
    assert distribution.percentiles_ns(last_of_the_shorter + one_rank / 2) == pytest.approx([50_500_000], rel=0.004)
