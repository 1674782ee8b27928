"""What many durations come to, with numpy and without it."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightning_timing.batch import Batch, batch_of, by_numpy, by_python

DURATIONS = st.lists(st.integers(0, 10**8) | st.integers(0, 300), min_size=1, max_size=200)


@given(DURATIONS)
def test_numpy_makes_no_difference(durations: list[int]) -> None:
    batch = by_numpy(np, durations)
    assert batch == by_python(durations) == batch_of(durations)
    assert {type(each) for each in (*batch[:-1], *batch.buckets, *batch.buckets.values())} == {int}


@pytest.mark.parametrize("longest", [10**9, 10**12, 2**62, 2**70])
def test_durations_beyond_what_64_bits_hold_are_exact_too(longest: int) -> None:
    durations = [longest, longest - 1, 3] * 400
    batch = batch_of(durations)
    assert (batch.total, batch.squares) == (sum(durations), sum(ns * ns for ns in durations))
    assert (batch.least, batch.greatest, sum(batch.buckets.values())) == (3, longest, 1200)


def test_numpy_is_not_used_while_it_is_being_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = Batch(2, 3, 5, 1, 2, by_python([1, 2]).buckets)
    monkeypatch.setitem(sys.modules, "numpy", sys)  # which has nothing of it
    assert batch_of([1, 2]) == expected
    monkeypatch.delitem(sys.modules, "numpy")
    assert batch_of([1, 2]) == expected
