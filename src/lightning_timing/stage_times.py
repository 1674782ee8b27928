"""The times of one stage of a run, as they are compared."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from lightning_timing.record_series import FloatArray

TimeKind = Literal["host", "device"]


class Measured(NamedTuple):
    """What was measured, and by which clock: `host` time or `device` time."""

    name: str
    clock: TimeKind


@dataclass(frozen=True)
class StageTimes:
    """The times of one stage of a run.

    Attributes:
        ns: The times of each measurement in nanoseconds, in order, without the iterations in which it did not occur.
            What occurred between iterations has a time for each occurrence, unless it occurred inside them as well.
        part_ns: The part of an iteration that each measurement on the host has, in nanoseconds: the mean over the
            iterations and the ranks, where it did not occur counting as 0. So the phases add up to the iteration.
        parents: The enclosing measurement of each, or None.
        samples_per_s: Samples a second of a rank, by the time of all its iterations on the slower of host and device;
            None where batch sizes are not known.
        between_part_ns: An iteration's part of each thing that the callbacks measured between iterations, in
            nanoseconds: the mean over the ranks. The iterations of warm-up have theirs too, since that is measured from
            the start.
        iterations: How many there were, those of warm-up included: the mean over the ranks.
        batch_size: Samples in a batch; None where that is not known, or not the same in most of them and on all ranks.
    """

    ns: Mapping[Measured, FloatArray]
    part_ns: Mapping[str, float]
    parents: Mapping[str, str | None]
    samples_per_s: float | None
    between_part_ns: Mapping[str, float]
    iterations: float
    batch_size: int | None

    @property
    def between_ns(self) -> float:
        """An iteration's part of all that lies between iterations, in nanoseconds."""
        return sum(self.between_part_ns.values())

    def of_samples(self, samples: int, in_each: Collection[Measured]) -> StageTimes:
        """Returns the times that so many samples have, in place of those of a batch, whose size is known.

        What counts iterations then counts as many times so many samples.

        Args:
            samples: The number of samples.
            in_each: What each iteration has. What only some have, or none, has a time for each occurrence, as before.
        """
        batches = samples / (self.batch_size or samples)
        return replace(
            self,
            ns={measured: batches * times if measured in in_each else times for measured, times in self.ns.items()},
            part_ns={name: batches * ns for name, ns in self.part_ns.items()},
            between_part_ns={name: batches * ns for name, ns in self.between_part_ns.items()},
            iterations=self.iterations / batches,
        )
