"""Measures what the hot path of a run costs, by passing the boundaries of a Trainer's loops without a Trainer."""

from __future__ import annotations

from functools import partial
from typing import Final

from lightning_timing.callbacks.actions import ActionMeanings
from lightning_timing.callbacks.followers import Followers
from lightning_timing.callbacks.phase_machine import PhaseMachine
from lightning_timing.callbacks.profiler_tap import ProfilerTap
from lightning_timing.callbacks.routine import Routines
from lightning_timing.callbacks.trail import Trail
from lightning_timing.clocks import Clock, monotonic_ns
from lightning_timing.failsafe import Failsafe
from lightning_timing.interrupts import InterruptGuard
from lightning_timing.late_recorder import LateRecorder
from lightning_timing.measured_iterations import IterationLabel
from lightning_timing.no_op import nothing
from lightning_timing.overhead import UnitCosts, cold_ns, hot_ns
from lightning_timing.phases import TRAIN

_FETCH: Final = "[_TrainingEpochLoop].train_dataloader_next"
_STEP: Final = "[Strategy]SingleDeviceStrategy.training_step"
_MINE: Final = "mine"


class PassThroughProfiler:
    """Stands in for Lightning's of this name, which does nothing."""


def try_out(recorder: LateRecorder, *, is_late: bool, clock: Clock = monotonic_ns) -> UnitCosts:
    """Measures the cost of a phase, of a user's measurement, and of what comes once an iteration.

    Args:
        recorder: The run's recorder. It is not touched.
        is_late: Whether it followed late.
        clock: Monotonic, in nanoseconds.

    Raises:
        Exception: One of these failed.
    """
    trial, guard = recorder.trial(), InterruptGuard()
    machine, trail, tap = _watch_for(trial, guard, is_late=is_late)
    transferred, completed = partial(machine.transferred, True), partial(machine.batch_completed, True)

    def turn() -> None:
        tap.start(_FETCH)
        tap.stop(_FETCH)

    def label() -> None:
        trail.note(transferred)
        trail.note(machine.batch_started, IterationLabel())

    def phase() -> None:
        with tap.profile(_STEP):
            pass

    def measurement() -> None:
        trial.user.start(_MINE)
        trial.user.end(_MINE)

    try:
        trail.note(machine.epoch_began)
        for _ in range(2):  # the first iteration, after which there is nothing special about one
            turn()
            label()
            phase()
            trail.note(completed)
        measurement()
        # What an iteration costs at its end is in the recorder's books, unless it is put off.
        return UnitCosts(
            phase_ns=cold_ns(phase, clock),
            user_ns=cold_ns(measurement, clock),
            user_again_ns=hot_ns(measurement, clock),
            iteration_ns=cold_ns(label, clock) + (cold_ns(turn, clock) if is_late else 0),
        )
    finally:
        trail.set_late_follower(None)
        guard.close()


def _watch_for(trial: LateRecorder, guard: InterruptGuard, *, is_late: bool) -> tuple[PhaseMachine, Trail, ProfilerTap]:
    """Makes what a `Session` makes for a recorder that follows alone."""
    failsafe, followers = Failsafe("the calibration", strict=True), Followers()
    machine, trail = PhaseMachine(TRAIN, followers), Trail(failsafe, guard)
    followers.add(trial, failsafe.fail)
    if is_late:
        trail.set_late_follower(Routines(machine, followers, trial))
    meanings = ActionMeanings(None, machine, nothing, nothing)
    return machine, trail, ProfilerTap(PassThroughProfiler(), machine, meanings, trail, failsafe)
