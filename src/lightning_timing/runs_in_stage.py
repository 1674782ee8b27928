"""The runs of one side of a comparison in one stage: what was measured, and how much of an iteration it is."""

from __future__ import annotations

from statistics import fmean, geometric_mean
from typing import TYPE_CHECKING, Final

from lightning_timing.clocks import NS_IN_S
from lightning_timing.phases import ITERATION
from lightning_timing.stage_times import Measured

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightning_timing.record_series import FloatArray
    from lightning_timing.run_times import RunTimes

ITERATION_ON_HOST: Final = Measured(ITERATION, "host")
_NEARLY_ALL: Final = 0.8
MAX_FREQUENCY_RATIO: Final = 1.5
"""What occurs so much more or less often is not judged by what it takes when it occurs."""


class RunsInStage:
    """The runs of one side in one stage.

    Args:
        runs: All runs of the side.
        stage: The stage.

    Attributes:
        is_known: Whether any of them has the stage, be it without a figure.
        stages: The times of those that have any in it.
        measured: What was measured in any of them, in order.
        parents: The enclosing measurement of each, or None.
        samples_per_s: Samples a second, the geometric mean of the runs; None where not all know theirs.
        unmeasured: What is known in it without a figure.
        median_is_alike: Whether the median of an iteration is of the same phases as on the other side, as far as known.
    """

    def __init__(self, runs: Sequence[RunTimes], stage: str) -> None:
        self.is_known = any(stage in run.stages or stage in run.unmeasured for run in runs)
        self.stages = [run.stages[stage] for run in runs if stage in run.stages]
        self.measured = dict.fromkeys(measured for times in self.stages for measured in times.ns)
        self.parents = {name: parent for times in reversed(self.stages) for name, parent in times.parents.items()}
        rates = [times.samples_per_s for times in self.stages if times.samples_per_s is not None]
        self.samples_per_s = geometric_mean(rates) if rates and len(rates) == len(self.stages) else None
        self.median_is_alike = True
        self.unmeasured = [Measured(name, "host") for run in runs for name in run.unmeasured.get(stage, ())]

    def times(self, measured: Measured) -> list[FloatArray]:
        """Returns the times of a measurement in each run that has any, in nanoseconds."""
        return [times.ns[measured] for times in self.stages if measured in times.ns]

    def in_each_iteration(self) -> set[Measured]:
        """What the iterations of each run have, but for a few of them."""
        found = {which for which in self.measured if which.clock == "device" or self.has_in_iterations(which)}
        for times in self.stages:
            least = _NEARLY_ALL * len(times.ns.get(ITERATION_ON_HOST, ()))
            found = {measured for measured in found if len(times.ns.get(measured, ())) >= least}
        return found

    def has_in_iterations(self, measured: Measured) -> bool:
        """Whether a measurement occurs in iterations, and not only between them."""
        return any(measured.name in times.part_ns for times in self.stages)

    def frequency(self, measured: Measured) -> float:
        """How often it occurs for each iteration: of what lies in iterations, the share of those that have it."""
        iterations = sum(map(len, self.times(ITERATION_ON_HOST)))
        return sum(map(len, self.times(measured))) / iterations if iterations else 0.0

    def occurrences(self, measured: Measured) -> float:
        """How often it occurs in a run, in the mean."""
        return fmean(map(len, self.times(measured)))

    @property
    def iterations(self) -> float:
        """All iterations of the runs, those of warm-up included."""
        return sum(times.iterations for times in self.stages)

    def share_of(self, name: str) -> float:
        """The share of a phase in the mean iteration."""
        parts_s = self.parts_s()
        whole_s = parts_s.get(ITERATION, 0.0)
        return parts_s.get(name, 0.0) / whole_s if whole_s else 0.0

    @property
    def between(self) -> set[str]:
        """What the callbacks measured between iterations."""
        return {name for times in self.stages for name in times.between_part_ns}

    def parts_s(self, *, with_between: bool = False) -> dict[str, float]:
        """Each measurement's part of the mean iteration, in seconds: the mean of the runs.

        Args:
            with_between: Also the iteration's part of what lies between iterations.
        """
        runs = [{**times.part_ns, **(times.between_part_ns if with_between else {})} for times in self.stages]
        names = dict.fromkeys(name for parts_ns in runs for name in parts_ns)
        return {name: fmean(parts_ns.get(name, 0.0) for parts_ns in runs) / NS_IN_S for name in names}

    def whole_iterations(self) -> list[FloatArray]:
        """The times of the iterations, each with its part of what lies between them."""
        return [
            times.ns[ITERATION_ON_HOST] + times.between_ns for times in self.stages if ITERATION_ON_HOST in times.ns
        ]
