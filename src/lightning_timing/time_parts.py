"""Where the measured time of a run went: into the iterations of its stages, and into what lies between those."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from lightning_timing.phases import BETWEEN_ITERATIONS, FIRST_DATA_WAIT, ITERATION, PHASES, STAGES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lightning_timing.figures import MeasurementSummary, StageSummary

_OUTSIDE: Final = {FIRST_DATA_WAIT: FIRST_DATA_WAIT} | {f"{BETWEEN_ITERATIONS}/{phase}": phase for phase in PHASES}
"""Top-level measurements outside of the iterations, with the names they are shown by."""


class TimePart(NamedTuple):
    """A part of a run's measured time. Parts do not overlap.

    Attributes:
        stage: Its stage.
        what: `iteration`; for time outside of iterations, `first_data_wait` or the name of a phase.
        times: How often it was measured.
        total_s: How long it took in all, in seconds.
    """

    stage: str
    what: str
    times: int
    total_s: float


def time_parts(stages: Mapping[str, StageSummary]) -> list[TimePart]:
    """Returns the parts of the measured time, stage by stage: of what the callbacks measured, warm-up left out.

    Args:
        stages: The figures of each stage.
    """
    return [part for stage in STAGES if stage in stages for part in _parts_of(stage, stages[stage].measurements)]


def _parts_of(stage: str, measurements: Mapping[str, MeasurementSummary]) -> Iterator[TimePart]:
    for name, what in {ITERATION: ITERATION, **_OUTSIDE}.items():
        found = measurements.get(name)
        if found is not None and found.total_s:
            yield TimePart(stage, what, found.count, found.total_s)
