"""What to bear in mind of the runs that are compared, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lightning_timing.contention import OTHERS_SHARE
from lightning_timing.names import listed
from lightning_timing.phases import ITERATION, TRAIN, VALIDATE
from lightning_timing.runs_in_stage import ITERATION_ON_HOST, MAX_FREQUENCY_RATIO

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lightning_timing.run_times import RunTimes
    from lightning_timing.runs_in_stage import RunsInStage

ONE_RUN_A_SIDE: Final = (
    "one run a side: runs of the same code differ too, and by how much only several a side show (three or more: "
    "--before A1 A2 A3 --after B1 B2 B3); what follows is about these two runs, not yet about the code"
)
ONE_RUN_BESIDE_SEVERAL: Final = (
    "one run on a side: runs like it are taken to differ as much as those of the other side do; three or more a side "
    "show by how much"
)
_CONTENTION_UNKNOWN: Final = "whether others used the machine meanwhile is not known, as no summary covers these rows"
_CONTENTION_OF_MANY: Final = (
    f"other processes used {100 * OTHERS_SHARE:.0f} % of the machine or more meanwhile: these figures are not reliable"
)
_RUNS_NAMED: Final = 2
_ON_BOTH_SIDES: Final = "this run is on both sides, and a run compared with itself shows nothing"


def comparison_notes(
    before: Sequence[RunTimes], after: Sequence[RunTimes], sides: Mapping[str, tuple[RunsInStage, RunsInStage]]
) -> tuple[str, ...]:
    """Returns what to bear in mind.

    Args:
        before: The runs before.
        after: The runs after.
        sides: The same by stage.
    """
    runs_before = {(run.folder, run.run) for run in before}
    notes = [f"{run.path}: {_ON_BOTH_SIDES}" for run in after if (run.folder, run.run) in runs_before]
    notes += dict.fromkeys(f"{run.path}: {problem}" for run in (*before, *after) for problem in run.problems)
    if len(before) == len(after) == 1:
        notes.append(ONE_RUN_A_SIDE)
    elif 1 in (len(before), len(after)):
        notes.append(ONE_RUN_BESIDE_SEVERAL)
    notes += _validation_note(sides[TRAIN], sides[VALIDATE])
    return tuple(notes)


def contention_notes(runs: Sequence[RunTimes]) -> Iterator[str]:
    """Says in which runs others used the machine and, where they did in any, of which that is not known."""
    disturbed = [run for run in runs if run.contention]
    if disturbed:
        yield from (f"{run.path}: {_CONTENTION_UNKNOWN}" for run in runs if run.contention is None)
    if len(disturbed) > _RUNS_NAMED:
        named = listed([str(run.path) for run in disturbed[:_RUNS_NAMED]], len(disturbed))
        yield f"{named}: {_CONTENTION_OF_MANY}"
    else:
        yield from (f"{run.path}: {note}" for run in disturbed for note in run.contention or ())


def _validation_note(train: Sequence[RunsInStage], validate: Sequence[RunsInStage]) -> Iterator[str]:
    """Says what validation costs where one side validates more often than the other, which no row shows."""
    if not all(side.times(ITERATION_ON_HOST) for side in (*train, *validate)):
        return
    (often, took_ms), (often_after, took_after_ms) = map(_validation_of, train, validate)
    if not 1 / MAX_FREQUENCY_RATIO < often_after / often < MAX_FREQUENCY_RATIO:
        yield (
            f"validation has {often:.3g} iterations for each of training before and {often_after:.3g} after, which "
            f"take {took_ms:.3g} and {took_after_ms:.3g} ms: that is in none of the figures below"
        )


def _validation_of(train: RunsInStage, validate: RunsInStage) -> tuple[float, float]:
    """Returns how many iterations validation has for each of training, and what these take in milliseconds."""
    often = validate.iterations / train.iterations
    return often, often * validate.parts_s()[ITERATION] * 1e3
