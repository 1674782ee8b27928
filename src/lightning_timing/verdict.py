"""What the figures of a run say, by rules: the verdict's name, its evidence and the next thing to try.

The rules, in order. Rules 2 and 3 are on all measured time, the warm-up included. Those that follow are on the
iterations of one stage and the shares of their time (`share` of `MeasurementSummary`); where these iterations take less
than `MAIN_SHARE` of all measured time, the evidence says so.

1. Too little to judge by: fewer than `MIN_ITERATIONS` iterations, or none that took time.
2. `validation-heavy`: in a run that trains, validation's iterations and the waits for their first batches reach
   `VALIDATION_SHARE`, and the iterations alone take longer than anything of rule 3.
3. What recurs between the iterations and reaches its threshold in `HEAVY_OUTSIDE`, unless one of rule 5 takes longer:
   `epoch-start-heavy` (`first_data_wait`), or as there. What occurs only once is left out, of each callback by itself.
4. `compute-bound`, where the device was timed: it has work for `DEVICE_BUSY` of the iterations' time or more. It then
   sets the pace. The sum of the phases' device times says nothing of that: it includes idle time.
5. The largest among those that reach their threshold in `HEAVY_SHARES`, and would so without a single long interval:
   `input-bound` (`data_wait`), `transfer-bound` (`batch_transfer`), `logging-heavy` (`logging`), `checkpoint-heavy`
   (`checkpoint`), `callback-heavy` (`callbacks`), `overhead-bound` (`other`). Of one that would not, such as a wait
   during which Python collected garbage, the evidence of what follows says so.
6. `uneven steps`: the 95th percentile of `iteration`, on the device if that was timed, is `UNEVEN_RATIO` times its
   median or more.
7. `compute-bound`: the phases of the model's own work reach `COMPUTE_SHARE` together, such long intervals left out.
8. `mixed`: none of these.

In 5 and 7 the time of any phase in which the device has work is the model's own, and not that of the phase
(`overlapped_s` of `DeviceSummary`): a hook that reads the loss waits there for forward and backward.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from lightning_timing.advice import (
    CORES_ARE_BUSY,
    FOR_HEAVY,
    FOR_REST,
    LOOK_AT_DEVICE,
    VALIDATE_LESS,
    begin_with,
    feed_faster,
    look_into,
    see_what_calls_for,
    see_what_it_waits_for,
    see_what_varies,
)
from lightning_timing.phase_shares import COMPUTE_PHASES, PhaseShares, exposed_s, recurring_s
from lightning_timing.phases import (
    BATCH_TRANSFER,
    BETWEEN,
    CALLBACKS,
    CHECKPOINT,
    DATA_WAIT,
    FIRST_DATA_WAIT,
    ITERATION,
    LOGGING,
    OTHER,
    PHASES,
    SANITY_CHECK,
    STAGES,
    TRAIN,
    VALIDATE,
    whole_of,
)
from lightning_timing.time_parts import WARMUP, time_of, time_parts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lightning_timing.figures import CpuUsage, DeviceSummary, MeasurementSummary, StageSummary
    from lightning_timing.time_parts import TimePart

MIN_ITERATIONS: Final = 10
VALIDATION_SHARE: Final = 0.5
MAIN_SHARE: Final = 0.5
DEVICE_BUSY: Final = 0.9
ALMOST_ALL: Final = 0.995
UNEVEN_RATIO: Final = 1.5
COMPUTE_SHARE: Final = 0.7
_ONE_IN_20: Final = 0.05
"""What fewer of the iterations have is not what sets the slowest twentieth of them apart."""
_MOST: Final = 0.8
"""A phase that fewer of the iterations have is not simply one that the first ones of epochs lack."""
CPU_IDLE_CORES: Final = 0.5
"""Below this many cores in use, without a device that is timed, work mostly waits."""
CPU_SATURATED: Final = 0.9
"""From this share of the allowed cores on, more loader workers would only take turns."""

VALIDATION_HEAVY: Final = "validation-heavy"
EPOCH_START_HEAVY: Final = "epoch-start-heavy"
INPUT_BOUND: Final = "input-bound"
TRANSFER_BOUND: Final = "transfer-bound"
COMPUTE_BOUND: Final = "compute-bound"
LOGGING_HEAVY: Final = "logging-heavy"
CHECKPOINT_HEAVY: Final = "checkpoint-heavy"
CALLBACK_HEAVY: Final = "callback-heavy"
UNEVEN_STEPS: Final = "uneven steps"
OVERHEAD_BOUND: Final = "overhead-bound"
MIXED: Final = "mixed"


@dataclass(frozen=True)
class Verdict:
    """What limits a run, or one of its stages.

    Attributes:
        name: One of this module's verdicts.
        evidence: The figures that it rests on.
        advice: The next thing to try.
    """

    name: str
    evidence: str
    advice: str


@dataclass(frozen=True)
class _Heavy:
    threshold: float
    name: str


HEAVY_SHARES: Final[Mapping[str, _Heavy]] = {
    DATA_WAIT: _Heavy(0.2, INPUT_BOUND),
    BATCH_TRANSFER: _Heavy(0.15, TRANSFER_BOUND),
    LOGGING: _Heavy(0.1, LOGGING_HEAVY),
    CHECKPOINT: _Heavy(0.1, CHECKPOINT_HEAVY),
    CALLBACKS: _Heavy(0.15, CALLBACK_HEAVY),
    OTHER: _Heavy(0.25, OVERHEAD_BOUND),
}
"""By phase: the share from which on it stands out, and the name of that verdict."""

HEAVY_OUTSIDE: Final[Mapping[str, _Heavy]] = {
    FIRST_DATA_WAIT: _Heavy(0.2, EPOCH_START_HEAVY),
    **{phase: HEAVY_SHARES[phase] for phase in (LOGGING, CHECKPOINT, CALLBACKS)},
}
"""The same for what lies between iterations, as a share of all measured time."""


def judge(
    stages: Mapping[str, StageSummary],
    cpu_usage: CpuUsage | None = None,
    loader_workers: Mapping[str, int] | None = None,
) -> Verdict | None:
    """Judges a run: as a whole, else by its first stage, in the order of `STAGES`, that has enough iterations.

    Args:
        stages: The figures of each stage.
        cpu_usage: CPU usage, which tells how an input-bound run may be helped, if it is that of the whole iteration.
        loader_workers: Workers of the DataLoader by stage, where they are known, which tell that too.

    Returns:
        The verdict; None where there is too little to judge by.
    """
    for name in STAGES:
        if name in stages and name != SANITY_CHECK:
            verdict = judge_stage(stages[name], cpu_usage, (loader_workers or {}).get(name))
            if verdict is not None:
                parts = time_parts(stages)
                return (
                    _by_validation(parts, stages)
                    or _by_time_outside(parts, stages)
                    or _with_share(verdict, name, parts)
                )
    return None


def why_no_verdict(stages: Mapping[str, StageSummary]) -> str | None:
    """Says why there is too little to judge by; None where there is enough, or no iteration is measured at all."""
    iterations = [
        stage.iterations for name, stage in stages.items() if name != SANITY_CHECK and ITERATION in stage.measurements
    ]
    if not iterations or max(iterations) >= MIN_ITERATIONS:
        return None
    return f"too few iterations for a verdict: {max(iterations)} after warm-up, it takes {MIN_ITERATIONS}"


def judge_stage(stage: StageSummary, cpu_usage: CpuUsage | None = None, workers: int | None = None) -> Verdict | None:
    """Judges one stage by the rules of this module; None where there is too little to judge by."""
    if cpu_usage is not None and cpu_usage.measurement != ITERATION:
        cpu_usage = None  # what one of the user's measurements uses says nothing of the iterations
    iteration = stage.measurements.get(ITERATION)
    if stage.iterations < MIN_ITERATIONS or iteration is None or not iteration.total_s:
        return None
    shares = PhaseShares(stage.measurements)
    verdict = (
        _by_device(shares)
        or _by_heaviest(shares, cpu_usage, workers)
        or _by_evenness(shares, iteration)
        or _by_rest(shares, cpu_usage)
    )
    return replace(verdict, evidence="; ".join([verdict.evidence, *_long_intervals(shares)]))


def _with_share(verdict: Verdict, stage: str, parts: Sequence[TimePart]) -> Verdict:
    """Adds to a stage's verdict whose it is, where the stage's iterations are not most of the measured time."""
    share = _iterations_s(parts, stage) / time_of(parts)
    if share >= MAIN_SHARE:
        return verdict
    of_stage = f"that is of {stage}, whose iterations take {_percent(share)} of the measured time"
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
        f"validation takes {_percent((iterations_s + waits_s) / whole_s)} of the measured time, "
        f"the iterations of {TRAIN} {_percent(train_s / whole_s)}",
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


def _by_time_outside(parts: Sequence[TimePart], stages: Mapping[str, StageSummary]) -> Verdict | None:
    """Judges by what lies between iterations."""
    whole_s = time_of(parts)
    recurring_s = _recurring_outside(stages)
    times_s = {what: sum(of_parts.values()) for what, of_parts in recurring_s.items()}
    reached = [what for what, heavy in HEAVY_OUTSIDE.items() if times_s[what] >= heavy.threshold * whole_s]
    if not reached:
        return None
    what = max(reached, key=times_s.__getitem__)
    if times_s[what] <= max((_heaviest_s(stage) for stage in stages.values()), default=0.0):
        return None
    takes = f"{what} between the iterations takes"
    if what == FIRST_DATA_WAIT:
        takes = "waiting for an epoch's first batch takes"
    if what == CALLBACKS and (callback := _costliest_callback(recurring_s[what])):
        takes = f"hooks between the iterations, above all those of {callback}, take"
    taken = _percent(times_s[what] / whole_s)
    is_all = taken == _percent(time_of(part for part in parts if part.what == what) / whole_s)
    but = "" if is_all else ", what occurs only once left out"
    return Verdict(HEAVY_OUTSIDE[what].name, f"{takes} {taken} of the measured time{but}", FOR_HEAVY[what])


def _costliest_callback(times_s: Mapping[str, float]) -> str | None:
    """Returns the class of the callback that took longest, by the names of measurements; None where none is known."""
    costliest = max(times_s, key=times_s.__getitem__, default="")
    return costliest.partition(f"{CALLBACKS}/")[2] or None


def _heaviest_s(stage: StageSummary) -> float:
    """Returns the exposed time of the longest phase that reaches its threshold, in seconds; 0 where none does.

    What lies between the iterations counts from the start, so the phase is taken to have been in the warm-up as well.
    """
    shares = PhaseShares(stage.measurements)
    counted_s = max((exposed_s(stage.measurements[phase]) for phase in _heavy_phases(shares)), default=0.0)
    return counted_s * (1 + stage.warmup_iterations / stage.iterations) if stage.iterations else 0.0


def _heavy_phases(shares: PhaseShares) -> list[str]:
    return [phase for phase, heavy in HEAVY_SHARES.items() if shares.recurring(phase) >= heavy.threshold]


def _long_intervals(shares: PhaseShares) -> list[str]:
    """Names the phases that reach their threshold by a single long interval."""
    heavy_phases = _heavy_phases(shares)
    return [
        f"{phase} takes {_percent(shares.of(phase))}, most of it in a single interval of "
        f"{shares.measurements[phase].max_s:.3g} s"
        for phase, heavy in HEAVY_SHARES.items()
        if shares.exposed(phase) >= heavy.threshold and phase not in heavy_phases
    ]


def device_has_work(share: float) -> str:
    """Says for how much of a time the device is known to have work; the time's name is to follow.

    Args:
        share: A lower bound of the share (0 to 1), such as `overlapped_s` has.
    """
    return f"the device has work for {'all' if share > ALMOST_ALL else f'at least {_percent(share)}'} of"


def _by_device(shares: PhaseShares) -> Verdict | None:
    if shares.overlapped() < DEVICE_BUSY:
        return None
    return _of_device(shares, f"{device_has_work(shares.overlapped())} the iterations' time, so it sets the pace")


def _of_device(shares: PhaseShares, evidence: str) -> Verdict:
    heaviest = max(COMPUTE_PHASES, key=shares.of_device)
    if shares.of_device(heaviest):
        evidence += f"; {_percent(shares.of_device(heaviest))} of the device's time is {heaviest}"
    return Verdict(COMPUTE_BOUND, evidence, LOOK_AT_DEVICE)


def _by_heaviest(shares: PhaseShares, cpu_usage: CpuUsage | None, workers: int | None) -> Verdict | None:
    reached = _heavy_phases(shares)
    if not reached:
        return None
    phase = max(reached, key=shares.exposed)
    taken = f"{_percent(shares.of(phase))} of the iterations' time"
    if (exposed := _percent(shares.exposed(phase))) != _percent(shares.of(phase)):
        taken += f" (at most {exposed} while the device has nothing to do)"
    where = phase
    if phase == CALLBACKS:
        hooks = {name: exposed_s(m) for name, m in shares.measurements.items() if whole_of(name) == CALLBACKS}
        taken = f"hooks take {taken}"
        if callback := _costliest_callback(hooks):
            taken += f", above all those of {callback}"
            where = f"{CALLBACKS}/{callback}"
    elif phase == OTHER:
        taken = f"what no phase claims, Lightning's own loop and code of yours outside of its hooks, takes {taken}"
    else:
        taken = f"{phase} takes {taken}"
    if inside := shares.where_most_is(where):
        taken += f", most of it in {inside}"
    evidence, advice = f"{taken}, the model's own work {_percent(shares.of_compute())}", FOR_HEAVY[phase]
    if phase == DATA_WAIT:
        advice = feed_faster(workers)
        allowed_cores_used = cpu_usage.share_of_allowed or 0.0 if cpu_usage is not None else 0.0
        if allowed_cores_used >= CPU_SATURATED:
            evidence += f", with {_percent(allowed_cores_used)} of the allowed cores in use"
            advice = CORES_ARE_BUSY
    return Verdict(HEAVY_SHARES[phase].name, evidence, advice)


def _by_evenness(shares: PhaseShares, iteration: MeasurementSummary) -> Verdict | None:
    times = _pace_of(iteration)
    if not times.p50_s or times.p95_s is None or times.p95_s < UNEVEN_RATIO * times.p50_s:
        return None
    measurements = shares.measurements
    present = [p for p in PHASES if p in measurements and measurements[p].count >= _ONE_IN_20 * iteration.count]
    phase = max(present, key=lambda phase: _spread(measurements[phase], iteration.count), default=OTHER)
    where = "" if times is iteration else " on the device"
    uneven = f"one iteration in 20 takes {times.p95_s / times.p50_s:.1f} times the median or more{where}"
    taken = f"with {_percent(shares.of(phase))} of the time; the model's own work takes {_percent(shares.of_compute())}"
    if phase in measurements and _is_in_some(measurements[phase], iteration.count):
        every = iteration.count / max(measurements[phase].count, 1)
        some = f"{phase} is in one of {every:.3g} alone"
        return Verdict(UNEVEN_STEPS, f"{uneven}; {some}, {taken}", see_what_calls_for(phase))
    return Verdict(UNEVEN_STEPS, f"{uneven}; {phase} varies most, {taken}", see_what_varies(phase))


def _by_rest(shares: PhaseShares, cpu_usage: CpuUsage | None) -> Verdict:
    compute = shares.of_compute()
    in_long_intervals = sum(shares.exposed(phase) - shares.recurring(phase) for phase in HEAVY_SHARES)
    if compute >= COMPUTE_SHARE * (1 - in_long_intervals):
        if shares.overlapped() <= compute / 2:
            return _by_compute(shares, cpu_usage)
        evidence = f"{device_has_work(shares.overlapped())} the iterations' time"
        return _of_device(shares, f"{evidence}, the model's own work takes {_percent(compute)}")
    present = [phase for phase in PHASES if phase in shares.measurements]
    largest = max(present, key=shares.recurring, default=OTHER)
    of_what = ""
    if any(shares.exposed(phase) > shares.exposed(largest) for phase in present):
        of_what = " of what recurs"
    elif any(shares.of(phase) > shares.exposed(largest) for phase in present):
        of_what = " of what may hold the device up"
    return Verdict(
        MIXED,
        f"no phase stands out: the model's own work takes {_percent(compute)}, {largest} is the largest{of_what} "
        f"with {_percent(shares.exposed(largest))}",
        FOR_REST.get(largest) or begin_with(_in_words(shares, largest)),
    )


def _by_compute(shares: PhaseShares, cpu_usage: CpuUsage | None) -> Verdict:
    heaviest = max(COMPUTE_PHASES, key=shares.of)
    evidence = (
        f"the model's own work takes {_percent(shares.of_compute())} of the iterations' time, {heaviest} "
        f"{_percent(shares.of(heaviest))}"
    )
    where = _in_words(shares, heaviest)
    cores = None if cpu_usage is None else cpu_usage.process_tree_cores
    if cores is not None and cores < CPU_IDLE_CORES and not any(m.device for m in shares.measurements.values()):
        return Verdict(COMPUTE_BOUND, f"{evidence}, with {cores:.2f} cores in use", see_what_it_waits_for(where))
    return Verdict(COMPUTE_BOUND, evidence, look_into(where))


def _in_words(shares: PhaseShares, phase: str) -> str:
    """Names the phase, with the user's measurement in it that has most of its time, if one has."""
    inside = shares.where_most_is(phase)
    return phase if inside is None else f"{inside} in {phase}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _pace_of(measurement: MeasurementSummary) -> MeasurementSummary | DeviceSummary:
    """Returns the times on the device where they are known: a host that is ahead of it waits for it in one go."""
    device = measurement.device
    return measurement if device is None or not device.count else device


def _spread(phase: MeasurementSummary, iterations: int) -> float:
    """By how much a phase sets iterations apart, in seconds: all of it where only some have it."""
    times = _pace_of(phase)
    if _is_in_some(phase, iterations):
        return times.mean_s or 0.0
    return (times.p95_s or 0.0) - (times.p50_s or 0.0)


def _is_in_some(phase: MeasurementSummary, iterations: int) -> bool:
    return 0 < phase.count <= _MOST * iterations
