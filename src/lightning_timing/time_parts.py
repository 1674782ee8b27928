"""Where the measured time of a run went: into the iterations of its stages, and into what lies between those.

What lies between iterations is measured from the start of a run, during warm-up too. So the iterations of the warm-up
are included here, as a part of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from lightning_timing.phases import BETWEEN, FIRST_DATA_WAIT, ITERATION, PHASES, STAGES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lightning_timing.figures import StageSummary

WARMUP: Final = "warm-up"
"""The part that consists of the iterations that were not counted."""

_OUTSIDE: Final = {FIRST_DATA_WAIT: FIRST_DATA_WAIT} | {f"{BETWEEN}{phase}": phase for phase in PHASES}
"""Top-level measurements outside of the iterations, with the names they are shown by."""


class TimePart(NamedTuple):
    """A part of a run's measured time. Parts do not overlap.

    Attributes:
        stage: Its stage.
        what: `iteration`, those that count; `WARMUP`; for time outside of iterations, `first_data_wait` or the name of
            a phase.
        total_s: How long it took in all, in seconds.
    """

    stage: str
    what: str
    total_s: float


def time_parts(stages: Mapping[str, StageSummary]) -> list[TimePart]:
    """Returns the parts of the time that the callbacks measured, stage by stage.

    A warm-up whose time is not known is left out.

    Args:
        stages: The figures of each stage.
    """
    return [part for stage in STAGES if stage in stages for part in _parts_of(stage, stages[stage])]


def time_of(parts: Iterable[TimePart]) -> float:
    """Returns how long parts took together, in seconds."""
    return sum(part.total_s for part in parts)


def _parts_of(name: str, stage: StageSummary) -> Iterator[TimePart]:
    iteration = stage.measurements.get(ITERATION)
    if iteration is not None and iteration.total_s:
        yield TimePart(name, ITERATION, iteration.total_s)
    if stage.warmup_s:
        yield TimePart(name, WARMUP, stage.warmup_s)
    for measurement, what in _OUTSIDE.items():
        found = stage.measurements.get(measurement)
        if found is not None and found.total_s:
            yield TimePart(name, what, found.total_s)
