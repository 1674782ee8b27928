"""Holds the changes of a comparison against a threshold, the largest change that passes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic

from lightning_timing.comparison import Absence, ChangeT, MeanIteration, MeasurementChange
from lightning_timing.phases import ITERATION

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from lightning_timing.comparison import Comparison


@dataclass(frozen=True)
class Held(Generic[ChangeT]):
    """Changes of one kind, held against a threshold.

    Attributes:
        judged: Those that count and have an interval that says something.
        not_judged: Those that count and have none.
        crossed: Those whose whole interval lies above the threshold.
        undecided: Those whose interval has the threshold in it.
    """

    judged: tuple[ChangeT, ...]
    not_judged: tuple[ChangeT, ...]
    crossed: tuple[ChangeT, ...]
    undecided: tuple[ChangeT, ...]


@dataclass(frozen=True)
class Gate:
    """Changes held against a threshold.

    A mean or a whole iteration without an interval counts only where its change lies above the threshold.

    Attributes:
        threshold: The largest change that passes, as a share: 0.05 for 5 %.
        medians: The medians of the measurements that are judged.
        means: The mean iterations, where iterations are judged.
        wholes: The whole iterations, where iterations are judged.
        absences: What of it, or of its stages, was measured on one side only.
    """

    threshold: float
    medians: Held[MeasurementChange]
    means: Held[MeanIteration]
    wholes: Held[MeanIteration]
    absences: tuple[Absence, ...]

    @property
    def has_judged(self) -> bool:
        """Whether there was an interval to hold against the threshold."""
        return bool(self.medians.judged or self.means.judged or self.wholes.judged)

    @property
    def lost(self) -> tuple[Absence, ...]:
        """What was measured before, and is not there to be judged after."""
        return tuple(absence for absence in self.absences if absence.kind == "missing")

    @property
    def is_crossed(self) -> bool:
        """Whether any change is too large."""
        return bool(self.medians.crossed or self.means.crossed or self.wholes.crossed)


def check_threshold(comparison: Comparison, threshold: float, measurements: Collection[str]) -> Gate:
    """Holds the host time of some measurements against a threshold.

    Args:
        comparison: What was found.
        threshold: A share: 0.05 for 5 %.
        measurements: The names of those that are judged.
    """
    medians = [c for c in comparison.changes if c.clock == "host" and c.measurement in measurements]
    means, wholes = (comparison.means, comparison.wholes) if ITERATION in measurements else ((), ())
    return Gate(
        threshold,
        medians=_held(medians, threshold),
        means=_held(_with_interval_or_above(means, threshold), threshold),
        wholes=_held(_with_interval_or_above(wholes, threshold), threshold),
        absences=tuple(
            absence
            for absence in comparison.absences
            if absence.clock == "host"
            and absence.kind != "unmeasured"
            and (absence.measurement is None or absence.measurement in measurements)
        ),
    )


def _held(counting: Iterable[ChangeT], threshold: float) -> Held[ChangeT]:
    counting = tuple(counting)
    return Held(
        judged=tuple(c for c in counting if c.has_interval),
        not_judged=tuple(c for c in counting if not c.has_interval),
        crossed=tuple(c for c in counting if c.is_above(threshold)),
        undecided=tuple(c for c in counting if c.may_be_above(threshold) and not c.is_above(threshold)),
    )


def _with_interval_or_above(means: Iterable[MeanIteration], threshold: float) -> list[MeanIteration]:
    return [m for m in means if m.has_interval or (m.change is not None and m.change > threshold)]
