"""Detects when a Trainer computes what was logged over an epoch, such as torchmetrics' metrics: no action says so.

Read from Lightning 2.5 to 2.6: the loops have the Trainer's logger connector do so, after the epoch's last batch and
its hooks. A callback that asks for the metrics before has them computed in its own hook.
"""

from __future__ import annotations

from typing import Any, Final

from lightning_timing.callbacks.method_watch import MethodWatch
from lightning_timing.callbacks.phase_machine import PhaseMachine
from lightning_timing.callbacks.trail import Trail
from lightning_timing.failsafe import Failsafe

_METHODS: Final = ("update_eval_epoch_metrics", "update_train_epoch_metrics", "on_epoch_end")


def watch_epoch_metrics(trainer: Any, machine: PhaseMachine, trail: Trail, failsafe: Failsafe) -> MethodWatch:
    """Reports these computations to a machine, as logging, until the watch that it returns is closed.

    Args:
        trainer: The Trainer.
        machine: Notified of the computations.
        trail: Keeps the edges that come before.
        failsafe: Takes failures of these.
    """
    pause, begin = trail.at_once(machine.batches_paused), trail.at_once(machine.logging_began)
    end = trail.at_once(machine.logging_ended)
    is_told: list[bool] = []  # of each call that has begun

    def began() -> None:
        is_told.append(bool(getattr(trainer, "_results", True)))  # else nothing was logged
        if is_told[-1]:
            pause()  # the last batch is over
            begin()

    def ended() -> None:
        if is_told.pop():
            end()

    connector = getattr(trainer, "_logger_connector", None)
    return MethodWatch([(connector, method) for method in _METHODS], began, ended, failsafe)
