"""Detects when a Trainer's loops ask their loaders for an iterator, which starts workers: no hook or action says so.

Read from Lightning 2.5 to 2.6: the training loop does so in `setup_data`, after the strategy has processed its loaders
one by one, and again inside each later epoch; the other loops do in `reset`, which does little else. Where a loader has
no length, they fetch its first batch there as well.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from lightning_timing.callbacks.method_watch import MethodWatch
from lightning_timing.callbacks.phase_machine import PhaseMachine
from lightning_timing.callbacks.trail import Trail
from lightning_timing.failsafe import Failsafe
from lightning_timing.no_op import nothing
from lightning_timing.phases import PREDICT, SANITY_CHECK, TEST, TRAIN, VALIDATE


class _TrainLoaderStart:
    """Reports the part of the training loop's `setup_data` that follows the last loader, if it makes any."""

    def __init__(self, machine: PhaseMachine, trail: Trail) -> None:
        self._pause = trail.at_once(machine.batches_paused)
        self._begin = trail.at_once(partial(machine.loader_starting, TRAIN))
        self._end = trail.at_once(machine.loader_started)
        self._is_in_setup = self._is_begun = False

    def setup_began(self) -> None:
        self._is_in_setup, self._is_begun = True, False

    def loader_processed(self) -> None:
        if self._is_in_setup:
            self._is_begun = True
            self._pause()
            self._begin()

    def setup_ended(self) -> None:
        self._is_in_setup = False
        if self._is_begun:
            self._end()


def watch_loader_starts(
    trainer: Any, machine: PhaseMachine, trail: Trail, failsafe: Failsafe
) -> tuple[MethodWatch, ...]:
    """Reports the starts of loaders to a machine until the watches that it returns are closed.

    Args:
        trainer: The Trainer.
        machine: Notified of the starts.
        trail: Keeps the edges that come before.
        failsafe: Takes failures of these.
    """
    pause = trail.at_once(machine.batches_paused)

    def starts(stage: str) -> Callable[[], None]:
        def tell() -> None:
            machine.loader_starting(SANITY_CHECK if trainer.sanity_checking else stage)

        start = trail.at_once(tell)

        def pause_and_start() -> None:
            pause()  # a moment of its own, since a report that is printed now is no wait for a batch
            start()

        return pause_and_start

    training = _TrainLoaderStart(machine, trail)
    validation_in_fit = getattr(getattr(trainer.fit_loop, "epoch_loop", None), "val_loop", None)
    loops = (
        (validation_in_fit, VALIDATE),
        (trainer.validate_loop, VALIDATE),
        (trainer.test_loop, TEST),
        (trainer.predict_loop, PREDICT),
    )
    started = trail.at_once(machine.loader_started)
    return (
        MethodWatch([(trainer.fit_loop, "setup_data")], training.setup_began, training.setup_ended, failsafe),
        MethodWatch([(trainer.strategy, "process_dataloader")], nothing, training.loader_processed, failsafe),
        *(MethodWatch([(loop, "reset")], starts(stage), started, failsafe) for loop, stage in loops),
    )
