"""How often the interval of a median's change is wrong, and how often a change is found. All seeds are fixed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightning_timing.median_change import (
    FASTER,
    MIN_TIMES,
    MIN_TIMES_FOR_MEAN,
    NO_DIFFERENCE,
    SLOWER,
    TOO_FEW,
    TOO_SHORT,
    TOO_UNEVEN,
    CenterChange,
    _correlation_of_neighbours,
    _long_run_variance,
    _reach_in_quantiles,
    mean_change,
    median_change,
    student_t,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lightning_timing.record_series import FloatArray

TRIALS = 400
MOST_FALSE = 28
"""7 % of the trials, where 5 % is promised: the rest is the luck of 400 trials."""
MEDIAN_NS = 10e6
NOISE = 0.02

Noise = Literal["normal", "heavy-tailed", "skewed"]
Compare: TypeAlias = "Callable[[Sequence[FloatArray], Sequence[FloatArray]], CenterChange]"


def ar1(rng: np.random.Generator, iterations: int, correlation: float, noise: Noise = "normal") -> FloatArray:
    """Times of `TRIALS` runs of an AR(1) process, shape (trials, iterations), with a noise of 2 % round 10 ms."""
    shape = (TRIALS, 100 + iterations)
    if noise == "normal":
        pushes = rng.standard_normal(shape)
    elif noise == "heavy-tailed":
        pushes = rng.standard_t(2, shape)
    else:
        pushes = rng.lognormal(0, 1, shape) - 1
    state = np.zeros_like(pushes)
    for i in range(1, shape[1]):
        state[:, i] = correlation * state[:, i - 1] + pushes[:, i]
    scale = NOISE * math.sqrt(1 - correlation**2)
    times: FloatArray = MEDIAN_NS * np.exp(scale * state[:, 100:])
    return times


def trials(before: FloatArray, after: FloatArray) -> list[CenterChange]:
    return [median_change([old], [new]) for old, new in zip(before, after, strict=True)]


def mean_trials(before: FloatArray, after: FloatArray) -> list[CenterChange]:
    return [mean_change([old], [new]) for old, new in zip(before, after, strict=True)]


def trials_of_runs(rng: np.random.Generator, runs: tuple[int, int], change: float = 0.0) -> list[CenterChange]:
    """Trials of several runs a side, whose speeds differ by 1 % from run to run."""
    sides = [
        [ar1(rng, 60, 0.5) * np.exp(0.01 * rng.standard_normal((TRIALS, 1)) + shift) for _ in range(count)]
        for count, shift in zip(runs, (0.0, math.log1p(change)), strict=True)
    ]
    return [median_change(*([run[trial] for run in side] for side in sides)) for trial in range(TRIALS)]


def count(changes: list[CenterChange], *verdicts: str) -> int:
    return sum(change.verdict in verdicts for change in changes)


@pytest.mark.parametrize("noise", ["normal", "heavy-tailed", "skewed"])
@pytest.mark.parametrize(
    ("correlation", "iterations"),
    [(0, 10), (0, 30), (0, 300), *((0.5, n) for n in (10, 30, 100, 300, 1000)), (0.8, 30), (0.8, 100), (0.8, 300)],
)
def test_samples_of_one_process_seldom_differ(correlation: float, iterations: int, noise: Noise) -> None:
    rng = np.random.default_rng(12)
    before, after = ar1(rng, iterations, correlation, noise), ar1(rng, iterations, correlation, noise)
    assert count(trials(before, after), FASTER, SLOWER) <= MOST_FALSE


def test_samples_of_different_lengths_seldom_differ() -> None:
    rng = np.random.default_rng(13)
    assert count(trials(ar1(rng, 1000, 0.5), ar1(rng, 30, 0.5)), FASTER, SLOWER) <= MOST_FALSE


@pytest.mark.parametrize("of", ["median", "mean"])
@pytest.mark.parametrize("correlation", [0, 0.5, 0.8])
def test_a_change_of_3_percent_in_300_iterations_is_found(correlation: float, of: str) -> None:
    rng = np.random.default_rng(14)
    before, after = ar1(rng, 300, correlation), ar1(rng, 300, correlation)
    tried = trials if of == "median" else mean_trials
    assert count(tried(before, after * 1.03), SLOWER) >= 0.9 * TRIALS
    assert count(tried(before, after / 1.03), FASTER) >= 0.9 * TRIALS


@pytest.mark.parametrize("iterations", [30, 300])
def test_the_interval_holds_the_change_that_was_made(iterations: int) -> None:
    rng = np.random.default_rng(15)
    changes = trials(ar1(rng, iterations, 0.5), ar1(rng, iterations, 0.5) * 1.25)
    held = [c.low is not None and c.high is not None and c.low <= 0.25 <= c.high for c in changes]
    assert sum(held) >= TRIALS - MOST_FALSE


@pytest.mark.parametrize("runs", [(2, 2), (3, 3), (5, 5), (1, 3), (2, 5)], ids=str)
def test_runs_that_differ_from_one_another_seldom_make_a_difference(runs: tuple[int, int]) -> None:
    assert count(trials_of_runs(np.random.default_rng(16), runs), FASTER, SLOWER) <= MOST_FALSE


def test_five_runs_a_side_show_a_change_of_three_times_their_spread() -> None:
    assert count(trials_of_runs(np.random.default_rng(17), (5, 5), change=0.03), SLOWER) >= 0.9 * TRIALS


def test_the_spread_between_runs_counts() -> None:
    rng = np.random.default_rng(18)
    before = [ar1(rng, 100, 0)[0] * factor for factor in (0.9, 1.0, 1.1)]
    after = [times * 1.05 for times in before]
    assert median_change(before[:1], after[:1]).verdict == SLOWER
    assert median_change(before, after).verdict == NO_DIFFERENCE


def test_runs_that_agree_by_chance_leave_the_interval_of_their_iterations() -> None:
    rng = np.random.default_rng(19)
    before, after = ar1(rng, 100, 0)[0], ar1(rng, 100, 0)[0]
    one, two = median_change([before], [after]), median_change([before, before], [after, after])
    assert one.low is not None
    assert two.low is not None
    assert math.log1p(two.low) - math.log1p(two.change or 0) == pytest.approx(
        (math.log1p(one.low) - math.log1p(one.change or 0)) / math.sqrt(2)
    )


def test_a_run_compared_with_itself_shows_no_difference() -> None:
    times = ar1(np.random.default_rng(20), 100, 0.5)[0]
    same = median_change([times], [times])
    assert (same.change, same.verdict, same.reason) == (0.0, NO_DIFFERENCE, None)
    assert same.low is not None
    assert same.high is not None
    assert same.low < 0 < same.high


@pytest.mark.parametrize(("after_ns", "change", "verdict"), [(100, 0.0, NO_DIFFERENCE), (103, 0.03, SLOWER)])
def test_constant_times_have_an_interval_of_no_width(after_ns: float, change: float, verdict: str) -> None:
    result = median_change([np.full(20, 100.0)], [np.full(20, after_ns)])
    assert (result.low, result.change, result.high) == pytest.approx((change, change, change), abs=1e-12)
    assert result.verdict == verdict


def test_ties_do_not_narrow_the_interval_to_nothing() -> None:
    rng = np.random.default_rng(21)
    before, after = (np.round(ar1(rng, 100, 0.5) / MEDIAN_NS, 2) for _ in range(2))  # a clock of 1 % steps
    assert count(trials(before * MEDIAN_NS, after * MEDIAN_NS), FASTER, SLOWER) <= MOST_FALSE


def test_a_slow_iteration_every_other_time_is_no_difference() -> None:
    slow_first, slow_last = np.tile([20.0, 10.0], 50)[:99], np.tile([10.0, 20.0], 50)[:99]
    assert np.median(slow_first) == 2 * np.median(slow_last)
    assert median_change([slow_last], [slow_first]).verdict == NO_DIFFERENCE


def test_a_drift_within_the_run_widens_the_interval() -> None:
    times = ar1(np.random.default_rng(22), 200, 0)[0]
    drift = np.linspace(0.95, 1.05, 200)
    steady, drifting = median_change([times], [times]), median_change([times], [times * drift])
    assert steady.high is not None
    assert drifting.high is not None
    assert drifting.high > 3 * steady.high


@pytest.mark.parametrize("iterations", [1, 2, MIN_TIMES - 1])
def test_too_few_times_have_no_interval(iterations: int) -> None:
    result = median_change([np.full(300, 100.0)], [np.full(iterations, 200.0)])
    assert (result.change, result.low, result.high) == (pytest.approx(1.0), None, None)
    assert result.verdict == TOO_FEW
    assert result.reason == "measured fewer than 8 times on a side: measure longer, or give several runs a side"


def test_single_times_of_several_runs_have_an_interval() -> None:
    before, after = [np.array([ns]) for ns in (99.0, 100, 101)], [np.array([ns]) for ns in (199.0, 200, 201)]
    result = median_change(before, after)
    assert result.verdict == SLOWER
    assert result.before_ns == pytest.approx(100, rel=1e-4)
    assert result.reason is None


@pytest.mark.parametrize(("of", "too_few"), [(median_change, MIN_TIMES - 1), (mean_change, MIN_TIMES_FOR_MEAN - 1)])
def test_a_run_too_short_for_an_interval_borrows_no_spread_from_longer_ones(of: Compare, too_few: int) -> None:
    """Runs of 300 iterations differ less than its own center is uncertain."""
    short, *rest = ar1(np.random.default_rng(23), 300, 0.5)[:4]
    long, as_short = rest, [times[:too_few] for times in rest]

    for result in (
        of([short[:too_few]], long),
        of(long, [short[:too_few]]),
        of([short[:too_few]], [*as_short, long[0]]),
    ):
        assert (result.verdict, result.low) == (TOO_FEW, None)
    assert of([short[:too_few]], as_short).low is not None
    assert of([short[: too_few + 1]], long).low is not None


def test_a_median_of_nothing_has_no_relative_change() -> None:
    result = median_change([np.zeros(20)], [np.full(20, 5.0)])
    assert (result.before_ns, result.after_ns, result.change, result.low, result.high) == (0, 5, None, None, None)
    assert result.verdict == TOO_SHORT
    assert result.reason == "the median before is not above the clock's step of 1 ns"


def test_unlike_times_of_one_name_are_too_uneven_to_compare() -> None:
    unlike = np.tile([10.0**5, 10.0**7], 20)
    result = median_change([unlike], [unlike])
    assert (result.change, result.verdict) == (0.0, TOO_UNEVEN)
    assert result.reason == "the ends of the interval are a factor of 10 or more apart"
    uneven = np.tile([10.0**6, 2 * 10.0**6], 20)
    assert median_change([uneven], [uneven]).verdict == NO_DIFFERENCE
    assert median_change([unlike], [unlike * 1000]).verdict == SLOWER


def test_times_that_fall_to_nothing_are_faster() -> None:
    result = median_change([np.full(20, 1000.0)], [np.zeros(20)])
    assert (result.change, result.verdict) == (pytest.approx(-0.999), FASTER)


SAMPLES = st.lists(st.integers(10**6, 10**7), min_size=1, max_size=40).map(lambda times: np.array(times, dtype=float))
SIDES = st.lists(SAMPLES, min_size=1, max_size=3)


@given(before=SIDES, after=SIDES)
def test_the_other_way_round_is_the_inverse(before: list[FloatArray], after: list[FloatArray]) -> None:
    there, back = median_change(before, after), median_change(after, before)
    assert (there.low is None, there.high is None) == (back.low is None, back.high is None)
    assert there.change is not None
    assert back.change is not None
    assert (1 + there.change) * (1 + back.change) == pytest.approx(1)
    if there.low is not None and there.high is not None and back.low is not None and back.high is not None:
        assert (1 + there.low) * (1 + back.high) == pytest.approx(1, rel=1e-4)
        assert there.low <= there.change <= there.high


@given(before=SIDES, after=SIDES)
def test_the_same_times_give_the_same_result(before: list[FloatArray], after: list[FloatArray]) -> None:
    assert median_change(before, after) == median_change(before, after)


@pytest.mark.parametrize(("n", "cosines"), [(8, 4), (9, 4), (301, 9)])
def test_the_long_run_variance_is_the_mean_square_of_the_projections_on_the_slowest_cosines(
    n: int, cosines: int
) -> None:
    signs = np.random.default_rng(n).choice([-0.5, 0.0, 0.5], n)
    moments = np.arange(n) + 0.5
    projections = [signs @ np.cos(np.pi * k * moments / n) for k in range(1, cosines + 1)]

    assert _long_run_variance(signs, cosines) == pytest.approx(2 / n * np.mean(np.square(projections)))


@pytest.mark.parametrize(("n", "t"), [(10, 2.7764), (88, 2.7764), (300, 2.2622), (10_000, 1.9858)])
def test_the_reach_is_at_least_that_of_independent_times_at_the_t_of_the_cosines(n: int, t: float) -> None:
    """Of 4 cosines or, from about 100 times on, a fifth of the number of times to the power of 2/3."""
    alternating = np.resize([-0.5, 0.5], n)

    assert _reach_in_quantiles(alternating) == pytest.approx(t * math.sqrt(0.25 / n), rel=1e-3)


@pytest.mark.parametrize(
    ("degrees", "value"), [(1, 12.7062), (1.5, 6.0167), (2, 4.3027), (4, 2.7764), (10, 2.2281), (100, 1.9840)]
)
def test_student_t_is_that_of_the_tables(degrees: float, value: float) -> None:
    assert student_t(degrees) == pytest.approx(value, rel=2e-4)


def test_student_t_of_many_degrees_of_freedom_is_normal() -> None:
    assert student_t(10**9) == pytest.approx(1.96, rel=2e-3)


# ---- the mean ----


@pytest.mark.parametrize("noise", ["normal", "heavy-tailed", "skewed"])
@pytest.mark.parametrize(("correlation", "iterations"), [(0, 30), (0, 300), (0.5, 30), (0.5, 300), (0.8, 100)])
def test_means_of_one_process_seldom_differ(correlation: float, iterations: int, noise: Noise) -> None:
    rng = np.random.default_rng(19)
    before, after = ar1(rng, iterations, correlation, noise), ar1(rng, iterations, correlation, noise)
    assert count(mean_trials(before, after), FASTER, SLOWER) <= MOST_FALSE


@pytest.mark.parametrize(("correlation", "iterations"), [(0.8, 30), (0.9, 30), (0.9, 60), (0.95, 300)])
def test_means_of_strongly_correlated_iterations_seldom_differ(correlation: float, iterations: int) -> None:
    rng = np.random.default_rng(20)
    before, after = ar1(rng, iterations, correlation), ar1(rng, iterations, correlation)
    assert count(mean_trials(before, after), FASTER, SLOWER) <= MOST_FALSE


@pytest.mark.parametrize("correlation", [0.0, 0.6])
def test_projections_are_scaled_up_by_the_spectrum_of_an_ar1_process(correlation: float) -> None:
    """One that lies on a single cosine shows by how much: its spectrum at frequency 0 by that at the cosine's."""
    n, k, cosines = 50, 3, 4
    series = np.cos(np.pi * k * (np.arange(n) + 0.5) / n)

    def spectrum(frequency: float) -> float:
        return float(1 / abs(1 - correlation * np.exp(-1j * frequency)) ** 2)

    expected = n / 2 / cosines * spectrum(0) / spectrum(np.pi * k / n)
    assert _long_run_variance(series, cosines, correlation) == pytest.approx(expected)


def test_the_correlation_of_neighbours_is_that_of_the_process() -> None:
    """The usual estimate would be 0.65 on average for 30 iterations."""
    estimates = [_correlation_of_neighbours(np.log(times)) for times in ar1(np.random.default_rng(24), 30, 0.8)]
    assert np.mean(estimates) == pytest.approx(0.785, abs=0.015)
    of_many = _correlation_of_neighbours(ar1(np.random.default_rng(25), 3000, 0.5)[0])
    assert of_many == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize(("times", "correlation"), [([7.0] * 40, 0.0), ([7.0, 9.0] * 20, 0.0), (list(range(40)), 0.97)])
def test_the_correlation_of_neighbours_has_bounds(times: list[float], correlation: float) -> None:
    assert _correlation_of_neighbours(np.array(times, dtype=float)) == correlation


@pytest.mark.parametrize("every", [2, 4, 10])
def test_what_only_some_iterations_do_changes_the_mean_and_not_the_median(every: int) -> None:
    before, after = ar1(np.random.default_rng(21), 100, 0.3)[:2]
    before[::every] += MEDIAN_NS
    after[::every] += 2 * MEDIAN_NS

    assert median_change([before], [after]).verdict != SLOWER or every == 2  # where the median lies between the two
    changed = mean_change([before], [after])
    assert changed.verdict == SLOWER
    expected = (1 + 2 / every) / (1 + 1 / every) - 1
    assert changed.low is not None
    assert changed.high is not None
    assert changed.low < expected < changed.high < 2 * expected


def test_a_mean_takes_more_times_than_a_median() -> None:
    times = ar1(np.random.default_rng(22), MIN_TIMES_FOR_MEAN, 0)[0]

    assert mean_change([times], [times]).verdict == NO_DIFFERENCE
    few = mean_change([times], [times[1:]])
    assert (few.verdict, few.low) == (TOO_FEW, None)
    assert "fewer than 30 times" in (few.reason or "")
