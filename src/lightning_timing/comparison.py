"""What a comparison of runs holds: how each measurement changed, under which conditions, and what is absent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeVar

from lightning_timing.phases import ITERATION

if TYPE_CHECKING:
    from collections.abc import Collection

    from lightning_timing.conditions import Difference
    from lightning_timing.median_change import ChangeVerdict
    from lightning_timing.stage_times import TimeKind

AbsenceKind = Literal["missing", "new", "unmeasured"]

ChangeT = TypeVar("ChangeT", bound="Change")


@dataclass(frozen=True)
class Side:
    """One side of a change.

    Attributes:
        time_s: The median or the mean, in seconds; of several runs, the geometric mean of theirs.
        count: Times measured, over all runs of the side.
        runs: Runs with at least one time.
    """

    time_s: float
    count: int
    runs: int


@dataclass(frozen=True, kw_only=True)
class Change:
    """How a median or a mean changed. Changes are relative: 0.03 is 3 % more time.

    Attributes:
        stage: The stage.
        before: What was measured before.
        after: What was measured after.
        change: Its change; None where it has none, as it was 0 before.
        low: Lower end of the 95 % interval of that; None where there is no interval.
        high: Upper end.
        verdict: `faster`, `slower` or `no difference shown`; or why there is no answer, such as `too few to compare`.
        reason: Why there is no answer, in words; None where there is one.
    """

    stage: str
    before: Side
    after: Side
    change: float | None
    low: float | None
    high: float | None
    verdict: ChangeVerdict
    reason: str | None

    @property
    def is_of_single_runs(self) -> bool:
        """Whether each side is one run, so that nothing is known of how much runs differ."""
        return self.before.runs == self.after.runs == 1

    @property
    def has_interval(self) -> bool:
        """Whether it has an interval that means something: not where the times are too uneven to compare."""
        return self.low is not None and self.reason is None

    def is_above(self, threshold: float) -> bool:
        """Whether the whole interval lies above a threshold."""
        return self.low is not None and self.reason is None and self.low > threshold

    def may_be_above(self, threshold: float) -> bool:
        """Whether any of the interval lies above a threshold."""
        return self.high is not None and self.reason is None and self.high > threshold

    def unanswered(self: ChangeT, verdict: ChangeVerdict, reason: str) -> ChangeT:
        """Returns the same change without an interval, and why there is no answer."""
        return replace(self, low=None, high=None, verdict=verdict, reason=reason)


@dataclass(frozen=True, kw_only=True)
class MeasurementChange(Change):
    """How the median time of one measurement changed.

    Attributes:
        measurement: Its name.
        parent: The enclosing measurement, or None.
        clock: `host` time or `device` time.
    """

    measurement: str
    parent: str | None
    clock: TimeKind


@dataclass(frozen=True)
class Absence:
    """What cannot be compared, as it was not measured on both sides.

    Attributes:
        stage: The stage.
        measurement: The measurement; None for the whole stage.
        parent: The enclosing measurement, or None.
        clock: `host` time or `device` time.
        kind: `missing` (only before), `new` (only after) or `unmeasured` (known, but without a time on either side).
    """

    stage: str
    measurement: str | None
    parent: str | None
    clock: TimeKind
    kind: AbsenceKind


@dataclass(frozen=True)
class PartOfChange:
    """What one phase adds to the change of the mean iteration. The phases add up to the iteration, so their changes do.

    Attributes:
        phase: The phase.
        change_s: By how much its part of the mean iteration changed, in seconds.
        mostly_in: The user's measurement inside it that has half of that or more, or None.
    """

    phase: str
    change_s: float
    mostly_in: str | None


@dataclass(frozen=True, kw_only=True)
class MeanIteration(Change):
    """How long an iteration takes on average. Unlike the median it changes with what only some iterations do.

    A whole iteration is the same, with its share of the time between iterations added.

    Attributes:
        parts: The phases that have a tenth of its change or more, or have changed by as much the other way, the largest
            first, where it is `faster` or `slower`; of a whole iteration also where there are too few runs to tell.
    """

    parts: tuple[PartOfChange, ...] = ()


@dataclass(frozen=True)
class Throughput:
    """Samples a second, by the time of all iterations; of several runs, the geometric mean.

    Attributes:
        stage: The stage.
        before: Samples a second before.
        after: Samples a second after.
        of_one_rank: Whether there are several ranks, of which this is the mean.
    """

    stage: str
    before: float
    after: float
    of_one_rank: bool


@dataclass(frozen=True)
class BatchSizes:
    """That the runs have batches of different sizes in a stage: its times are those of as many samples each.

    Attributes:
        stage: The stage.
        before: The different sizes of the runs before, in samples.
        after: The different sizes of the runs after.
        samples: The number of samples that all times of the stage are of: the smallest batch.
    """

    stage: str
    before: tuple[int, ...]
    after: tuple[int, ...]
    samples: int


@dataclass(frozen=True)
class Comparison:
    """Runs before and after a change.

    Attributes:
        before: Where the runs before were read from.
        after: Where the runs after were read from.
        differences: The conditions in which not all of the runs agree.
        changes: What was measured on both sides, in the order of the loop.
        means: The mean iteration of each stage that both sides have.
        wholes: The whole iteration of each stage in which the time between iterations is long enough to be named.
        absences: What was not measured on both sides.
        throughputs: Samples a second in each stage of which both sides know them.
        batch_sizes: Those of the stages in which they differ.
        contention: Which runs other processes have disturbed, in words.
        notes: What else to bear in mind, in words.
    """

    before: tuple[str, ...]
    after: tuple[str, ...]
    differences: tuple[Difference, ...]
    changes: tuple[MeasurementChange, ...]
    means: tuple[MeanIteration, ...]
    wholes: tuple[MeanIteration, ...]
    absences: tuple[Absence, ...]
    throughputs: tuple[Throughput, ...]
    batch_sizes: tuple[BatchSizes, ...]
    contention: tuple[str, ...]
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
            batch_sizes=tuple(sizes for sizes in self.batch_sizes if sizes.stage in stages),
        )

    def of_measurements(self, chosen: Collection[tuple[str, str]]) -> Comparison:
        """Returns the part that is about these measurements, each with its stage; all of it where none is chosen."""
        if not chosen:
            return self
        return replace(
            self,
            changes=tuple(change for change in self.changes if (change.stage, change.measurement) in chosen),
            means=tuple(mean for mean in self.means if (mean.stage, ITERATION) in chosen),
            wholes=tuple(whole for whole in self.wholes if (whole.stage, ITERATION) in chosen),
            absences=tuple(
                absence
                for absence in self.absences
                if absence.measurement is None or (absence.stage, absence.measurement) in chosen
            ),
            throughputs=tuple(found for found in self.throughputs if (found.stage, ITERATION) in chosen),
        )
