"""Compares runs: for every stage and measurement how the median changed, and under which different conditions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from lightning_timing.clocks import NS_IN_S
from lightning_timing.comparison import (
    Absence,
    BatchSizes,
    Comparison,
    MeanIteration,
    MeasurementChange,
    PartOfChange,
    Side,
    Throughput,
)
from lightning_timing.comparison_notes import comparison_notes, contention_notes
from lightning_timing.conditions import differences
from lightning_timing.median_change import (
    FASTER,
    LESS_OFTEN,
    MORE_OFTEN,
    NOT_JUDGED,
    SLOWER,
    TOO_FEW,
    mean_change,
    median_change,
)
from lightning_timing.mostly_in import mostly_in
from lightning_timing.phases import ITERATION, PHASES, STAGES, place_in_loop, whole_of
from lightning_timing.runs_in_stage import ITERATION_ON_HOST, MAX_FREQUENCY_RATIO, RunsInStage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lightning_timing.comparison import AbsenceKind
    from lightning_timing.median_change import CenterChange, ChangeVerdict
    from lightning_timing.record_series import FloatArray
    from lightning_timing.run_times import RunTimes
    from lightning_timing.stage_times import Measured

MIN_RUNS: Final = 3
"""With fewer runs on a side nothing is known of how much what lies between iterations differs from run to run."""
MAX_LENGTH_RATIO: Final = 1.1
"""Runs further apart in length are not judged by what lies between iterations."""
MIN_BETWEEN: Final = 0.005
"""The least share of the time for which what lies between iterations is named."""
MIN_CHANGE: Final = 0.05
"""The least change of a whole iteration for which its parts are named, where runs are too few to tell."""
MIN_PART: Final = 0.1
"""The least share in the mean iteration's change for which a phase is named."""
_OTHER_PHASES: Final = "each iteration has other phases before than after: see the mean iteration"
_DIFFERENT_LENGTHS: Final = "runs of different lengths: what occurs once weighs less in a longer one"


def compare_runs(before: Sequence[RunTimes], after: Sequence[RunTimes]) -> Comparison:
    """Compares runs.

    Args:
        before: One run or several.
        after: The runs to compare them with.
    """
    sides = {stage: (RunsInStage(before, stage), RunsInStage(after, stage)) for stage in STAGES}
    batch_sizes = tuple(differ for stage, (old, new) in sides.items() if (differ := _batch_sizes(stage, old, new)))
    if len({run.world_size for run in (*before, *after)}) > 1:
        batch_sizes = ()  # how many samples all processes have together is not known: they may share them
    for sizes in batch_sizes:
        _take_by_samples(sizes, *sides[sizes.stage])
    notes = comparison_notes(before, after, sides)
    found = [item for stage, (old, new) in sides.items() for item in _compare_stage(stage, old, new)]
    means = tuple(mean for stage, (old, new) in sides.items() for mean in _means(stage, old, new))
    of_one_rank = any(run.world_size > 1 for run in (*before, *after))
    return Comparison(
        before=tuple(str(run.path) for run in before),
        after=tuple(str(run.path) for run in after),
        differences=differences([run.conditions for run in before], [run.conditions for run in after]),
        changes=tuple(item for item in found if isinstance(item, MeasurementChange)),
        means=means,
        wholes=tuple(whole for mean in means for whole in _wholes(mean, *sides[mean.stage])),
        absences=tuple(item for item in found if isinstance(item, Absence)),
        throughputs=tuple(
            Throughput(stage, old.samples_per_s, new.samples_per_s, of_one_rank)
            for stage, (old, new) in sides.items()
            if old.samples_per_s is not None and new.samples_per_s is not None
        ),
        batch_sizes=batch_sizes,
        contention=tuple(dict.fromkeys(contention_notes((*before, *after)))),
        notes=notes,
    )


def _batch_sizes(stage: str, before: RunsInStage, after: RunsInStage) -> BatchSizes | None:
    """Returns the sizes of the batches, if all runs are known to have them and not the same one."""
    old, new = ([times.batch_size for times in side.stages if times.batch_size] for side in (before, after))
    is_known = old and new and len(old) + len(new) == len(before.stages) + len(after.stages)
    if not is_known or len({*old, *new}) == 1:
        return None
    return BatchSizes(stage, tuple(dict.fromkeys(old)), tuple(dict.fromkeys(new)), samples=min(*old, *new))


def _compare_stage(stage: str, before: RunsInStage, after: RunsInStage) -> Iterator[MeasurementChange | Absence]:
    if before.stages and after.stages:
        names = dict.fromkeys((*before.measured, *after.measured, *before.unmeasured, *after.unmeasured))
        parents = {**after.parents, **before.parents}
        for measured in sorted(names, key=_place):
            old, new = before.times(measured), after.times(measured)
            if old and new:
                change = _change(stage, measured, parents.get(measured.name), old, new)
                if measured.name == ITERATION and not (before.median_is_alike and after.median_is_alike):
                    change = change.unanswered(NOT_JUDGED, _OTHER_PHASES)
                yield _unless_frequency_differs(change, measured, before, after)
            else:
                kind = _absence_kind(bool(old), bool(new))
                yield Absence(stage, measured.name, parents.get(measured.name), measured.clock, kind)
    elif before.is_known or after.is_known:
        yield Absence(stage, None, None, "host", _absence_kind(bool(before.stages), bool(after.stages)))


def _unless_frequency_differs(
    change: MeasurementChange, measured: Measured, before: RunsInStage, after: RunsInStage
) -> MeasurementChange:
    """Withdraws the answer on what occurs more or less often: its median does not tell what it costs a run.

    Its number in a run and its number for each iteration must both differ: the first does where one run is only longer,
    and the second does then for what occurs once a run.
    """
    often = after.frequency(measured), before.frequency(measured)
    ratios = [new / old for new, old in (often, (after.occurrences(measured), before.occurrences(measured))) if old]
    verdict: ChangeVerdict
    if len(ratios) == 2 and all(ratio >= MAX_FREQUENCY_RATIO for ratio in ratios):
        verdict = MORE_OFTEN
    elif len(ratios) == 2 and all(ratio <= 1 / MAX_FREQUENCY_RATIO for ratio in ratios):
        verdict = LESS_OFTEN
    else:
        return change
    if before.has_in_iterations(measured) or after.has_in_iterations(measured):
        new, old = (f"{100 * frequency:.3g} %" for frequency in often)
        reason = f"in {old} of the iterations before, {new} after: see the mean iteration"
    else:
        old, new = (f"{side.occurrences(measured):.3g}" for side in (before, after))
        reason = f"{old} times a run before, {new} after: see the iteration with what lies between"
    return change.unanswered(verdict, reason)


def _take_by_samples(sizes: BatchSizes, before: RunsInStage, after: RunsInStage) -> None:
    """Makes the times of a stage those of as many samples on both sides."""
    in_each = before.in_each_iteration() & after.in_each_iteration()
    in_each_of_one = before.in_each_iteration() ^ after.in_each_iteration()
    if any(name in PHASES for name, _ in in_each_of_one):
        # Such as an optimizer's step where gradients are accumulated on one side: the median has it on the other alone.
        before.median_is_alike = after.median_is_alike = False
    for side in (before, after):
        side.stages = [times.of_samples(sizes.samples, in_each) for times in side.stages]


def _means(stage: str, before: RunsInStage, after: RunsInStage) -> Iterator[MeanIteration]:
    old, new = before.times(ITERATION_ON_HOST), after.times(ITERATION_ON_HOST)
    if old and new:
        mean = _mean(stage, old, new)
        if mean.reason is None and (names := _perhaps_yet_to_come(before, after)):
            reason = f"runs of different lengths, and on one side only: {', '.join(names)}"
            mean = mean.unanswered(NOT_JUDGED, reason)
        yield replace(mean, parts=_parts(mean, before, after)) if mean.verdict in (FASTER, SLOWER) else mean


def _parts(
    mean: MeanIteration, before: RunsInStage, after: RunsInStage, *, with_between: bool = False
) -> tuple[PartOfChange, ...]:
    """Returns the phases that have a tenth of the mean iteration's change or more, either way, the largest first.

    Of several runs the parts are means that add up, while the change is one of geometric means: they are scaled to it.
    """
    old, new = before.parts_s(with_between=with_between), after.parts_s(with_between=with_between)
    changed_s = {name: new.get(name, 0.0) - old.get(name, 0.0) for name in {**old, **new}}
    parts = [name for name in changed_s if (whole_of(name) or name) in PHASES and whole_of(name) not in changed_s]
    parts += [name for name in changed_s if name in before.between or name in after.between]
    whole_s = sum(changed_s[name] for name in parts)
    change_s = mean.after.time_s - mean.before.time_s
    if whole_s * change_s <= 0:
        return ()
    parents = {**after.parents, **before.parents}
    shares = {name: ns / whole_s for name, ns in changed_s.items()}
    return tuple(
        PartOfChange(part, shares[part] * change_s, mostly_in(part, _ahead(shares, shares[part]), parents))
        for part in sorted(parts, key=lambda part: abs(shares[part]), reverse=True)
        if abs(shares[part]) >= MIN_PART
    )


def _ahead(shares: Mapping[str, float], way: float) -> Mapping[str, float]:
    """Returns the shares with their signs turned where those that go this way are below 0."""
    return {name: -share for name, share in shares.items()} if way < 0 else shares


def _perhaps_yet_to_come(before: RunsInStage, after: RunsInStage) -> list[str]:
    """Names the phases that matter on one side and are missing on the other, which may be too short to reach them."""
    if not _differ_in_length(before, after):
        return []
    return [
        measured.name
        for measured in dict.fromkeys((*before.measured, *after.measured))
        if measured.clock == "host"
        and (whole_of(measured.name) or measured.name) in PHASES
        and bool(before.times(measured)) != bool(after.times(measured))
        and max(before.share_of(measured.name), after.share_of(measured.name)) > MIN_BETWEEN
        and _is_too_rare(measured, *((before, after) if before.times(measured) else (after, before)))
    ]


def _is_too_rare(measured: Measured, having: RunsInStage, lacking: RunsInStage) -> bool:
    """Whether a phase recurs so seldom where it occurs that the runs without it may be too short for it."""
    every = sum(times.iterations for times in having.stages) / sum(map(len, having.times(measured)))
    return max(times.iterations for times in lacking.stages) < 2 * every


def _differ_in_length(before: RunsInStage, after: RunsInStage) -> bool:
    lengths = [times.iterations for times in (*before.stages, *after.stages)]
    return max(lengths) > MAX_LENGTH_RATIO * min(lengths)


def _wholes(mean: MeanIteration, before: RunsInStage, after: RunsInStage) -> Iterator[MeanIteration]:
    old, new = before.whole_iterations(), after.whole_iterations()
    whole = _mean(mean.stage, old, new)
    if not any(_is_worth_naming(w, m) for w, m in ((whole.before, mean.before), (whole.after, mean.after))):
        return
    if _differ_in_length(before, after):
        whole = whole.unanswered(NOT_JUDGED, _DIFFERENT_LENGTHS)
    elif min(len(old), len(new)) < MIN_RUNS:
        reason = "one run a side" if whole.is_of_single_runs else "fewer than three runs a side"
        whole = whole.unanswered(TOO_FEW, reason)
    is_changed = whole.verdict in (FASTER, SLOWER) or (whole.verdict == TOO_FEW and _is_large(whole))
    yield replace(whole, parts=_parts(whole, before, after, with_between=True)) if is_changed else whole


def _is_large(whole: MeanIteration) -> bool:
    return whole.change is not None and abs(whole.change) >= MIN_CHANGE


def _is_worth_naming(whole: Side, mean: Side) -> bool:
    return whole.time_s - mean.time_s > MIN_BETWEEN * whole.time_s


def _mean(stage: str, before: list[FloatArray], after: list[FloatArray]) -> MeanIteration:
    return MeanIteration(stage=stage, **_what_changed(mean_change(before, after), before, after))


def _place(measured: Measured) -> int:
    return place_in_loop(measured.name)


def _absence_kind(before: bool, after: bool) -> AbsenceKind:
    return "missing" if before else "new" if after else "unmeasured"


def _change(
    stage: str, measured: Measured, parent: str | None, before: list[FloatArray], after: list[FloatArray]
) -> MeasurementChange:
    found = _what_changed(median_change(before, after), before, after)
    return MeasurementChange(stage=stage, measurement=measured.name, parent=parent, clock=measured.clock, **found)


def _what_changed(result: CenterChange, before: list[FloatArray], after: list[FloatArray]) -> dict[str, Any]:
    """Returns the fields of a `Change` that follow from the times."""
    return {
        "before": Side(result.before_ns / NS_IN_S, sum(map(len, before)), len(before)),
        "after": Side(result.after_ns / NS_IN_S, sum(map(len, after)), len(after)),
        "change": result.change,
        "low": result.low,
        "high": result.high,
        "verdict": result.verdict,
        "reason": result.reason,
    }
