"""What encloses a span: the same while it is measured and from the rows of a run that was killed, however they nest."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st
from known_cost import FakeClock

from lightning_timing.figures_from_rows import stage_figures
from lightning_timing.measured_iterations import IterationLabel, MeasuredIteration
from lightning_timing.phase_recorder import PhaseRecorder
from lightning_timing.record import IterationRow
from lightning_timing.record_series import SeriesBuilder
from lightning_timing.recorder_settings import RecorderSettings

PHASES = ("forward", "backward", "logging")
SPANS = ("a", "b", "c")

Steps = list[str]
"""Of one iteration: a phase's name enters it, a span's starts it or ends it, and `leave` leaves the phase on top."""


def go_through(recorder: PhaseRecorder, clock: FakeClock, steps: Steps) -> None:
    open_phases, open_spans = 0, set[str]()
    recorder.begin_iteration()
    for step in steps:
        clock.advance(1)
        if step == "leave":
            if open_phases:
                recorder.leave()
                open_phases -= 1
        elif step in PHASES:
            recorder.enter(step)
            open_phases += 1
        elif step in open_spans:
            recorder.user.end(step)
            open_spans.remove(step)
        else:
            recorder.user.start(step)
            open_spans.add(step)
    for name in sorted(open_spans):
        clock.advance(1)
        recorder.user.end(name)
    for _ in range(open_phases):
        clock.advance(1)
        recorder.leave()
    clock.advance(1)
    recorder.close_iteration()
    recorder.count_iteration(IterationLabel())


def as_row(number: int, iteration: MeasuredIteration) -> IterationRow:
    return IterationRow(
        segment="run",
        stage=iteration.stage,
        epoch=0,
        batch_idx=number,
        global_step=number,
        start_ns=iteration.begin_ns,
        ns=iteration.ns,
        intervals=iteration.intervals,
    )


@given(st.lists(st.lists(st.sampled_from((*PHASES, *SPANS, "leave"))), min_size=1, max_size=3))
@example([["forward", "a", "backward", "logging", "leave", "a", "leave", "leave"]])  # ends in a phase that it is not in
@example([["backward", "a", "a", "leave", "a", "forward", "leave", "a"]])  # its second interval reaches across one
@example([["forward", "backward", "a", "leave", "a", "leave"]])  # begins in one that ends before it
def test_what_encloses_a_span_is_the_same_live_and_from_rows(iterations: list[Steps]) -> None:
    clock = FakeClock()
    recorder = PhaseRecorder(RecorderSettings(num_warmup_iters=0), clock, keep_intervals=True)
    handed_on: list[MeasuredIteration] = []
    recorder.hand_on_to(handed_on.append)
    for steps in iterations:
        go_through(recorder, clock, steps)

    (live,) = recorder.figures().stages.values()
    builder = SeriesBuilder()
    for number, iteration in enumerate(handed_on):
        builder.append(as_row(number, iteration))
    from_rows = stage_figures(builder.build(), warmup_iterations=0)
    assert {name: found.parent for name, found in from_rows.measurements.items()} == {
        name: found.parent for name, found in live.measurements.items() if found.count
    }
