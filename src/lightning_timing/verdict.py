"""What the figures of a run say: the verdict's name, its evidence and the next thing to try.

The rules are in `verdict_rules.py`; those of them that look at all measured time, 2 and 3, are applied here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lightning_timing.advice import FOR_HEAVY, SEE_RANKS, VALIDATE_LESS, begin_epochs_faster, see_why_slower
from lightning_timing.phase_shares import PhaseShares, exposed_s, recurring_s
from lightning_timing.phases import (
    BETWEEN,
    CALLBACKS,
    FIRST_DATA_WAIT,
    ITERATION,
    SANITY_CHECK,
    STAGES,
    TRAIN,
    VALIDATE,
)
from lightning_timing.stage_verdict import judge_stage
from lightning_timing.time_parts import WARMUP, time_of, time_parts
from lightning_timing.verdict_rules import (
    COMPUTE_BOUND,
    HEAVY_OUTSIDE,
    MAIN_SHARE,
    MIN_ITERATIONS,
    MIXED,
    RANK_BOUND,
    UNEVEN_STEPS,
    VALIDATION_HEAVY,
    VALIDATION_SHARE,
    WAITING,
    Verdict,
    costliest_callback,
    heavy_phases,
    percent,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from lightning_timing.figures import CpuUsage, StageSummary
    from lightning_timing.rank_comparison import RankComparison
    from lightning_timing.time_parts import TimePart


def judge(
    stages: Mapping[str, StageSummary],
    cpu_usage: CpuUsage | None = None,
    loader_workers: Mapping[str, int] | None = None,
    world_size: int = 1,
    ranks: Mapping[str, RankComparison] | None = None,
) -> Verdict | None:
    """Judges a run: as a whole, else by its first stage, in the order of `STAGES`, that has enough iterations.

    Args:
        stages: The figures of each stage.
        cpu_usage: CPU usage, which tells how an input-bound run may be helped, if it is that of the whole iteration.
        loader_workers: Workers of the DataLoader by stage, where they are known, which tell that too.
        world_size: Number of processes, of which one is judged here.
        ranks: How the ranks compare, by stage, where that is known.

    Returns:
        The verdict; None where there is too little to judge by.
    """
    for name in STAGES:
        if name in stages and name != SANITY_CHECK:
            of_stage = cpu_usage if is_metered(name, stages) else None
            verdict = judge_stage(stages[name], of_stage, (loader_workers or {}).get(name))
            if verdict is not None:
                parts = time_parts(stages)
                return (
                    _by_validation(parts, stages)
                    or _by_time_outside(parts, stages, loader_workers or {})
                    or _with_share(_with_ranks(verdict, world_size, (ranks or {}).get(name)), name, parts)
                )
    return None


def is_metered(stage: str, stages: Collection[str]) -> bool:
    """Whether CPU usage is that of this stage, as far as is known: it is of training, if there was any.

    Args:
        stage: The stage.
        stages: All stages of the run.
    """
    return stage == TRAIN or set(stages) <= {stage, SANITY_CHECK}


def why_no_verdict(stages: Mapping[str, StageSummary]) -> str | None:
    """Says why there is too little to judge by; None where there is enough, or no iteration is measured at all."""
    iterations = [
        stage.iterations for name, stage in stages.items() if name != SANITY_CHECK and ITERATION in stage.measurements
    ]
    if not iterations or max(iterations) >= MIN_ITERATIONS:
        return None
    return f"too few iterations for a verdict: {max(iterations)} after warm-up, it takes {MIN_ITERATIONS}"


def _with_ranks(verdict: Verdict, world_size: int, ranks: RankComparison | None) -> Verdict:
    """Says of one rank's verdict that another one holds it up or, where that is not known, that it may."""
    if ranks is None:
        may_wait = world_size > 1 and verdict.name == COMPUTE_BOUND
        return replace(verdict, advice=f"{verdict.advice}; {SEE_RANKS}") if may_wait else verdict
    culprit = ranks.culprit
    if culprit is None:
        return verdict
    if verdict.name not in (COMPUTE_BOUND, WAITING, UNEVEN_STEPS, MIXED):
        return replace(verdict, evidence=f"{verdict.evidence}; {culprit.in_words} holds the others up")
    longer = percent(culprit.excess_s / ranks.phases[ITERATION].median_s)
    return Verdict(
        RANK_BOUND,
        f"{culprit.in_words} holds the others up: {' and '.join(culprit.phases)}, in which it works by itself, "
        f"takes it longer by {longer} of an iteration, for which the others wait in {culprit.waiting_phase}",
        see_why_slower(culprit.rank, culprit.phases),
    )


def _with_share(verdict: Verdict, stage: str, parts: Sequence[TimePart]) -> Verdict:
    """Adds to a stage's verdict whose it is, where the stage's iterations are not most of the measured time."""
    share = _iterations_s(parts, stage) / time_of(parts)
    if share >= MAIN_SHARE:
        return verdict
    of_stage = f"that is of {stage}, whose iterations take {percent(share)} of the measured time"
    return replace(verdict, evidence=f"{verdict.evidence}; {of_stage}")


def _by_validation(parts: Sequence[TimePart], stages: Mapping[str, StageSummary]) -> Verdict | None:
    """Judges by how much of a run that trains validation takes."""
    whole_s = time_of(parts)
    train_s, iterations_s = (_iterations_s(parts, stage) for stage in (TRAIN, VALIDATE))
    waits_s = time_of(part for part in parts if (part.stage, part.what) == (VALIDATE, FIRST_DATA_WAIT))
    if not train_s or iterations_s + waits_s < VALIDATION_SHARE * whole_s:
        return None
    if iterations_s <= max(sum(times_s.values()) for times_s in _recurring_outside(stages).values()):
        return None
    return Verdict(
        VALIDATION_HEAVY,
        f"validation takes {percent((iterations_s + waits_s) / whole_s)} of the measured time, "
        f"the iterations of {TRAIN} {percent(train_s / whole_s)}",
        VALIDATE_LESS,
    )


def _iterations_s(parts: Iterable[TimePart], stage: str) -> float:
    """Returns the time of all iterations of a stage, in seconds."""
    return time_of(part for part in parts if part.stage == stage and part.what in (ITERATION, WARMUP))


def _recurring_outside(stages: Mapping[str, StageSummary]) -> dict[str, dict[str, float]]:
    """Returns the time of what lies between iterations and recurs, in seconds: of each part, such as a callback."""
    found: dict[str, dict[str, float]] = {what: {} for what in HEAVY_OUTSIDE}
    for stage in stages.values():
        for what, times_s in found.items():
            whole = what if what == FIRST_DATA_WAIT else f"{BETWEEN}{what}"
            parts = [name for name in stage.measurements if name.startswith(f"{whole}/")] or [whole]
            for name in parts:
                if name in stage.measurements:
                    times_s[name] = times_s.get(name, 0.0) + recurring_s(stage.measurements[name])
    return found


def _by_time_outside(
    parts: Sequence[TimePart], stages: Mapping[str, StageSummary], loader_workers: Mapping[str, int]
) -> Verdict | None:
    """Judges by what lies between iterations."""
    whole_s = time_of(parts)
    parts_s = _recurring_outside(stages)
    times_s = {what: sum(of_parts.values()) for what, of_parts in parts_s.items()}
    reached = [what for what, heavy in HEAVY_OUTSIDE.items() if times_s[what] >= heavy.threshold * whole_s]
    if not reached:
        return None
    what = max(reached, key=times_s.__getitem__)
    if times_s[what] <= max((_heaviest_s(stage) for stage in stages.values()), default=0.0):
        return None
    takes = f"{what} between the iterations takes"
    if what == FIRST_DATA_WAIT:
        takes = "waiting for an epoch's first batch takes"
    if what == CALLBACKS and (callback := costliest_callback(parts_s[what])):
        takes = f"hooks between the iterations, above all those of {callback}, take"
    advice = begin_epochs_faster(loader_workers.values()) if what == FIRST_DATA_WAIT else FOR_HEAVY[what]
    taken = percent(times_s[what] / whole_s)
    is_all = taken == percent(time_of(part for part in parts if part.what == what) / whole_s)
    but = "" if is_all else ", what occurs only once left out"
    return Verdict(HEAVY_OUTSIDE[what].name, f"{takes} {taken} of the measured time{but}", advice)


def _heaviest_s(stage: StageSummary) -> float:
    """Returns the exposed time of the longest phase that reaches its threshold, in seconds; 0 where none does.

    What lies between the iterations counts from the start, so the phase is taken to have been in the warm-up as well.
    """
    shares = PhaseShares(stage.measurements)
    counted_s = max((exposed_s(stage.measurements[phase]) for phase in heavy_phases(shares)), default=0.0)
    return counted_s * (1 + stage.warmup_iterations / stage.iterations) if stage.iterations else 0.0
