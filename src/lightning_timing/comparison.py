"""Compares runs: for every stage and measurement how the median changed, and under which different conditions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import geometric_mean
from typing import TYPE_CHECKING, Final, Literal

from lightning_timing.clocks import NS_IN_S
from lightning_timing.conditions import Difference, differences
from lightning_timing.median_change import TOO_FEW, TOO_UNEVEN, ChangeVerdict, mean_change, median_change
from lightning_timing.phases import ITERATION, PHASES, STAGES, place_in_loop
from lightning_timing.run_times import Measured, TimeKind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from lightning_timing.record_series import FloatArray
    from lightning_timing.run_times import RunTimes

AbsenceKind = Literal["missing", "new", "unmeasured"]

ONE_RUN_A_SIDE: Final = (
    "one run a side: runs of the same code differ too, and by how much only several a side show (three or more: "
    "--before A1 A2 A3 --after B1 B2 B3); what follows is about these two runs, not yet about the code"
)
MIN_RUNS: Final = 3
"""With fewer runs on a side nothing is known of how much what lies between iterations differs from run to run."""
MAX_LENGTH_RATIO: Final = 1.1
"""Runs further apart in length are not judged by what lies between iterations."""
MIN_BETWEEN: Final = 0.005
"""The least share of the time for which what lies between iterations is named."""
_DIFFERENT_LENGTHS: Final = "runs of different lengths: what occurs once weighs less in a longer one"
_ITERATION: Final = Measured(ITERATION, "host")
_ON_BOTH_SIDES: Final = "this run is on both sides, and a run compared with itself shows nothing"


@dataclass(frozen=True)
class Side:
    """One side of a change.

    Attributes:
        median_s: The median, in seconds; of several runs, the geometric mean of their medians.
        count: Times measured, over all runs of the side.
        runs: Runs with at least one time.
    """

    median_s: float
    count: int
    runs: int


@dataclass(frozen=True, kw_only=True)
class Change:
    """How a median or a mean changed. Changes are relative: 0.03 is 3 % more time.

    Attributes:
        change: Its change; None where it has none, as it was 0 before.
        low: Lower end of the 95 % interval of that; None where there is no interval.
        high: Upper end.
        verdict: `faster`, `slower` or `no difference shown`; or why there is no answer, such as `too few to compare`.
        reason: Why there is no answer, in words; None where there is one.
    """

    change: float | None
    low: float | None
    high: float | None
    verdict: ChangeVerdict
    reason: str | None

    @property
    def has_interval(self) -> bool:
        """Whether it has an interval that says something: that of what is too uneven to compare does not."""
        return self.low is not None and self.reason is None

    def is_above(self, threshold: float) -> bool:
        """Whether the whole interval lies above a threshold."""
        return self.has_interval and self.low is not None and self.low > threshold


@dataclass(frozen=True, kw_only=True)
class MeasurementChange(Change):
    """How the median time of one measurement changed.

    Attributes:
        stage: The stage.
        measurement: Its name.
        parent: The enclosing measurement, or None.
        clock: `host` time or `device` time.
        before: What was measured before.
        after: What was measured after.
    """

    stage: str
    measurement: str
    parent: str | None
    clock: TimeKind
    before: Side
    after: Side

    @property
    def is_of_single_runs(self) -> bool:
        """Whether each side is one run, so that nothing is known of how much runs differ."""
        return self.before.runs == self.after.runs == 1


@dataclass(frozen=True)
class Absence:
    """What cannot be compared, as it was not measured on both sides.

    Attributes:
        stage: The stage.
        measurement: The measurement; None for the whole stage.
        clock: `host` time or `device` time.
        kind: `missing` (only before), `new` (only after) or `unmeasured` (known, but without a time on either side).
    """

    stage: str
    measurement: str | None
    clock: TimeKind
    kind: AbsenceKind


@dataclass(frozen=True, kw_only=True)
class MeanIteration(Change):
    """How long an iteration takes on average. Unlike the median it changes with what only some iterations do.

    A whole iteration is the same with its part of what lies between iterations.

    Attributes:
        stage: The stage.
        before_s: The mean before, in seconds; of several runs, the geometric mean of theirs.
        after_s: The same after.
        runs_before: How many runs it is of.
        runs_after: The same after.
    """

    stage: str
    before_s: float
    after_s: float
    runs_before: int
    runs_after: int

    @property
    def is_of_single_runs(self) -> bool:
        """Whether each side is one run, so that nothing is known of how much runs differ."""
        return self.runs_before == self.runs_after == 1


@dataclass(frozen=True)
class Throughput:
    """Samples a second, by the time of all iterations; of several runs, the geometric mean.

    Attributes:
        stage: The stage.
        before: Samples a second before.
        after: Samples a second after.
    """

    stage: str
    before: float
    after: float


@dataclass(frozen=True)
class Gate:
    """Changes held against a threshold.

    Attributes:
        threshold: The largest change that passes, as a share: 0.05 for 5 %.
        judged: The changes that count and have an interval that says something.
        not_judged: Those that count and have none.
        means_judged: The mean iterations that have one, where iterations are judged.
        means_not_judged: Those that have none, though their change lies above the threshold.
        wholes_judged: The whole iterations that have one, where iterations are judged.
        wholes_not_judged: Those that have none, though their change lies above the threshold.
        crossed: The changes whose whole interval lies above the threshold.
        means_crossed: The stages whose mean iteration does.
        wholes_crossed: The stages whose whole iteration does.
    """

    threshold: float
    judged: tuple[MeasurementChange, ...]
    not_judged: tuple[MeasurementChange, ...]
    means_judged: tuple[MeanIteration, ...]
    means_not_judged: tuple[MeanIteration, ...]
    wholes_judged: tuple[MeanIteration, ...]
    wholes_not_judged: tuple[MeanIteration, ...]
    crossed: tuple[MeasurementChange, ...]
    means_crossed: tuple[MeanIteration, ...]
    wholes_crossed: tuple[MeanIteration, ...]

    @property
    def has_judged(self) -> bool:
        """Whether there was an interval to hold against the threshold."""
        return bool(self.judged or self.means_judged or self.wholes_judged)

    @property
    def is_crossed(self) -> bool:
        """Whether any change is too large."""
        return bool(self.crossed or self.means_crossed or self.wholes_crossed)


@dataclass(frozen=True)
class Comparison:
    """Runs before and after a change.

    Attributes:
        before: Where the runs before were read from.
        after: Where the runs after were read from.
        differences: The conditions in which not all of the runs agree.
        changes: What was measured on both sides, in the order of the loop.
        means: The mean iteration of each stage that both sides have.
        wholes: The whole iteration of those in which what lies between iterations takes a share worth naming.
        absences: What was not measured on both sides.
        throughputs: Samples a second in each stage of which both sides know them.
        notes: What to bear in mind, in words.
    """

    before: tuple[str, ...]
    after: tuple[str, ...]
    differences: tuple[Difference, ...]
    changes: tuple[MeasurementChange, ...]
    means: tuple[MeanIteration, ...]
    wholes: tuple[MeanIteration, ...]
    absences: tuple[Absence, ...]
    throughputs: tuple[Throughput, ...]
    notes: tuple[str, ...]

    @property
    def one_run_a_side(self) -> bool:
        """Whether each side is one run, so that nothing is known of how much runs differ."""
        return len(self.before) == len(self.after) == 1

    @property
    def items(self) -> tuple[MeasurementChange | Absence, ...]:
        """All that was measured on either side: the changes, then the absences."""
        return (*self.changes, *self.absences)

    def of_stages(self, stages: Collection[str]) -> Comparison:
        """Returns the part that is about these stages."""
        return replace(
            self,
            changes=tuple(change for change in self.changes if change.stage in stages),
            means=tuple(mean for mean in self.means if mean.stage in stages),
            wholes=tuple(whole for whole in self.wholes if whole.stage in stages),
            absences=tuple(absence for absence in self.absences if absence.stage in stages),
            throughputs=tuple(throughput for throughput in self.throughputs if throughput.stage in stages),
        )

    def of_measurements(self, names: Collection[str]) -> Comparison:
        """Returns the part that is about these measurements; all of it where none is named."""
        if not names:
            return self
        return replace(
            self,
            changes=tuple(change for change in self.changes if change.measurement in names),
            means=self.means if ITERATION in names else (),
            wholes=self.wholes if ITERATION in names else (),
            absences=tuple(absence for absence in self.absences if absence.measurement in (None, *names)),
            throughputs=self.throughputs if ITERATION in names else (),
        )

    def judge(self, threshold: float, measurements: Collection[str]) -> Gate:
        """Holds the host time of some measurements against a threshold, which is a share: 0.05 for 5 %."""
        counting = [c for c in self.changes if c.clock == "host" and c.measurement in measurements]
        means, wholes = (self.means, self.wholes) if ITERATION in measurements else ((), ())
        means_judged = tuple(mean for mean in means if mean.has_interval)
        wholes_judged = tuple(whole for whole in wholes if whole.has_interval)
        judged = tuple(c for c in counting if c.has_interval)
        return Gate(
            threshold,
            judged,
            not_judged=tuple(c for c in counting if not c.has_interval),
            means_judged=means_judged,
            means_not_judged=_unjudged_above(threshold, means),
            wholes_judged=wholes_judged,
            wholes_not_judged=_unjudged_above(threshold, wholes),
            crossed=tuple(c for c in judged if c.is_above(threshold)),
            means_crossed=tuple(mean for mean in means_judged if mean.is_above(threshold)),
            wholes_crossed=tuple(whole for whole in wholes_judged if whole.is_above(threshold)),
        )


def compare_runs(before: Sequence[RunTimes], after: Sequence[RunTimes]) -> Comparison:
    """Compares runs.

    Args:
        before: One run or several.
        after: The runs to compare them with.
    """
    sides = {stage: (_RunsInStage(before, stage), _RunsInStage(after, stage)) for stage in STAGES}
    found = [item for stage, (old, new) in sides.items() for item in _compare_stage(stage, old, new)]
    means = tuple(mean for stage, (old, new) in sides.items() for mean in _means(stage, old, new))
    folders_before = {run.folder for run in before}
    notes = [f"{run.path}: {_ON_BOTH_SIDES}" for run in after if run.folder in folders_before]
    notes += dict.fromkeys(f"{run.path}: {problem}" for run in (*before, *after) for problem in run.problems)
    if len(before) == len(after) == 1:
        notes.append(ONE_RUN_A_SIDE)
    return Comparison(
        before=tuple(str(run.path) for run in before),
        after=tuple(str(run.path) for run in after),
        differences=differences([run.conditions for run in before], [run.conditions for run in after]),
        changes=tuple(item for item in found if isinstance(item, MeasurementChange)),
        means=means,
        wholes=tuple(whole for mean in means for whole in _wholes(mean, *sides[mean.stage])),
        absences=tuple(item for item in found if isinstance(item, Absence)),
        throughputs=tuple(
            Throughput(stage, old.samples_per_s, new.samples_per_s)
            for stage, (old, new) in sides.items()
            if old.samples_per_s is not None and new.samples_per_s is not None
        ),
        notes=tuple(notes),
    )


class _RunsInStage:
    """The runs of one side in one stage."""

    def __init__(self, runs: Sequence[RunTimes], stage: str) -> None:
        self.is_known = any(stage in run.stages or stage in run.unmeasured for run in runs)
        self.stages = [run.stages[stage] for run in runs if stage in run.stages]
        self.measured = dict.fromkeys(measured for times in self.stages for measured in times.ns)
        self.parents = {name: parent for times in reversed(self.stages) for name, parent in times.parents.items()}
        rates = [times.samples_per_s for times in self.stages if times.samples_per_s is not None]
        self.samples_per_s = geometric_mean(rates) if rates and len(rates) == len(self.stages) else None
        self.unmeasured = [Measured(name, "host") for run in runs for name in run.unmeasured.get(stage, ())]

    def times(self, measured: Measured) -> list[FloatArray]:
        return [times.ns[measured] for times in self.stages if measured in times.ns]

    def share_of(self, measured: Measured) -> float:
        """The share of a phase in the time of all iterations."""
        took, whole = (sum(float(ns.sum()) for ns in self.times(which)) for which in (measured, _ITERATION))
        return took / whole if whole else 0.0

    def whole_iterations(self) -> list[FloatArray]:
        """The times of the iterations, each with its part of what lies between them."""
        return [times.ns[_ITERATION] + times.between_ns for times in self.stages if _ITERATION in times.ns]


def _compare_stage(stage: str, before: _RunsInStage, after: _RunsInStage) -> Iterator[MeasurementChange | Absence]:
    if before.stages and after.stages:
        names = dict.fromkeys((*before.measured, *after.measured, *before.unmeasured, *after.unmeasured))
        parents = {**after.parents, **before.parents}
        for measured in sorted(names, key=_place):
            old, new = before.times(measured), after.times(measured)
            if old and new:
                yield _change(stage, measured, parents.get(measured.name), old, new)
            else:
                yield Absence(stage, measured.name, measured.clock, _absence_kind(bool(old), bool(new)))
    elif before.is_known or after.is_known:
        yield Absence(stage, None, "host", _absence_kind(bool(before.stages), bool(after.stages)))


def _means(stage: str, before: _RunsInStage, after: _RunsInStage) -> Iterator[MeanIteration]:
    old, new = before.times(_ITERATION), after.times(_ITERATION)
    if old and new:
        mean = _mean(stage, old, new)
        if _differ_in_length(before, after) and (names := _heavy_on_one_side(before, after)):
            reason = f"runs of different lengths, and on one side only: {', '.join(names)}"
            mean = replace(mean, low=None, high=None, verdict=TOO_UNEVEN, reason=reason)
        yield mean


def _heavy_on_one_side(before: _RunsInStage, after: _RunsInStage) -> list[str]:
    """Names the phases that only one side has, and which count there: a shorter run may have ended before they came."""
    return [
        measured.name
        for measured in dict.fromkeys((*before.measured, *after.measured))
        if measured.clock == "host"
        and measured.name in PHASES
        and bool(before.times(measured)) != bool(after.times(measured))
        and max(before.share_of(measured), after.share_of(measured)) > MIN_BETWEEN
    ]


def _differ_in_length(before: _RunsInStage, after: _RunsInStage) -> bool:
    lengths = [times.iterations for times in (*before.stages, *after.stages)]
    return max(lengths) > MAX_LENGTH_RATIO * min(lengths)


def _wholes(mean: MeanIteration, before: _RunsInStage, after: _RunsInStage) -> Iterator[MeanIteration]:
    old, new = before.whole_iterations(), after.whole_iterations()
    whole = _mean(mean.stage, old, new)
    if not any(_is_worth_naming(w, m) for w, m in ((whole.before_s, mean.before_s), (whole.after_s, mean.after_s))):
        return
    if _differ_in_length(before, after):
        whole = replace(whole, low=None, high=None, verdict=TOO_UNEVEN, reason=_DIFFERENT_LENGTHS)
    elif min(len(old), len(new)) < MIN_RUNS:
        reason = "one run a side" if whole.is_of_single_runs else "fewer than three runs a side"
        whole = replace(whole, low=None, high=None, verdict=TOO_FEW, reason=reason)
    yield whole


def _unjudged_above(threshold: float, means: tuple[MeanIteration, ...]) -> tuple[MeanIteration, ...]:
    return tuple(m for m in means if not m.has_interval and m.change is not None and m.change > threshold)


def _is_worth_naming(whole_s: float, mean_s: float) -> bool:
    return whole_s - mean_s > MIN_BETWEEN * whole_s


def _mean(stage: str, before: list[FloatArray], after: list[FloatArray]) -> MeanIteration:
    result = mean_change(before, after)
    return MeanIteration(
        stage=stage,
        before_s=result.before_ns / NS_IN_S,
        after_s=result.after_ns / NS_IN_S,
        runs_before=len(before),
        runs_after=len(after),
        change=result.change,
        low=result.low,
        high=result.high,
        verdict=result.verdict,
        reason=result.reason,
    )


def _place(measured: Measured) -> int:
    return place_in_loop(measured.name)


def _absence_kind(before: bool, after: bool) -> AbsenceKind:
    return "missing" if before else "new" if after else "unmeasured"


def _change(
    stage: str, measured: Measured, parent: str | None, before: list[FloatArray], after: list[FloatArray]
) -> MeasurementChange:
    result = median_change(before, after)
    return MeasurementChange(
        stage=stage,
        measurement=measured.name,
        parent=parent,
        clock=measured.clock,
        before=Side(result.before_ns / NS_IN_S, sum(map(len, before)), len(before)),
        after=Side(result.after_ns / NS_IN_S, sum(map(len, after)), len(after)),
        change=result.change,
        low=result.low,
        high=result.high,
        verdict=result.verdict,
        reason=result.reason,
    )
