"""The verdict: each rule, its thresholds, and which rule comes first."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from figures import device, measurement, not_measured, stage

from lightning_timing import verdict_rules
from lightning_timing.advice import FOR_HEAVY
from lightning_timing.figures import CpuUsage, MeasurementSummary, StageSummary
from lightning_timing.phases import (
    BACKWARD,
    BETWEEN_ITERATIONS,
    CALLBACKS,
    CHECKPOINT,
    DATA_WAIT,
    FIRST_DATA_WAIT,
    FORWARD,
    ITERATION,
)
from lightning_timing.rank_comparison import Culprit, PhaseAcrossRanks, RankComparison
from lightning_timing.stage_verdict import judge_stage
from lightning_timing.verdict import judge, why_no_verdict
from lightning_timing.verdict_rules import HEAVY_SHARES, MIN_ITERATIONS


def name_of(figures: StageSummary) -> str | None:
    found = judge_stage(figures)
    return None if found is None else found.name


@pytest.mark.parametrize(
    ("phase", "name"),
    [
        ("data_wait", "input-bound"),
        ("batch_transfer", "transfer-bound"),
        ("logging", "logging-heavy"),
        ("checkpoint", "checkpoint-heavy"),
        ("callbacks", "callback-heavy"),
    ],
)
def test_a_heavy_phase_is_named_from_its_threshold_on(phase: str, name: str) -> None:
    threshold = HEAVY_SHARES[phase].threshold

    at = judge_stage(stage(**{phase: threshold, "forward": 1 - threshold}))
    below = judge_stage(stage(**{phase: threshold - 0.001, "forward": 1.001 - threshold}))

    assert at is not None
    assert at.name == name
    subject = {
        "callbacks": "hooks take",
        "other": "what no phase claims, Lightning's own loop and code of yours outside of its hooks, takes",
    }
    own_work = f"the model's own work {100 - 100 * threshold:.0f} %"
    taken = f"{subject.get(phase, f'{phase} takes')} {100 * threshold:.0f} % of the iterations' time"
    assert at.evidence == f"{taken}, {own_work}"
    assert at.advice
    assert below is not None
    assert below.name == "compute-bound"


@pytest.mark.parametrize(
    ("phase", "where", "subject"),
    [
        ("data_wait", "data_wait", "data_wait takes 40 % of the iterations' time, "),
        ("callbacks", "callbacks/Watch", "hooks take 40 % of the iterations' time, above all those of Watch, "),
    ],
)
def test_a_heavy_phase_is_named_with_the_span_that_has_most_of_it(phase: str, where: str, subject: str) -> None:
    figures = stage(**{phase: 0.4, "forward": 0.6})
    inside = {"slow": measurement(0.3, whole_s=1.0, iterations=100, parent=where)}
    hook = {} if where == phase else {where: measurement(0.35, whole_s=1.0, iterations=100, parent=phase)}
    found = judge_stage(replace(figures, measurements={**figures.measurements, **hook, **inside}))

    assert found is not None
    assert found.evidence.startswith(f"{subject}most of it in slow, the model's own work")


def with_a_long_interval(phase: str, *, total_s: float, longest_s: float, **others: float) -> StageSummary:
    """A stage in which one interval of a phase is long; the others of that phase share the rest of its time."""
    figures = stage(**{phase: total_s, **others})
    found = replace(figures.measurements[phase], max_s=longest_s)
    return replace(figures, measurements={**figures.measurements, phase: found})


def test_a_single_long_interval_is_no_reason_but_is_said() -> None:
    """Python collects garbage during a wait: that is no reason for more workers."""
    found = judge_stage(with_a_long_interval("data_wait", total_s=0.55, longest_s=0.476, forward=1.0, backward=0.2))

    assert found is not None
    assert found.name == "compute-bound"
    assert found.evidence == (
        "the model's own work takes 69 % of the iterations' time, forward 57 %; data_wait takes 31 %, most of it in a "
        "single interval of 0.476 s"
    )


@pytest.mark.parametrize(("longest_s", "name"), [(0.35, "input-bound"), (0.36, "compute-bound")])
def test_the_longest_interval_counts_for_no_more_than_all_others_together(longest_s: float, name: str) -> None:
    assert name_of(with_a_long_interval("data_wait", total_s=0.5, longest_s=longest_s, forward=1.0)) == name


def test_long_waits_that_recur_are_a_reason() -> None:
    assert name_of(with_a_long_interval("data_wait", total_s=0.5, longest_s=0.25, forward=1.0)) == "input-bound"


def test_the_costliest_callback_is_named() -> None:
    parts = {
        f"callbacks/{name}": measurement(total_s, whole_s=1.0, iterations=100, parent="callbacks")
        for name, total_s in (("Cheap", 0.1), ("Costly", 0.2))
    }

    verdict = judge_stage(stage(callbacks=0.3, forward=0.7, extra=parts))

    assert verdict is not None
    assert verdict.evidence == (
        "hooks take 30 % of the iterations' time, above all those of Costly, the model's own work 70 %"
    )


def test_the_heaviest_of_several_is_named() -> None:
    assert name_of(stage(data_wait=0.25, checkpoint=0.3, forward=0.45)) == "checkpoint-heavy"


def test_the_models_own_work_is_compute() -> None:
    found = judge_stage(stage(forward=0.3, backward=0.45, optimizer_step=0.1, other=0.15))

    assert found is not None
    assert found.name == "compute-bound"
    assert found.evidence == "the model's own work takes 85 % of the iterations' time, backward 45 %"
    assert "backward" in found.advice


@pytest.mark.parametrize(
    ("spans", "advice"),
    [
        ({"augment": (FORWARD, 0.45), "net": (FORWARD, 0.3)}, "look into augment in forward: put spans into it"),
        ({"net": (FORWARD, 0.7), "head": ("net", 0.5)}, "look into head in forward: put spans into it"),
        ({"net": (FORWARD, 0.7), "head": ("net", 0.39)}, "look into net in forward: put spans into it"),
        ({"net": (FORWARD, 0.3), "loss": (BACKWARD, 0.1)}, "look into forward: put spans into it"),
        ({"a": ("b", 0.7), "b": ("a", 0.7)}, "look into forward: put spans into it"),
    ],
)
def test_the_span_that_has_most_of_a_phase_is_the_place_to_look(
    spans: dict[str, tuple[str, float]], advice: str
) -> None:
    extra = {
        name: measurement(total_s, whole_s=1.0, iterations=100, parent=parent)
        for name, (parent, total_s) in spans.items()
    }

    found = judge_stage(stage(forward=0.8, backward=0.1, other=0.1, extra=extra))

    assert found is not None
    assert found.advice.startswith(advice)


def test_nothing_stands_out() -> None:
    found = judge_stage(stage(forward=0.5, backward=0.1, data_wait=0.19, other=0.21))

    assert found is not None
    assert found.name == "mixed"
    assert found.evidence == (
        "no phase is long enough to blame: the model's own work takes 60 %, forward is the largest with 50 %"
    )
    assert found.advice.startswith("begin with forward")


@pytest.mark.parametrize(
    ("phase", "advice"),
    [
        ("data_wait", "num_workers"),
        ("other", "batch size"),
        ("barrier", 'ranks="all"'),
        ("backward", "put spans into it"),
    ],
)
def test_where_nothing_stands_out_the_advice_is_about_the_largest(phase: str, advice: str) -> None:
    work = {"forward": 0.14, "grad_clip": 0.14, "optimizer_step": 0.14}
    others = {"batch_transfer": 0.12, "callbacks": 0.12, "logging": 0.05}
    found = judge_stage(stage(**work, **others, **{phase: 0.17}))

    assert found is not None
    assert found.name == "mixed"
    assert f"{phase} is the largest with" in found.evidence
    assert advice in found.advice


def test_the_largest_phase_that_recurs_is_not_said_to_be_the_largest_of_all() -> None:
    long = with_a_long_interval("barrier", total_s=0.6, longest_s=0.55, forward=0.3, grad_clip=0.1)
    found = judge_stage(long)

    assert found is not None
    assert found.evidence == (
        "no phase is long enough to blame: the model's own work takes 40 %, forward is the largest of what recurs "
        "with 30 %"
    )


def test_what_no_phase_claims_is_lightning_s_own_loop() -> None:
    found = judge_stage(stage(forward=0.5, data_wait=0.1, other=0.4))

    assert found is not None
    assert found.name == "overhead-bound"
    assert found.evidence == (
        "what no phase claims, Lightning's own loop and code of yours outside of its hooks, takes 40 % of the "
        "iterations' time, the model's own work 50 %"
    )
    assert "batch size" in found.advice
    assert "your module's optimizer_step, before it calls Lightning's" in found.advice


def test_uneven_steps_name_the_phase_that_only_some_iterations_have() -> None:
    """An optimizer's step of 3 s in one of 4 iterations, in all of which forward takes 1 s and varies a little."""
    figures = stage(forward=100.0, optimizer_step=75.0)
    measurements = dict(figures.measurements)
    measurements["iteration"] = replace(measurements["iteration"], p50_s=1.0, p99_s=4.0, max_s=4.0)
    measurements["forward"] = replace(measurements["forward"], p50_s=0.98, max_s=1.2)
    measurements["optimizer_step"] = replace(measurements["optimizer_step"], count=25, mean_s=3.0, p50_s=3.0, max_s=3.0)

    found = judge_stage(replace(figures, measurements=measurements))

    assert found is not None
    assert found.name == "uneven steps"
    assert found.evidence == (
        "what slow iterations take beyond the median is 43 % of the time, one in 100 takes 4.0 times the median or "
        "more; optimizer_step comes once in 4 of them, with 43 % of the time; the model's own work takes 100 %"
    )
    assert "accumulated gradients" in found.advice


@pytest.mark.parametrize(
    ("phase", "advice"),
    [
        ("forward", "look into forward: put spans into it, "),
        ("backward", "look into backward, which costs what forward makes it: run under py-spy"),
        ("lr_scheduler", "make the scheduler's step cheaper"),
    ],
)
def test_the_advice_fits_the_phase_that_takes_most(phase: str, advice: str) -> None:
    found = judge_stage(stage(**{phase: 0.8, "optimizer_step": 0.2}))

    assert found is not None
    assert found.advice.startswith(advice)


def test_work_that_uses_no_cpu_waits() -> None:
    idle = CpuUsage("iteration", process_tree_percent=11.0, machine_percent=10.0, share_of_allowed=0.05)
    busy = replace(idle, process_tree_percent=190.0)

    waiting = judge_stage(stage(optimizer_step=0.8, forward=0.2), idle)
    working = judge_stage(stage(optimizer_step=0.8, forward=0.2), busy)

    assert waiting is not None
    assert waiting.name == "waiting"
    assert waiting.evidence.endswith("optimizer_step 80 %, with 0.11 cores in use")
    assert waiting.advice.startswith(
        "find out what optimizer_step waits for: a slower rank (where there are several), "
    )
    assert working is not None
    assert working.name == "compute-bound"
    assert working.advice.startswith("look into optimizer_step")


def with_slow_iterations(figures: StageSummary, phase: str, every: int, slow_s: float) -> StageSummary:
    """The same stage, with a phase that takes `slow_s` longer in one of so many iterations."""
    number = figures.iterations // every
    added_s = number * slow_s

    def slower(name: str) -> MeasurementSummary:
        found = figures.measurements[name]
        assert found.total_s is not None
        assert found.p50_s is not None
        total_s, longest_s = found.total_s + added_s, found.p50_s + slow_s
        return replace(
            found,
            total_s=total_s,
            mean_s=total_s / found.count,
            max_s=longest_s,
            p95_s=longest_s if every <= 20 else found.p50_s,
            p99_s=longest_s if every <= 100 else found.p50_s,
        )

    changed = {name: slower(name) for name in (ITERATION, phase)}
    whole_s = changed[ITERATION].total_s
    assert whole_s is not None
    measurements = {**figures.measurements, **changed}
    shares = {name: replace(found, share=(found.total_s or 0.0) / whole_s) for name, found in measurements.items()}
    return replace(figures, measurements=shares)


@pytest.mark.parametrize(
    ("every", "how_slow"),
    [
        (10, "one in 100 takes 21.0 times the median or more"),
        (50, "one in 100 takes 101.0 times the median or more"),
        (200, "the longest one takes 401.0 times the median"),
    ],
)
def test_slow_iterations_count_by_what_they_cost_and_not_by_how_many_they_are(every: int, how_slow: str) -> None:
    """A busy loop in forward, while backward varies a little in all iterations."""
    even = stage(iterations=1000, forward=5.0, backward=5.0)
    jitter = replace(even.measurements[BACKWARD], p50_s=0.0045, p95_s=0.010, max_s=0.012)
    figures = replace(even, measurements={**even.measurements, BACKWARD: jitter})
    found = judge_stage(with_slow_iterations(figures, FORWARD, every, 0.02 * every))

    assert found is not None
    assert found.name == "uneven steps"
    assert found.evidence == (
        f"what slow iterations take beyond the median is 67 % of the time, {how_slow}; most of that "
        "is in forward, with 83 % of the time; the model's own work takes 100 %"
    )


def test_jitter_that_costs_little_is_not_uneven() -> None:
    """As on a machine that others use: one iteration in 20 takes 1.7 times the median."""
    even = stage(forward=0.5, backward=0.5)
    jitter = replace(even.measurements[ITERATION], p50_s=0.0095, p95_s=0.016, p99_s=0.025, max_s=0.03)

    assert name_of(replace(even, measurements={**even.measurements, ITERATION: jitter})) == "compute-bound"


def test_a_single_slow_iteration_is_not_uneven() -> None:
    figures = with_slow_iterations(stage(forward=0.5, backward=0.5), FORWARD, 100, 2.0)

    assert name_of(figures) == "compute-bound"
    assert name_of(with_slow_iterations(stage(forward=0.5, backward=0.5), FORWARD, 50, 1.0)) == "uneven steps"


@pytest.mark.parametrize(
    ("phase", "count", "mean_s", "p50_s", "max_s"),
    [
        pytest.param(CHECKPOINT, 1, 1.0, 1.0, 1.0, id="in one iteration only"),
        # Five quick backwards and a slow one in each iteration.
        pytest.param(BACKWARD, 600, 1.9 / 600, 0.001, 0.014, id="several times in each"),
    ],
)
def test_what_is_not_said_to_set_slow_iterations_apart(
    phase: str, count: int, mean_s: float, p50_s: float, max_s: float
) -> None:
    figures = with_slow_iterations(stage(forward=0.4, **{phase: count * mean_s}), FORWARD, 10, 0.08)
    other = replace(figures.measurements[phase], count=count, mean_s=mean_s, p50_s=p50_s, max_s=max_s)
    found = judge_stage(replace(figures, measurements={**figures.measurements, phase: other}))

    assert found is not None
    assert found.name == "uneven steps"
    assert "most of that is in forward" in found.evidence


def test_where_no_phase_is_known_to_set_slow_iterations_apart_none_is_named() -> None:
    """Each eighth iteration has eight backwards of 5 ms, so as many as there are iterations."""
    figures = with_slow_iterations(stage(forward=0.4, backward=0.5), FORWARD, 8, 0.04)
    even = stage(forward=0.4, backward=0.5).measurements
    phases = {FORWARD: replace(even[FORWARD], p50_s=0.0039), BACKWARD: even[BACKWARD]}
    found = judge_stage(replace(figures, measurements={**figures.measurements, **phases}))

    assert found is not None
    assert found.name == "uneven steps"
    assert "forward" not in found.evidence
    assert "backward" not in found.evidence
    assert "a now-and-then task in one of the phases" in found.advice


def test_a_heavy_phase_goes_before_unevenness() -> None:
    waiting = stage(data_wait=0.5, forward=0.5)
    iteration = replace(waiting.measurements[ITERATION], p50_s=0.002)

    assert name_of(replace(waiting, measurements={**waiting.measurements, ITERATION: iteration})) == "input-bound"


def overlapped(figures: StageSummary, **overlapped_s: float) -> StageSummary:
    """The same where the device had work for so many seconds of each phase."""
    overlaps = {**overlapped_s, ITERATION: sum(overlapped_s.values())}
    timed = {
        name: replace(found, device=replace(device(found.total_s or 0.0, found.count), overlapped_s=overlaps.get(name)))
        for name, found in figures.measurements.items()
    }
    return replace(figures, measurements=timed)


def test_a_hook_that_waits_for_the_device_is_not_heavy() -> None:
    """As a progress bar that shows the loss: it waits for what forward and backward have enqueued."""
    figures = stage(forward=0.06, backward=0.04, callbacks=1.84, other=0.06)
    waiting = overlapped(figures, forward=0.02, backward=0.04, callbacks=1.82)
    backward = replace(waiting.measurements[BACKWARD], device=replace(device(1.4, 100), overlapped_s=0.04))
    found = judge_stage(replace(waiting, measurements={**waiting.measurements, BACKWARD: backward}))

    assert name_of(figures) == "callback-heavy"
    assert found is not None
    assert found.name == "compute-bound"
    assert found.evidence == (
        "the device has work for at least 94 % of the iterations' time, so it sets the pace; "
        "70 % of the device's time is backward"
    )
    assert found.advice.startswith("look at the device's own work")


def test_time_that_the_devices_work_overlaps_is_the_models_own() -> None:
    """The host takes 20 ms of 100 to enqueue, and waits for the device in the hook that follows."""
    figures = stage(forward=0.12, backward=0.08, callbacks=0.7, other=0.1)
    found = judge_stage(overlapped(figures, callbacks=0.69))

    assert found is not None
    assert found.name == "compute-bound"
    assert found.evidence == (
        "the device has work for at least 69 % of the iterations' time, the model's own work takes 89 %; "
        "12 % of the device's time is forward"
    )


@pytest.mark.parametrize(("overlapped_s", "of_device"), [(0.45, False), (0.55, True)])
def test_who_is_busy_for_most_of_the_models_own_work_is_who_is_told_of(overlapped_s: float, of_device: bool) -> None:
    found = judge_stage(overlapped(stage(forward=0.4, backward=0.6), backward=overlapped_s))

    assert found is not None
    assert found.name == "compute-bound"
    assert found.evidence.startswith("the device has work for at least 55 %") is of_device
    assert found.advice.startswith("look at the device's own work") is of_device


def test_the_hook_that_keeps_the_device_waiting_is_named_and_not_the_one_that_waits_for_it() -> None:
    figures = stage(forward=0.3, callbacks=0.7)
    parts = {
        f"callbacks/{name}": measurement(
            total_s,
            whole_s=1.0,
            iterations=100,
            parent="callbacks",
            device=replace(device(total_s, 100), overlapped_s=overlapped_s),
        )
        for name, total_s, overlapped_s in (("ReadsLoss", 0.45, 0.44), ("Slow", 0.25, 0.0))
    }
    waiting = overlapped(figures, callbacks=0.44)
    found = judge_stage(replace(waiting, measurements={**waiting.measurements, **parts}))

    assert found is not None
    assert found.evidence.startswith(
        "hooks take 70 % of the iterations' time (at most 26 % while the device has nothing to do), "
        "above all those of Slow, the model's own work 74 %"
    )


def test_a_phase_that_is_larger_for_the_devices_work_alone_is_not_said_not_to_recur() -> None:
    figures = stage(forward=0.2, data_wait=0.18, callbacks=0.47, other=0.15)
    found = judge_stage(overlapped(figures, callbacks=0.42, forward=0.05, data_wait=0.02))

    assert found is not None
    assert found.evidence == (
        "no phase is long enough to blame: the model's own work takes 64 %, data_wait is the largest of what "
        "may hold the device up with 16 %"
    )


def test_a_host_that_waits_for_the_device_now_and_then_is_not_uneven() -> None:
    """A logger reads the loss at every tenth batch and then writes for a while: 8 ms beside 60 ms of the device."""
    figures = overlapped(stage(forward=0.1, callbacks=0.58, other=0.02), forward=0.1, callbacks=0.5, other=0.02)
    uneven = {name: replace(figures.measurements[name], p50_s=0.001, p95_s=0.055) for name in (ITERATION, CALLBACKS)}
    found = judge_stage(replace(figures, measurements={**figures.measurements, **uneven}))

    assert found is not None
    assert found.name == "compute-bound"


def test_where_the_device_is_timed_its_profiler_is_advised_and_idle_cores_are_no_wait() -> None:
    """A host that waits for its device, which some drivers do asleep, is no host that waits for a lock."""
    idle = CpuUsage("iteration", process_tree_percent=11.0, machine_percent=10.0, share_of_allowed=0.05)

    found = judge_stage(overlapped(stage(forward=0.8, backward=0.2), backward=0.1), idle)

    assert found is not None
    assert found.name == "compute-bound"
    assert found.advice.startswith(
        "look into forward: put spans into it, run under nsys with LIGHTNING_TIMING=profiling"
    )


def test_steps_that_are_uneven_on_the_device_are_uneven() -> None:
    figures = overlapped(stage(forward=0.4, backward=0.6), backward=0.1)
    uneven = {
        name: replace(found, device=replace(device(1.0, 100), p50_s=0.008))
        for name, found in figures.measurements.items()
        if name in (ITERATION, BACKWARD)
    }
    found = judge_stage(replace(figures, measurements={**figures.measurements, **uneven}))

    assert found is not None
    assert found.name == "uneven steps"
    assert found.evidence.startswith(
        "what slow iterations take beyond the median is 20 % of the time on the device; most of that is in backward, "
        "with 60 % of "
    )


def test_of_a_wait_only_what_leaves_the_device_idle_is_heavy() -> None:
    figures = stage(data_wait=0.4, forward=0.6)

    exposed = judge_stage(overlapped(figures, data_wait=0.15))
    hidden = judge_stage(overlapped(figures, data_wait=0.3))

    assert exposed is not None
    assert exposed.name == "input-bound"
    assert exposed.evidence == (
        "data_wait takes 40 % of the iterations' time (at most 25 % while the device has nothing to do), "
        "the model's own work 75 %"
    )
    assert hidden is not None
    assert hidden.name == "compute-bound"


def test_a_device_without_a_backlog_changes_nothing_however_long_its_times() -> None:
    waiting = stage(data_wait=0.4, forward=0.6)
    forward = replace(waiting.measurements[FORWARD], device=device(1.0, 100))
    starved = replace(waiting, measurements={**waiting.measurements, FORWARD: forward}, host_ahead_s=0.0004)

    assert name_of(starved) == "input-bound"


def test_of_several_ranks_work_may_be_a_wait() -> None:
    """The all-reduce is in `backward`: there a rank waits for the slowest one."""
    working, waiting = {"train": stage(forward=0.3, backward=0.7)}, {"train": stage(data_wait=0.5, forward=0.5)}

    of_one, of_two = judge(working), judge(working, world_size=2)
    assert of_one is not None
    assert of_two is not None
    assert of_two.advice.startswith(f"{of_one.advice}; where it waits for a slower rank instead")
    assert judge(waiting) == judge(waiting, world_size=2)


def test_what_else_is_heavy_is_named_beside_the_heaviest() -> None:
    found = judge_stage(stage(data_wait=0.35, logging=0.34, callbacks=0.16, forward=0.15))

    assert found is not None
    assert found.name == "input-bound"
    assert found.evidence == (
        "data_wait takes 35 % of the iterations' time, logging 34 %, callbacks 16 %, the model's own work 15 %"
    )


@pytest.mark.parametrize(
    ("workers", "begins_with"),
    [
        ({}, "keep the DataLoader's workers alive"),
        ({"train": 2}, "keep the"),
        ({"train": 0}, "have longer and so fewer"),
    ],
)
def test_where_there_are_no_workers_none_are_to_be_kept(workers: dict[str, int], begins_with: str) -> None:
    found = judge({"train": stage(forward=1.0, extra={FIRST_DATA_WAIT: between(1.0, 3)})}, None, workers)

    assert found is not None
    assert found.name == "epoch-start-heavy"
    assert found.advice.startswith(begins_with)


def name_of_run(
    stages: dict[str, StageSummary], cpu_usage: CpuUsage | None = None, ranks: dict[str, RankComparison] | None = None
) -> str | None:
    found = judge(stages, cpu_usage, ranks=ranks)
    return None if found is None else found.name


def test_a_heavy_phase_goes_before_a_rank_that_holds_the_others_up_which_is_named() -> None:
    across = PhaseAcrossRanks(0.01, 0.01, 0.01, 1)
    culprit = Culprit(1, 0.004, {DATA_WAIT: 0.004}, BACKWARD, 0.004)
    slower = {"train": RankComparison(2, (100, 100), {ITERATION: across}, culprit)}
    heavy, computing = stage(data_wait=0.5, forward=0.5), stage(forward=1.0)

    found = judge({"train": heavy}, world_size=2, ranks=slower)
    assert found is not None
    assert found.name == "input-bound"
    assert found.evidence.endswith("; rank 1 holds the others up")
    idle = CpuUsage("iteration", process_tree_percent=11.0, machine_percent=10.0, share_of_allowed=0.05)
    assert name_of_run({"train": computing}, idle) == "waiting"
    assert name_of_run({"train": computing}, idle, slower) == "rank-bound"
    uneven = with_slow_iterations(stage(forward=0.5, backward=0.5), FORWARD, 10, 0.05)
    assert name_of_run({"train": uneven}) == "uneven steps"
    for figures in (computing, uneven, stage(iterations=1000, forward=0.6, other=0.2, data_wait=0.2 - 1e-6)):
        found = judge({"train": figures}, world_size=2, ranks=slower)
        assert found is not None
        assert found.name == "rank-bound"
    assert judge({"train": heavy}, ranks={}) == judge({"train": heavy})


def test_busy_cores_change_the_advice() -> None:
    waiting = {"train": stage(data_wait=0.4, forward=0.6)}

    with_cores = judge(waiting, CpuUsage("iteration", 100.0, 50.0, 0.5))
    without_cores = judge(waiting, CpuUsage("iteration", 190.0, 95.0, 0.95))

    assert with_cores == judge(waiting) == judge(waiting, CpuUsage("iteration", None, None, None))
    assert with_cores is not None
    assert "num_workers" in with_cores.advice
    assert without_cores is not None
    assert without_cores.name == "input-bound"
    assert without_cores.evidence.endswith("with 95 % of the allowed cores in use")
    assert "num_workers" not in without_cores.advice


@pytest.mark.parametrize(
    ("workers", "advice"),
    [
        ({"train": 0}, "set the DataLoader's num_workers, which is 0, above that, or move work out of"),
        ({"train": 2}, "raise the DataLoader's num_workers, which is 2, or prefetch_factor, or move work out of"),
        ({"validate": 2}, "set the DataLoader's num_workers above 0; where it is, raise it or prefetch_factor, or"),
        (None, "set the DataLoader's num_workers above 0; where it is, raise it or prefetch_factor, or"),
    ],
)
def test_the_workers_that_there_are_change_the_advice(workers: dict[str, int] | None, advice: str) -> None:
    found = judge({"train": stage(data_wait=0.4, forward=0.6)}, None, workers)

    assert found is not None
    assert found.advice.startswith(advice)


def test_a_machine_that_others_keep_busy_leaves_the_advice_as_it_is() -> None:
    """Workers that wait for the disk, or that take turns with others, help all the same."""
    waiting = {"train": stage(data_wait=0.4, forward=0.6)}
    found = judge(waiting, CpuUsage("iteration", 10.0, 98.0, 0.05), {"train": 2})

    assert found is not None
    assert found.advice.startswith("raise the DataLoader's num_workers")


def test_cores_that_a_measurement_of_the_user_s_keeps_busy_or_idle_say_nothing_of_the_iterations() -> None:
    busy, idle = CpuUsage("matcher", 190.0, 95.0, 0.95), CpuUsage("matcher", 11.0, 10.0, 0.05)

    for figures in ({"train": stage(data_wait=0.4, forward=0.6)}, {"train": stage(forward=0.8, backward=0.2)}):
        assert judge(figures, busy) == judge(figures, idle) == judge(figures)


@pytest.mark.parametrize(
    "figures",
    [
        stage(iterations=MIN_ITERATIONS - 1, forward=1.0),
        stage(forward=0.0),
        StageSummary(iterations=100, warmup_iterations=0, measurements={}),
        StageSummary(iterations=100, warmup_iterations=0, measurements={ITERATION: not_measured(None)}),
    ],
)
def test_too_little_to_judge_by(figures: StageSummary) -> None:
    assert judge_stage(figures) is None
    assert judge({"train": figures}) is None


def between(total_s: float, count: int) -> MeasurementSummary:
    return measurement(total_s, whole_s=None, iterations=count, parent=None)


def test_waiting_for_the_first_batches_of_epochs_goes_before_what_the_iterations_do() -> None:
    """Three epochs of ten iterations, whose workers take three seconds to start."""
    waiting = stage(iterations=30, forward=1.8, extra={FIRST_DATA_WAIT: between(9.2, 3)})
    found = judge({"train": waiting})

    assert found is not None
    assert found.name == "epoch-start-heavy"
    assert found.evidence == "waiting for an epoch's first batch takes 84 % of the measured time"
    assert "persistent_workers=True" in found.advice
    assert judge_stage(waiting) != found


def test_the_first_waits_of_all_stages_count_together() -> None:
    train = stage(forward=8.0, extra={FIRST_DATA_WAIT: between(1.0, 2)})
    validate = stage(forward=0.6, extra={FIRST_DATA_WAIT: between(1.4, 2)})
    found = judge({"train": train, "validate": validate})

    assert found is not None
    assert found.evidence == "waiting for an epoch's first batch takes 22 % of the measured time"


def test_what_occurs_once_is_no_habit() -> None:
    found = judge({"train": stage(forward=1.8, extra={FIRST_DATA_WAIT: between(9.2, 1)})})

    assert found is not None
    assert found.name == name_of(stage(forward=1.8))
    assert found.evidence.endswith("; that is of train, whose iterations take 16 % of the measured time")


def test_a_heavy_phase_inside_that_takes_longer_goes_before_what_lies_between() -> None:
    inside = stage(data_wait=6.0, forward=1.0, extra={FIRST_DATA_WAIT: between(3.0, 3)})

    assert judge({"train": inside}) == judge_stage(inside)
    assert judge({"train": inside, "validate": stage(forward=0.5)}) == judge_stage(inside)


def test_the_warm_up_belongs_to_the_measured_time() -> None:
    """Four epochs of five batches of 20 ms, whose first waits take as long, and half of which are warm-up."""
    waiting = stage(iterations=10, forward=0.2, extra={FIRST_DATA_WAIT: between(0.08, 4)})

    with_warmup = judge({"train": replace(waiting, warmup_s=0.2)})
    without = judge({"train": replace(waiting, warmup_iterations=0, warmup_s=0.0)})

    assert with_warmup is not None
    assert with_warmup.name == "compute-bound"
    assert without is not None
    assert without.name == "epoch-start-heavy"
    assert "29 %" in without.evidence


def test_a_phase_has_its_time_in_the_warm_up_too() -> None:
    """Data that takes 60 ms in the ten iterations that count, and as much in the others, exceeds waits of 110 ms."""
    waiting = stage(iterations=10, data_wait=0.06, forward=0.14, extra={FIRST_DATA_WAIT: between(0.11, 4)})
    warmed_up = replace(waiting, warmup_s=0.2)
    found = judge({"train": warmed_up})

    assert found is not None
    assert found.name == "input-bound"


def test_checkpoints_between_the_iterations() -> None:
    saving = stage(forward=6.0, extra={f"{BETWEEN_ITERATIONS}/{CHECKPOINT}": between(4.0, 4)})
    found = judge({"train": saving})

    assert found is not None
    assert found.name == "checkpoint-heavy"
    assert found.evidence == "checkpoint between the iterations takes 40 % of the measured time"
    assert found.advice == FOR_HEAVY[CHECKPOINT]


def test_callbacks_between_the_iterations_are_named() -> None:
    group = f"{BETWEEN_ITERATIONS}/{CALLBACKS}"
    costs = {group: between(4.0, 4), f"{group}/Quick": between(0.5, 2), f"{group}/Slow": between(3.5, 2)}
    found = judge({"train": stage(forward=6.0, extra=costs)})

    assert found is not None
    assert found.evidence == "hooks between the iterations, above all those of Slow, take 40 % of the measured time"


def test_a_hook_that_ran_once_is_no_habit_beside_cheap_ones_that_recur() -> None:
    """Neither where those are another callback's nor where they are its own."""
    group = f"{BETWEEN_ITERATIONS}/{CALLBACKS}"
    of_another = {group: between(1.02, 41), f"{group}/Once": between(1.0, 1), f"{group}/Saver": between(0.02, 40)}
    its_own = {group: between(1.02, 41), f"{group}/Once": replace(between(1.02, 41), max_s=1.0)}

    for costs in (of_another, its_own):
        found = judge({"train": stage(forward=1.1, extra=costs)})
        assert found is not None
        assert found.name == "compute-bound"


def test_hooks_that_recur_are_judged_without_those_that_ran_once() -> None:
    group = f"{BETWEEN_ITERATIONS}/{CALLBACKS}"
    costs = {group: between(6.0, 5), f"{group}/Once": between(3.5, 1), f"{group}/Each": between(2.5, 4)}
    found = judge({"train": stage(forward=4.0, extra=costs)})

    assert found is not None
    assert found.evidence == (
        "hooks between the iterations, above all those of Each, take 25 % of the measured time, what occurs only once "
        "left out"
    )


def test_workers_that_are_kept_alive_start_once() -> None:
    kept_alive = replace(between(5.02, 3), max_s=5.0)
    restarted = replace(between(5.0, 3), max_s=1.9)

    found = judge({"train": stage(forward=6.0, extra={FIRST_DATA_WAIT: kept_alive})})
    assert found is not None
    assert found.name == "compute-bound"
    found = judge({"train": stage(forward=6.0, extra={FIRST_DATA_WAIT: restarted})})
    assert found is not None
    assert found.evidence == "waiting for an epoch's first batch takes 45 % of the measured time"


def test_without_workers_the_first_remedy_is_to_have_some() -> None:
    """PyTorch refuses prefetch_factor and persistent_workers where num_workers is 0."""
    assert FOR_HEAVY[DATA_WAIT].startswith("set the DataLoader's num_workers above 0")


def test_why_there_is_no_verdict() -> None:
    few = stage(iterations=5, forward=1.0)

    assert why_no_verdict({"train": few}) == "too few iterations for a verdict: 5 after warm-up, it takes 10"
    assert why_no_verdict({"train": few, "validate": stage(iterations=2, forward=1.0)}) == why_no_verdict(
        {"train": few}
    )
    assert why_no_verdict({"train": few, "validate": stage(iterations=10, forward=1.0)}) is None
    assert why_no_verdict({"train": StageSummary(3, 0, {})}) is None  # a plain loop, which has no phases
    assert why_no_verdict({}) is None


def test_a_sanity_check_is_not_judged() -> None:
    assert judge({"sanity_check": stage(forward=1.0)}) is None


def test_phases_that_were_not_measured_do_no_harm() -> None:
    assert name_of(stage(forward=1.0, extra={DATA_WAIT: not_measured()})) == "compute-bound"


def test_only_an_iteration_is_measured() -> None:
    whole = measurement(1.0, whole_s=1.0, iterations=100, parent=None, p50_s=0.005)

    assert name_of(StageSummary(100, 0, {ITERATION: whole})) == "uneven steps"


def test_training_goes_before_evaluation_where_it_has_enough() -> None:
    waiting, computing = stage(data_wait=0.9, forward=0.1), stage(forward=0.8)
    short = stage(iterations=3, forward=1.0)

    assert judge({"validate": computing, "train": waiting}) == judge_stage(waiting)
    of_validation = judge({"validate": computing, "train": short})
    assert of_validation is not None
    assert of_validation.name == name_of(computing)
    assert of_validation.evidence.endswith("; that is of validate, whose iterations take 44 % of the measured time")
    assert judge({}) is None


def test_validation_that_takes_half_of_a_run_that_trains_is_named() -> None:
    """Its iterations, those of its warm-up and the waits for its first batches count together."""
    train = replace(stage(data_wait=1.2, forward=3.8), warmup_iterations=0, warmup_s=0.0)
    waits = {FIRST_DATA_WAIT: between(1.0, 4)}
    validate = replace(stage(forward=3.0, extra=waits), warmup_iterations=1, warmup_s=1.0)
    found = judge({"train": train, "validate": validate})
    with_less = judge({"train": train, "validate": replace(validate, warmup_s=0.9)})

    assert found is not None
    assert found.name == "validation-heavy"
    assert found.evidence == "validation takes 50 % of the measured time, the iterations of train 50 %"
    for option in ("check_val_every_n_epoch", "val_check_interval", "limit_val_batches", "--stage validate"):
        assert option in found.advice
    assert with_less == judge_stage(train)


def test_without_training_validation_is_all_there_is_to_judge() -> None:
    validate, test = stage(data_wait=3.0, forward=6.0), stage(forward=0.1)

    assert judge({"validate": validate, "test": test}) == judge_stage(validate)


def test_validation_of_a_training_too_short_to_judge() -> None:
    found = judge({"train": stage(iterations=3, forward=0.1), "validate": stage(forward=6.0)})

    assert found is not None
    assert found.name == "validation-heavy"


def test_what_lies_between_the_iterations_and_takes_longer_than_those_of_validation_goes_first() -> None:
    train = stage(forward=3.0)
    validate = stage(forward=3.0, extra={FIRST_DATA_WAIT: between(3.1, 4)})
    waiting = judge({"train": train, "validate": validate})
    working = judge({"train": train, "validate": stage(forward=3.2, extra={FIRST_DATA_WAIT: between(3.1, 4)})})

    assert waiting is not None
    assert waiting.name == "epoch-start-heavy"
    assert working is not None
    assert working.name == "validation-heavy"


def test_a_verdict_of_a_stage_that_takes_less_than_half_says_so() -> None:
    train = replace(stage(data_wait=1.2, forward=2.8), warmup_s=0.5)
    once = {f"{BETWEEN_ITERATIONS}/{CHECKPOINT}": between(1.5, 1)}
    found = judge({"train": train, "validate": stage(forward=4.0, extra=once)})
    of_train = judge_stage(train)

    assert found is not None
    assert of_train is not None
    share = "that is of train, whose iterations take 45 % of the measured time"
    assert found == replace(of_train, evidence=f"{of_train.evidence}; {share}")
    assert judge({"train": train, "validate": stage(forward=4.0)}) == of_train


def test_the_documentation_states_every_verdict() -> None:
    text = verdict_rules.__doc__ or ""
    for name in (
        *(heavy.name for heavy in HEAVY_SHARES.values()),
        "epoch-start-heavy",
        "validation-heavy",
        "compute-bound",
        "waiting",
        "uneven steps",
        "rank-bound",
        "mixed",
    ):
        assert re.search(f"`{name}`", text)


README = Path(verdict_rules.__file__).parents[2] / "README.md"


@pytest.mark.skipif(not README.exists(), reason="the documentation is in the repository only")
def test_the_readme_has_every_verdict_with_its_threshold() -> None:
    lines = README.read_text(encoding="utf-8").splitlines()
    for phase, heavy in HEAVY_SHARES.items():
        assert any(line.startswith(f"| `{heavy.name}` | `{phase}` takes {100 * heavy.threshold:g} %") for line in lines)
    shares = {
        verdict_rules.VALIDATION_HEAVY: f"{100 * verdict_rules.VALIDATION_SHARE:g} %",
        verdict_rules.EPOCH_START_HEAVY: f"{100 * verdict_rules.HEAVY_OUTSIDE[FIRST_DATA_WAIT].threshold:g} %",
        verdict_rules.WAITING: f"{100 * verdict_rules.COMPUTE_SHARE:g} %, with less than half a core",
        verdict_rules.COMPUTE_BOUND: f"{100 * verdict_rules.COMPUTE_SHARE:g} %",
        verdict_rules.UNEVEN_STEPS: f"beyond the median is {100 * verdict_rules.UNEVEN_SHARE:g} %",
    }
    for name, share in shares.items():
        assert any(line.startswith(f"| `{name}` |") and share in line for line in lines)
    assert any(f"the device has work for {100 * verdict_rules.DEVICE_BUSY:g} %" in line for line in lines)
