"""The figures of one stage by themselves: what is taken, in which order it comes, and what is forgotten."""

from __future__ import annotations

from collections import Counter

import pytest

from lightning_timing.closed_iterations import MAX_WAITING
from lightning_timing.device_timer import DeviceTimes
from lightning_timing.distribution import EXACT_INTERVALS
from lightning_timing.figures_from_recorder import summarize_stage
from lightning_timing.ledger import PhaseTime
from lightning_timing.measured_iterations import IterationLabel
from lightning_timing.measurement import Measurement, take_times
from lightning_timing.stage_totals import StageTotals


def sample(stage: StageTotals, phase: str, ns: int | None) -> PhaseTime:
    return stage.phases[phase], ns, 0, 0


def users(stage: StageTotals, name: str, *samples_ns: int) -> Measurement:
    """A measurement of the user's that took that long in the iteration that is open."""
    measurement = stage.user_measurements.setdefault(name, Measurement(name))
    measurement.current.extend(samples_ns)
    return measurement


def take_device_times(
    stage: StageTotals,
    samples_ns: dict[str, list[int]],
    untimed: dict[str, int],
    ahead_ns: int | None,
    overlapped_ns: dict[str, int] | None = None,
) -> None:
    times = DeviceTimes(None, samples_ns, Counter(untimed), ahead_ns, overlapped_ns or {})
    stage.take_device_times(times, of_iteration=True)


def test_a_stage_of_which_nothing_is_known_was_not_used() -> None:
    stage = StageTotals("train", 0)
    stage.phases["forward"]

    assert not stage.was_used
    summary = summarize_stage(stage)
    assert (summary.iterations, summary.warmup_iterations, summary.skipped_batches) == (0, 0, 0)
    assert (summary.samples, summary.host_ahead_s, summary.warmup_s) == (None, None, 0.0)


def test_each_kind_of_event_makes_it_used() -> None:
    stages = [StageTotals("train", 1) for _ in range(4)]
    stages[0].leave_out((), 5)
    stages[1].iterations += 1
    users(stages[2], "a")
    stages[3].between["checkpoint"]

    assert [stage.was_used for stage in stages] == [True] * 4


def test_an_iteration_is_taken_with_the_sum_of_each_measurement() -> None:
    stage = StageTotals("train", 0)
    samples = [
        sample(stage, "forward", 5),
        sample(stage, "optimizer_step", None),  # paused
        sample(stage, "optimizer_step", 7),
        sample(stage, "forward", 6),
        sample(stage, "callbacks/B", 1),
        sample(stage, "callbacks/A", 2),
        sample(stage, "callbacks/B", 3),
    ]
    users(stage, "mine", 2, 2)
    users(stage, "idle")
    taken = take_times(stage.user_measurements_at())

    assert stage.take(IterationLabel(samples=4), 30, 6, samples, taken) == {
        "iteration": 30,
        "other": 6,
        "forward": 11,
        "optimizer_step": 7,
        "callbacks": 6,
        "callbacks/A": 2,
        "callbacks/B": 4,
        "mine": 4,
    }
    assert take_times(stage.user_measurements_at()) == []
    summary = summarize_stage(stage)
    assert {name: (each.count, each.parent) for name, each in summary.measurements.items()} == {
        "iteration": (1, None),
        "forward": (2, "iteration"),
        "optimizer_step": (1, "iteration"),
        "callbacks": (3, "iteration"),
        "callbacks/A": (1, "callbacks"),
        "callbacks/B": (2, "callbacks"),
        "other": (1, "iteration"),
        "mine": (2, None),
        "idle": (0, None),
    }
    assert list(summary.measurements)[-5:] == ["callbacks/A", "callbacks/B", "other", "mine", "idle"]
    assert (summary.measurements["callbacks"].total_s, summary.measurements["forward"].share) == (6e-9, 11 / 30)
    assert (summary.iterations, summary.samples, summary.skipped_batches) == (1, 4, 0)


def test_what_lies_between_iterations_comes_last_and_has_no_share() -> None:
    stage = StageTotals("train", 0)
    stage.take(IterationLabel(), 10, 10, [], [])
    stage.between["callbacks/A"].distribution.add(4)
    users(stage, "mine", 3)
    stage.take_user_times_outside()

    measurements = summarize_stage(stage).measurements
    assert list(measurements) == [
        "iteration",
        "other",
        "mine",
        "between_iterations/callbacks",
        "between_iterations/callbacks/A",
    ]
    assert measurements["between_iterations/callbacks"].parent is None
    part = measurements["between_iterations/callbacks/A"]
    assert (part.parent, part.count, part.share) == ("between_iterations/callbacks", 1, None)
    assert (measurements["mine"].count, measurements["mine"].share) == (1, None)


def test_samples_are_known_only_if_those_of_every_batch_are() -> None:
    found = []
    stage = StageTotals("train", 0)
    for samples in (3, 4, None, 5):
        stage.take(IterationLabel(samples=samples, skipped=samples == 4), 10, None, [], [])
        found.append(summarize_stage(stage).samples)

    assert found == [3, 7, None, None]
    assert (stage.iterations_taken, stage.iterations_ns, stage.skipped_batches) == (4, 40, 1)
    assert summarize_stage(stage).measurements == {}


def test_what_warm_up_measured_is_forgotten() -> None:
    stage = StageTotals("train", 2)
    forward = stage.phases["forward"]
    counted = []
    for _ in range(4):
        mine = users(stage, "mine", 5)
        forward.carried = 3
        counted.append(not stage.leave_out(stage.user_measurements_at(), 7))
        left = mine.current, forward.carried
        assert left == (([5], 3) if counted[-1] else ([], 0))
        stage.drop_current(stage.user_measurements_at())

    assert counted == [False, False, True, True]
    assert (stage.warmup_left, stage.warmup_iterations, stage.warmup_ns) == (0, 2, 14)
    assert summarize_stage(stage).warmup_s == 14e-9


def test_what_the_user_measures_between_iterations_counts_once_warm_up_is_over() -> None:
    stage = StageTotals("train", 1)
    mine = users(stage, "mine", 5, 6)
    users(stage, "idle")
    assert stage.take_user_times_outside() == []
    assert mine.current == []
    stage.leave_out(stage.user_measurements_at(), 20)
    users(stage, "mine", 7, 8)

    assert stage.take_user_times_outside() == [(mine, [7, 8])]
    assert (mine.current, mine.inside_count, mine.distribution.count, mine.distribution.total_ns) == ([], 0, 2, 15)


def test_device_times_are_those_of_the_measurement_of_their_name() -> None:
    stage = StageTotals("train", 0)
    stage.phases["forward"].distribution.pending.append(20)
    users(stage, "mine")
    take_device_times(
        stage, {"forward": [4, 6], "unknown": [1]}, {"mine": 2, "forward": 1}, 3_000_000_000, {"forward": 7}
    )
    take_device_times(stage, {"forward": [2]}, {"forward": 1}, None)
    take_device_times(stage, {"forward": [2]}, {}, 4_000_000_000, {"forward": 1})
    take_device_times(stage, {}, {}, 9_000_000_000)

    summary = summarize_stage(stage)
    forward, mine = summary.measurements["forward"].device, summary.measurements["mine"].device
    assert forward is not None
    assert (forward.count, forward.total_s, forward.untimed, forward.overlapped_s) == (4, 14e-9, 2, 8e-9)
    assert mine is not None
    assert (mine.count, mine.total_s, mine.untimed, mine.overlapped_s) == (0, None, 2, None)
    assert list(summary.measurements) == ["forward", "mine"]
    assert summary.host_ahead_s == 4.0  # the median


def test_nothing_piles_up_however_many_measurements_there_are() -> None:
    stage = StageTotals("train", 0)
    for index in range(20):
        stage.phases[f"callbacks/{index}"]
        users(stage, f"mine {index}")
    slack = 40
    for _ in range(3 * EXACT_INTERVALS):
        samples = [sample(stage, f"callbacks/{index}", 1) for index in range(20)]
        for index in range(20):
            users(stage, f"mine {index}", 1)
        stage.take(IterationLabel(), 40, 20, samples, take_times(stage.user_measurements_at()))
        stage.fold()
        take_device_times(stage, {"iteration": [1]}, {}, 1)
        users(stage, "outside", 1)
        stage.take_user_times_outside()
    *few, callbacks = sorted(len(m.distribution.pending) for m in stage.all_measurements())

    assert few[-1] <= EXACT_INTERVALS + slack
    assert callbacks <= EXACT_INTERVALS + 20 * slack  # all parts are counted in it
    assert len(stage.host_ahead.pending) <= EXACT_INTERVALS
    device = stage.phases["iteration"].device
    assert device is not None
    assert (device.count, len(device.pending) <= EXACT_INTERVALS) == (3 * EXACT_INTERVALS, True)


def test_folding_is_spread_over_iterations() -> None:
    """All measurements get full at the same one, which must not pay for all of them."""
    stage = StageTotals("train", 0)
    phases = [stage.phases[f"optimizer_step/{index}"] for index in range(7)]
    for _ in range(EXACT_INTERVALS + 1):
        stage.take(IterationLabel(), 7, None, [(phase, 1, 0, 0) for phase in phases], [])
    stage.fold()

    assert sum(not measurement.distribution.pending for measurement in stage.phases.values()) == 2


@pytest.mark.parametrize("samples_of_first", [1, 20])
def test_nothing_piles_up_where_many_iterations_are_taken_together(samples_of_first: int) -> None:
    stage = StageTotals("train", 0)
    phases = [stage.phases[f"callbacks/{index}"] for index in range(12)]
    once = [1] * MAX_WAITING
    samples = [(phase, once) for phase in [*phases, *phases[:1] * (samples_of_first - 1)]]
    longest = 0
    for _ in range(60):
        stage.take_alike([IterationLabel()] * MAX_WAITING, once, once, samples)
        stage.fold()
        longest = max(longest, *(len(phase.distribution.pending) for phase in phases))

    assert longest <= 2 * EXACT_INTERVALS
