"""How far the median or the mean of a series of times has moved, with an interval that holds for correlated iterations.

The method:

1. **One run.** The interval of a median is read off the sorted times, at the ranks that a sign test would not reject
   (Woodruff 1952, Confidence Intervals for Medians, JASA 47, 635-646). No density is estimated, so heavy tails, ties
   and two humps do not mislead it.
2. **Correlated iterations.** The ranks follow from the long-run variance of the signs (above or below the median),
   estimated by projecting them on the slowest cosines, and used with Student's t (Lazarus, Lewis, Stock and Watson
   2018, HAR Inference: Recommendations for Practice, JBES 36, 541-559). Half the cosines recommended there are used,
   but 4 or more: fewer hold for stronger correlation (Dou 2024, Optimal HAR Inference, Quantitative Economics 15,
   1107-1149), and a wrong `slower` costs more than a small one missed. The variance is at least that of independent
   iterations.
3. **Two sides.** The distances from each median to its limits are combined as root sums of squares, on a logarithmic
   scale (MOVER: Zou and Donner 2008, Statistics in Medicine 27, 1693-1702): the interval of the medians' ratio.
4. **Several runs a side.** The runs' medians are a sample of their own: Welch's t on their logarithms, never narrower
   than the interval from the iterations alone. A side of one run borrows the other side's spread, but not where it has
   too few times for an interval of its own and the other side's runs have more: those differ less.
5. **The mean**, which also shows what only some iterations do, such as the optimizer's step where gradients are
   accumulated: the same with the long-run variance of the times themselves, the case that the sources of 2 are about,
   and no least variance, since what recurs every few iterations does not make their mean uncertain. A few very long
   times make the interval wide, as they should. Where the correlation is so strong that even the slowest cosines show
   less of it than the mean does, each is scaled up by the spectrum of an AR(1) process: prewhitening (Andrews and
   Monahan 1992, Econometrica 60, 953-966), with a correlation of neighbours without the bias of short series (Marriott
   and Pope 1954, Bias in the Estimation of Autocorrelations, Biometrika 41, 390-402). Up to 0.5 this leaves the
   interval as it is, but for the shortest series. The median does without: the signs are less correlated than the
   times, and in the few times that suffice for a median such a correlation is mostly luck.

How often samples of one AR(1) process differ, in 2,000 trials: with coefficient 0.5 in 1 to 4 % for 10 to 1,000
iterations, with 0.8 in 2 to 6 % from 20 iterations on (12 % for 10), with 0.9 in 2 to 5 % from 100 on; heavy tails and
skew make little difference. So below some 30 iterations a difference between strongly correlated times means little.
The means differ, with coefficients up to 0.9, in 2 to 5 % from 30 iterations on, with 0.95 in 7 % for 30 and in 3 to
5 % from 60 on. Without scaling the cosines up that were, with 0.95, 36, 22 and 11 % for 30, 60 and 300 iterations.

Why no block bootstrap: with the automatic block length of Politis and White (2004), corrected by Patton, Politis and
White (2009), samples of the process with 0.5 differed in 8.5 % of trials for 300 iterations, 14 % for 30 and 20 % for
10; and a million iterations would take minutes, where this takes a sort and a Fourier transform. The library that has
it, `arch`, brings pandas, scipy and statsmodels along.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lightning_timing.record_series import FloatArray

ChangeVerdict = Literal[
    "faster",
    "slower",
    "no difference shown",
    "too few to compare",
    "too uneven to compare",
    "too short to compare",
    "not judged",
    "occurs more often",
    "occurs less often",
]

FASTER: Final = "faster"
SLOWER: Final = "slower"
NO_DIFFERENCE: Final = "no difference shown"
TOO_FEW: Final = "too few to compare"
TOO_UNEVEN: Final = "too uneven to compare"
TOO_SHORT: Final = "too short to compare"
NOT_JUDGED: Final = "not judged"
"""The runs are too different for an answer, by which the reason says."""
MORE_OFTEN: Final = "occurs more often"
LESS_OFTEN: Final = "occurs less often"

CONFIDENCE: Final = 0.95
MIN_TIMES: Final = 8
"""With fewer times the interval would reach beyond the shortest and the longest even if they were independent."""
MIN_TIMES_FOR_MEAN: Final = 30
"""With fewer times its interval is too narrow for correlated ones."""
MAX_RATIO: Final = 10.0
"""An interval around 0 with ends this factor apart says nothing, as where different things have one name."""

_CLOCK_STEP_NS: Final = 1.0
_INDEPENDENT_VARIANCE: Final = 0.25
_MAX_DEGREES_OF_FREEDOM: Final = 1000.0
_MAX_CORRELATION: Final = 0.97
"""As in Andrews and Monahan 1992: nearer to 1 the interval would grow without bounds."""


@dataclass(frozen=True, kw_only=True)
class CenterChange:
    """How the median or the mean of one measurement changed. Changes are relative: 0.03 is 3 % more time.

    Attributes:
        before_ns: The median or mean before, in nanoseconds; of several runs, the geometric mean of theirs.
        after_ns: The same after.
        change: `after_ns / before_ns - 1`; None where `before_ns` is not above the clock's step.
        low: Lower end of the 95 % interval of `change`; None where there is no interval.
        high: Its upper end.
        verdict: `faster` or `slower` where the whole interval is on one side of 0, else `no difference shown`; or why
            there is no answer, such as `too few to compare`.
        reason: Why there is no answer, in words; None where there is one.
    """

    before_ns: float
    after_ns: float
    change: float | None
    low: float | None = None
    high: float | None = None
    verdict: ChangeVerdict = NO_DIFFERENCE
    reason: str | None = None


@dataclass(frozen=True)
class _LogCenter:
    """Logarithm of a median or mean, and how far its interval reaches below and above it."""

    center: float
    below: float = 0.0
    above: float = 0.0


def median_change(before: Sequence[FloatArray], after: Sequence[FloatArray]) -> CenterChange:
    """Compares the medians of two sides.

    A time below the clock's step counts as one step, of 1 ns.

    Args:
        before: The times of each run, in nanoseconds, in the order in which they were measured; none of them empty.
        after: The same after the change.
    """
    return _change(before, after, "median", _log_median, MIN_TIMES)


def mean_change(before: Sequence[FloatArray], after: Sequence[FloatArray]) -> CenterChange:
    """Compares the means of two sides: as `median_change`."""
    return _change(before, after, "mean", _log_mean, MIN_TIMES_FOR_MEAN)


def _change(
    before: Sequence[FloatArray],
    after: Sequence[FloatArray],
    what: Literal["median", "mean"],
    log_center: Callable[[FloatArray], _LogCenter],
    min_times: int,
) -> CenterChange:
    runs_before, runs_after = [log_center(times) for times in before], [log_center(times) for times in after]
    old, new = _mean_of_runs(runs_before), _mean_of_runs(runs_after)
    before_ns, after_ns = _center_ns(before, old, what), _center_ns(after, new, what)
    reason: str | None = None
    if before_ns <= _CLOCK_STEP_NS:
        reason = f"the {what} before is not above the clock's step of 1 ns"
        return CenterChange(before_ns=before_ns, after_ns=after_ns, change=None, verdict=TOO_SHORT, reason=reason)
    difference = new.center - old.center
    change = math.expm1(difference)
    if _is_too_few(before, after, min_times) or _is_too_few(after, before, min_times):
        reason = f"measured fewer than {min_times} times on a side: measure longer, or give several runs a side"
        return CenterChange(before_ns=before_ns, after_ns=after_ns, change=change, verdict=TOO_FEW, reason=reason)
    between_runs = _spread_between_runs(runs_before, runs_after)
    below = max(between_runs, math.hypot(new.below, old.above))
    above = max(between_runs, math.hypot(new.above, old.below))
    low, high = math.expm1(difference - below), math.expm1(difference + above)
    verdict: ChangeVerdict = SLOWER if low > 0 else FASTER if high < 0 else NO_DIFFERENCE
    if verdict == NO_DIFFERENCE and below + above >= math.log(MAX_RATIO):
        verdict = TOO_UNEVEN
        reason = f"the ends of the interval are a factor of {MAX_RATIO:g} or more apart"
        if len(before) + len(after) > 2 and min(len(before), len(after)) < 3:
            reason += ": give three runs or more a side"
    return CenterChange(
        before_ns=before_ns, after_ns=after_ns, change=change, low=low, high=high, verdict=verdict, reason=reason
    )


def _is_too_few(side: Sequence[FloatArray], other: Sequence[FloatArray], min_times: int) -> bool:
    """Whether a side is one run with too few times, and the other, being one run or having a longer one, lends none."""
    if len(side) > 1 or len(side[0]) >= min_times:
        return False
    return len(other) == 1 or len(side[0]) < max(map(len, other))


def _center_ns(runs: Sequence[FloatArray], of_runs: _LogCenter, what: Literal["median", "mean"]) -> float:
    if len(runs) == 1:
        return float(np.median(runs[0]) if what == "median" else np.mean(runs[0]))
    return round(math.exp(of_runs.center), 3)  # what the logarithm lost: 1 s must not become 999.999 ms


def _log_median(times: FloatArray) -> _LogCenter:
    """Returns the interval of one run's median; its width is 0 where there are too few times."""
    median = np.median(times)
    if len(times) < MIN_TIMES:
        return _LogCenter(math.log(max(median, _CLOCK_STEP_NS)))
    reach = _reach_in_quantiles(np.sign(times - median) / 2)
    inside = min(reach, 0.5)
    low, center, high = np.log(np.maximum(np.quantile(times, [0.5 - inside, 0.5, 0.5 + inside]), _CLOCK_STEP_NS))
    # Strong correlation asks for ranks beyond the shortest and the longest time: what lies there is extrapolated.
    return _LogCenter(float(center), float(center - low) * reach / inside, float(high - center) * reach / inside)


def _log_mean(times: FloatArray) -> _LogCenter:
    """Returns the interval of one run's mean; its width is 0 where there are too few times."""
    mean = max(float(np.mean(times)), _CLOCK_STEP_NS)
    n = len(times)
    if n < MIN_TIMES_FOR_MEAN:
        return _LogCenter(math.log(mean))
    cosines = _cosines(n)
    variance = _long_run_variance(times - mean, cosines, _correlation_of_neighbours(times))
    reach = student_t(cosines) * math.sqrt(variance / n) / mean
    # On the logarithmic scale to first order: the lower end of a mean that is hardly known would lie below 0.
    return _LogCenter(math.log(mean), reach, reach)


def _cosines(n: int) -> int:
    return max(4, round(0.2 * math.pow(n, 2 / 3)))


def _reach_in_quantiles(signs: FloatArray) -> float:
    """Returns how far from 0.5 the quantiles lie that a sign test would not reject, for signs of -0.5, 0 or 0.5."""
    n = len(signs)
    cosines = _cosines(n)
    variance = max(_long_run_variance(signs, cosines), _INDEPENDENT_VARIANCE)
    return student_t(cosines) * math.sqrt(variance / n)


def _long_run_variance(series: FloatArray, cosines: int, correlation: float = 0.0) -> float:
    """The mean square of the projections on the slowest `cosines`: a Fourier transform of the series and its mirror.

    Args:
        series: The series, with a mean near 0.
        cosines: How many.
        correlation: That of neighbours in an AR(1) process. Each projection is scaled up by how much of it that process
            has at frequency 0 for each part at the frequency of the cosine.
    """
    n = len(series)
    k = np.arange(1, cosines + 1)
    spectrum = np.fft.rfft(np.concatenate([series, series[::-1]]))[1 : cosines + 1]
    projections = (spectrum * np.exp(-0.5j * np.pi * k / n)).real / 2
    to_zero = (1 + correlation**2 - 2 * correlation * np.cos(np.pi * k / n)) / (1 - correlation) ** 2
    return float(np.mean(projections**2 * to_zero)) * 2 / n


def _correlation_of_neighbours(times: FloatArray) -> float:
    """The correlation of neighbours, from 0 to `_MAX_CORRELATION`.

    The usual estimate, with the mean estimated too, lies too low by (1 + 4 * correlation) / n (Marriott and Pope 1954).
    """
    n = len(times)
    deviations = times - np.mean(times)
    squares = float(np.dot(deviations, deviations))
    if squares == 0:
        return 0.0
    estimate = float(np.dot(deviations[1:], deviations[:-1])) / squares
    return min(max((n * estimate + 1) / (n - 4), 0.0), _MAX_CORRELATION)


def _mean_of_runs(centers: Sequence[_LogCenter]) -> _LogCenter:
    runs = len(centers)
    return _LogCenter(
        center=math.fsum(run.center for run in centers) / runs,
        below=math.hypot(*(run.below for run in centers)) / runs,
        above=math.hypot(*(run.above for run in centers)) / runs,
    )


def _spread_between_runs(before: Sequence[_LogCenter], after: Sequence[_LogCenter]) -> float:
    """Half the width of the interval that the spread of the runs' medians or means gives; 0 for one run a side."""
    sides = [np.array([run.center for run in side]) for side in (before, after)]
    known = [float(np.var(side, ddof=1)) for side in sides if len(side) > 1]
    if not known:
        return 0.0
    if len(known) == 1:
        squared = known[0] * sum(1 / len(side) for side in sides)
        return student_t(max(map(len, sides)) - 1) * math.sqrt(squared)
    parts = [variance / len(side) for variance, side in zip(known, sides, strict=True)]
    squared = sum(parts)
    if squared == 0:
        return 0.0
    degrees = 1 / sum((part / squared) ** 2 / (len(side) - 1) for part, side in zip(parts, sides, strict=True))
    return student_t(degrees) * math.sqrt(squared)


def student_t(degrees_of_freedom: float) -> float:
    """The value that Student's t stays within, either sign, with a probability of 95 %.

    With t = sqrt(df) tan(angle), the density of the angle is proportional to cos(angle) ** (df - 1), which is bounded,
    so a sum over a grid is right to 3 digits or more, for fractional degrees of freedom as well.

    Args:
        degrees_of_freedom: At least 1. Above 1,000 the value no longer changes by more than 0.1 %, and is kept.
    """
    df = min(degrees_of_freedom, _MAX_DEGREES_OF_FREEDOM)
    angle = np.linspace(0, np.pi / 2, 4097)
    density = np.cos(angle) ** (df - 1)
    cumulative = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    return math.sqrt(df) * math.tan(np.interp(CONFIDENCE, cumulative / cumulative[-1], angle))
