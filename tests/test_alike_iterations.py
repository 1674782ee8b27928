"""Iterations that are taken together come to what they come to one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lightning_timing.alike_iterations import AlikeIterations, PhaseEdges
from lightning_timing.closed_iterations import measure
from lightning_timing.figures_from_recorder import summarize_stage
from lightning_timing.measured_iterations import NOTHING, IterationLabel, MeasuredByUser, MeasuredIteration
from lightning_timing.measurement import Measurement
from lightning_timing.stage_totals import StageTotals

# Where the phases of an iteration lie between its eleven edges, each but the paused one with its own time.
PLACES = (
    ("optimizer_step", 0, 1, None),  # paused
    ("forward", 2, 3, ((2, 3),)),
    ("callbacks/A", 4, 5, ((4, 5),)),
    ("backward", 3, 6, ((3, 4), (5, 6))),
    ("forward", 6, 7, ((6, 7),)),
    ("optimizer_step", 8, 9, ((0, 1), (8, 9))),
    ("logging", 9, 9, ()),
)
EDGES = 11

moments = st.lists(st.integers(0, 10**9), min_size=EDGES, max_size=EDGES).map(sorted)
sizes = st.one_of(st.none(), st.integers(0, 100))


spans = st.lists(st.tuples(st.sampled_from(["mine", "yours"]), st.integers(0, 100)), max_size=3)


def measured_by_user(
    stage: StageTotals, iterations: list[list[int]], spent: list[list[tuple[str, int]]]
) -> list[MeasuredByUser]:
    """What the user measured in each, at its beginning, where that was anything in any."""
    measurements = stage.user_measurements
    measurements.update({name: Measurement(name, "iteration") for name in ("mine", "yours")})
    by_user = []
    for at, intervals in zip(iterations, spent, strict=True):
        taken = [(name, [ns for other, ns in intervals if other == name]) for name in measurements]
        placed = [(name, at[0], at[0] + ns) for name, ns in intervals]
        by_user.append(MeasuredByUser([(measurements[name], ns) for name, ns in taken if ns], placed))
    return by_user if any(spent) else []


def taken_together(
    iterations: list[list[int]], labels: list[IterationLabel], kept: int, spent: list[list[tuple[str, int]]]
) -> tuple[StageTotals, object]:
    stage = StageTotals("train", 0)
    phases = tuple(PhaseEdges(stage.phases[phase], begin, end, own) for phase, begin, end, own in PLACES)
    by_user = measured_by_user(stage, iterations, spent)
    return stage, list(AlikeIterations(stage, phases, iterations, labels, kept, by_user).take())


def taken_one_by_one(
    iterations: list[list[int]], labels: list[IterationLabel], kept: int, spent: list[list[tuple[str, int]]]
) -> tuple[StageTotals, list[MeasuredIteration]]:
    stage = StageTotals("train", 0)
    by_user = measured_by_user(stage, iterations, spent) or [NOTHING] * len(iterations)
    handed_on = []
    for n, (at, label) in enumerate(zip(iterations, labels, strict=True)):
        samples = [
            (stage.phases[phase], None if own is None else sum(at[to] - at[since] for since, to in own), at[b], at[e])
            for phase, b, e, own in PLACES
        ]
        total_ns = at[-1] - at[0]
        other_ns = total_ns - sum(ns for _, ns, _, _ in samples if ns is not None)
        handed_on.append(measure((stage, label, at[0], total_ns, other_ns, samples, by_user[n], n < kept)))
    return stage, handed_on


@given(st.lists(st.tuples(moments, sizes, st.booleans(), spans), min_size=1, max_size=5), st.integers(-3, 7))
def test_together_they_come_to_the_same(
    given_: list[tuple[list[int], int | None, bool, list[tuple[str, int]]]], kept: int
) -> None:
    iterations = [at for at, *_ in given_]
    labels = [IterationLabel(batch_idx=n, samples=s, skipped=k) for n, (_, s, k, _) in enumerate(given_)]
    spent = [intervals for *_, intervals in given_]

    together, rows = taken_together(iterations, labels, kept, spent)
    one_by_one, expected = taken_one_by_one(iterations, labels, kept, spent)

    assert rows == expected
    assert summarize_stage(together) == summarize_stage(one_by_one)


def test_what_no_phase_claimed_is_the_rest() -> None:
    stage = StageTotals("train", 0)
    phases = (PhaseEdges(stage.phases["forward"], 1, 2, ((1, 2),)),)
    (row,) = AlikeIterations(stage, phases, [[100, 110, 140, 200]], [IterationLabel(batch_idx=7)], 1).take()

    assert row == MeasuredIteration(
        "train", IterationLabel(batch_idx=7), 100, {"iteration": 100, "other": 70, "forward": 30}, [("forward", 10, 40)]
    )


def test_an_iteration_without_phases_is_other_as_a_whole() -> None:
    (row,) = AlikeIterations(StageTotals("train", 0), (), [[5, 25]], [IterationLabel()], 0).take()

    assert (row.ns, row.intervals) == ({"iteration": 20, "other": 20}, None)
