"""What the figures of one stage's iterations say, by rules 1 and 4 to 8 of `verdict_rules.py`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from lightning_timing.advice import (
    CORES_ARE_BUSY,
    FOR_HEAVY,
    FOR_REST,
    LOOK_AT_DEVICE,
    begin_with,
    feed_faster,
    look_into,
    see_what_calls_for,
    see_what_it_waits_for,
    see_what_varies,
)
from lightning_timing.phase_shares import COMPUTE_PHASES, PhaseShares, beyond_median_s, exposed_s, recurring_s
from lightning_timing.phases import CALLBACKS, DATA_WAIT, ITERATION, OTHER, PHASES, whole_of
from lightning_timing.verdict_rules import (
    ALMOST_ALL,
    COMPUTE_BOUND,
    COMPUTE_SHARE,
    CPU_IDLE_CORES,
    CPU_SATURATED,
    DEVICE_BUSY,
    HEAVY_SHARES,
    MIN_ITERATIONS,
    MIXED,
    UNEVEN_SHARE,
    UNEVEN_STEPS,
    WAITING,
    Verdict,
    costliest_callback,
    heavy_phases,
    percent,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lightning_timing.figures import CpuUsage, DeviceSummary, MeasurementSummary, StageSummary

_SLOW: Final = 1.5
"""An iteration that takes so many times the median is slow."""
_MOST: Final = 0.8
"""A phase that fewer iterations have is in some of them only. One that more have may be missing just in first ones."""


def judge_stage(stage: StageSummary, cpu_usage: CpuUsage | None = None, workers: int | None = None) -> Verdict | None:
    """Judges one stage by its iterations alone; None where there is too little to judge by."""
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


def _long_intervals(shares: PhaseShares) -> list[str]:
    """Names the phases that reach their threshold by a single long interval."""
    recurring = heavy_phases(shares)
    return [
        f"{phase} takes {percent(shares.of(phase))}, most of it in a single interval of "
        f"{shares.measurements[phase].max_s:.3g} s"
        for phase, heavy in HEAVY_SHARES.items()
        if shares.exposed(phase) >= heavy.threshold and phase not in recurring
    ]


def device_has_work(share: float) -> str:
    """Says for how much of a time the device is known to have work; the time's name is to follow.

    Args:
        share: A lower bound of the share (0 to 1), such as `overlapped_s` has.
    """
    return f"the device has work for {'all' if share > ALMOST_ALL else f'at least {percent(share)}'} of"


def _by_device(shares: PhaseShares) -> Verdict | None:
    if shares.overlapped() < DEVICE_BUSY:
        return None
    return _of_device(shares, f"{device_has_work(shares.overlapped())} the iterations' time, so it sets the pace")


def _of_device(shares: PhaseShares, evidence: str) -> Verdict:
    heaviest = max(COMPUTE_PHASES, key=shares.of_device)
    if shares.of_device(heaviest):
        evidence += f"; {percent(shares.of_device(heaviest))} of the device's time is {heaviest}"
    return Verdict(COMPUTE_BOUND, evidence, LOOK_AT_DEVICE)


def _by_heaviest(shares: PhaseShares, cpu_usage: CpuUsage | None, workers: int | None) -> Verdict | None:
    reached = heavy_phases(shares)
    if not reached:
        return None
    phase = max(reached, key=shares.exposed)
    taken = f"{percent(shares.of(phase))} of the iterations' time"
    if (exposed := percent(shares.exposed(phase))) != percent(shares.of(phase)):
        taken += f" (at most {exposed} while the device has nothing to do)"
    where = phase
    if phase == CALLBACKS:
        hooks = {name: exposed_s(m) for name, m in shares.measurements.items() if whole_of(name) == CALLBACKS}
        taken = f"hooks take {taken}"
        if callback := costliest_callback(hooks):
            taken += f", above all those of {callback}"
            where = f"{CALLBACKS}/{callback}"
    elif phase == OTHER:
        taken = f"what no phase claims, Lightning's own loop and code of yours outside of its hooks, takes {taken}"
    else:
        taken = f"{phase} takes {taken}"
    if inside := shares.mostly_in(where):
        taken += f", most of it in {inside}"
    for other in sorted((other for other in reached if other != phase), key=shares.exposed, reverse=True):
        taken += f", {other} {percent(shares.of(other))}"
    evidence, advice = f"{taken}, the model's own work {percent(shares.of_compute())}", FOR_HEAVY[phase]
    if phase == DATA_WAIT:
        advice = feed_faster(workers)
        allowed_cores_used = cpu_usage.share_of_allowed or 0.0 if cpu_usage is not None else 0.0
        if allowed_cores_used >= CPU_SATURATED:
            evidence += f", with {percent(allowed_cores_used)} of the allowed cores in use"
            advice = CORES_ARE_BUSY
    return Verdict(HEAVY_SHARES[phase].name, evidence, advice)


def _by_evenness(shares: PhaseShares, iteration: MeasurementSummary) -> Verdict | None:
    times = _pace_of(iteration)
    if not times.total_s or (beyond := beyond_median_s(times) / times.total_s) < UNEVEN_SHARE:
        return None
    where = "" if times is iteration else " on the device"
    uneven = f"what slow iterations take beyond the median is {percent(beyond)} of the time{where}"
    if times is iteration and iteration.p50_s:
        in_100, longest = ((time_s or 0.0) / iteration.p50_s for time_s in (iteration.p99_s, iteration.max_s))
        is_frequent = in_100 >= _SLOW
        uneven += f", one in 100 takes {in_100:.1f}" if is_frequent else f", the longest one takes {longest:.1f}"
        uneven += " times the median" + (" or more" if is_frequent else "")
    of_compute = f"the model's own work takes {percent(shares.of_compute())}"
    phase = _what_sets_apart(shares.measurements, iteration.count, at_least_s=beyond * times.total_s / 2)
    if phase is None:
        return Verdict(UNEVEN_STEPS, f"{uneven}; {of_compute}", see_what_varies("one of the phases"))
    taken = f"with {percent(shares.of(phase))} of the time; {of_compute}"
    if _is_in_some(shares.measurements[phase], iteration.count):
        every = iteration.count / shares.measurements[phase].count
        some = f"{phase} comes once in {every:.3g} of them"
        return Verdict(UNEVEN_STEPS, f"{uneven}; {some}, {taken}", see_what_calls_for(phase))
    return Verdict(UNEVEN_STEPS, f"{uneven}; most of that is in {phase}, {taken}", see_what_varies(phase))


def _what_sets_apart(measurements: Mapping[str, MeasurementSummary], iterations: int, at_least_s: float) -> str | None:
    """Returns the phase that sets slow iterations apart by so much time or more; None where none is known to.

    One that comes several times in an iteration, as `backward` with several losses, may always do so: what its
    intervals take beyond their median says nothing of the iterations.
    """
    found = {
        phase: _sets_apart_s(measurements[phase], iterations)
        for phase in PHASES
        if phase in measurements and measurements[phase].count <= iterations
    }
    phase = max(found, key=found.__getitem__, default=None)
    return phase if phase is not None and found[phase] >= at_least_s else None


def _by_rest(shares: PhaseShares, cpu_usage: CpuUsage | None) -> Verdict:
    compute = shares.of_compute()
    in_long_intervals = sum(shares.exposed(phase) - shares.recurring(phase) for phase in HEAVY_SHARES)
    if compute >= COMPUTE_SHARE * (1 - in_long_intervals):
        if shares.overlapped() <= compute / 2:
            return _by_compute(shares, cpu_usage)
        evidence = f"{device_has_work(shares.overlapped())} the iterations' time"
        return _of_device(shares, f"{evidence}, the model's own work takes {percent(compute)}")
    present = [phase for phase in PHASES if phase in shares.measurements]
    largest = max(present, key=shares.recurring, default=OTHER)
    of_what = ""
    if any(shares.exposed(phase) > shares.exposed(largest) for phase in present):
        of_what = " of what recurs"
    elif any(shares.of(phase) > shares.exposed(largest) for phase in present):
        of_what = " of what may hold the device up"
    return Verdict(
        MIXED,
        f"no phase is long enough to blame: the model's own work takes {percent(compute)}, {largest} is the "
        f"largest{of_what} with {percent(shares.exposed(largest))}",
        FOR_REST.get(largest) or begin_with(_in_words(shares, largest)),
    )


def _by_compute(shares: PhaseShares, cpu_usage: CpuUsage | None) -> Verdict:
    heaviest = max(COMPUTE_PHASES, key=shares.of)
    evidence = (
        f"the model's own work takes {percent(shares.of_compute())} of the iterations' time, {heaviest} "
        f"{percent(shares.of(heaviest))}"
    )
    where = _in_words(shares, heaviest)
    on_device = any(measurement.device for measurement in shares.measurements.values())
    cores = None if cpu_usage is None else cpu_usage.process_tree_cores
    if cores is not None and cores < CPU_IDLE_CORES and not on_device:
        return Verdict(WAITING, f"{evidence}, with {cores:.2f} cores in use", see_what_it_waits_for(where))
    return Verdict(COMPUTE_BOUND, evidence, look_into(where, on_device))


def _in_words(shares: PhaseShares, phase: str) -> str:
    """Names the phase, with the user's measurement in it that has most of its time, if one has."""
    inside = shares.mostly_in(phase)
    return phase if inside is None else f"{inside} in {phase}"


def _pace_of(measurement: MeasurementSummary) -> MeasurementSummary | DeviceSummary:
    """Returns the times on the device where they are known: a host that is ahead of it waits for it in one go."""
    device = measurement.device
    return measurement if device is None or not device.count else device


def _sets_apart_s(phase: MeasurementSummary, iterations: int) -> float:
    """By how much a phase sets slow iterations apart, in seconds: all of it that recurs where only some have it."""
    times = _pace_of(phase)
    if not _is_in_some(phase, iterations):
        return beyond_median_s(times)
    return recurring_s(phase) if times is phase else times.total_s or 0.0


def _is_in_some(phase: MeasurementSummary, iterations: int) -> bool:
    return 0 < phase.count <= _MOST * iterations
