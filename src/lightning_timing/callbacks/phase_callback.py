"""The hooks that the callbacks which follow phases have in common."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from lightning_timing.callbacks.base import SKIPPABLE_HOOKS, TimingCallback
from lightning_timing.callbacks.batch_size import batch_size
from lightning_timing.callbacks.followers import PhaseFollower
from lightning_timing.callbacks.session import Session, call_last, join
from lightning_timing.failsafe import warn_that_off
from lightning_timing.measured_iterations import IterationLabel
from lightning_timing.record import Status

_label: Callable[[tuple[int, int, int, int | None, bool]], IterationLabel] = partial(tuple.__new__, IterationLabel)
"""Makes a label from a tuple of its fields, in half the time that the class takes."""


class PhaseCallback(TimingCallback):
    """A callback whose run has a session: `begin` returns an object with a `session`, which may be None.

    The session detects most boundaries through the Trainer's profiler. These hooks add what the profiler does not show:
    that a batch is the Trainer's own and which one it is, and which optimizer steps.
    """

    def __init__(self, *, enable: bool) -> None:
        super().__init__(enable=enable)
        self._session: Session | None = None

    def __getstate__(self) -> dict[str, Any]:
        """What a copy or a pickle takes along."""
        return {**super().__getstate__(), "_session": None}

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Begins the run for this callback, if enabled."""
        super().setup(trainer, pl_module, stage)
        if not self.enable:
            self._skip(trainer, *SKIPPABLE_HOOKS)

    def _begin(self, trainer: Any, pl_module: Any, stage: str) -> None:
        super()._begin(trainer, pl_module, stage)
        self._session = None if self._running is None else self._running.session  # None also if it does not listen
        self._skip(trainer, *SKIPPABLE_HOOKS if self._session is None else ())
        if self._session is not None:
            self._session.on_optimization.append(partial(self._hear_of_steps, trainer))

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Ends the run as completed, after the other callbacks' hooks and the loggers, which may still raise."""
        if not self._is_of(trainer):
            return
        if self._calls_within:
            self._calls_within -= 1
            return
        finish = partial(self._finish, trainer, "completed")
        if not call_last(trainer, finish):
            finish()

    def _hear_of_steps(self, trainer: Any, is_automatic: bool) -> None:
        """Skips the hook of a step in automatic optimization: there is one optimizer, so nothing to tell apart."""
        if self._session is not None:
            skip = partial(self._skip, trainer) if is_automatic else self._unskip
            skip("on_before_optimizer_step")

    def _end(self, trainer: Any, status: Status) -> None:
        self._unskip(*SKIPPABLE_HOOKS)
        self._session = None
        super()._end(trainer, status)

    def _follow(
        self,
        trainer: Any,
        entry_point: str,
        follower: PhaseFollower,
        *,
        outermost: bool = False,
        listens: bool = True,
    ) -> Session:
        """Notifies a follower of the phases of a run until it leaves or fails.

        Args:
            trainer: The Trainer.
            entry_point: `fit`, `validate`, `test` or `predict`.
            follower: The follower.
            outermost: Whether it is notified first of what opens and last of what ends.
            listens: Whether it is notified of phases at all, and not only this callback of an exception.
        """
        session = join(trainer, entry_point, follower)
        session.failsafe.strict |= self.strict
        session.on_exception.append(partial(self.on_exception, trainer, trainer.lightning_module))
        if listens:
            session.followers.add(follower, self._failsafe.fail, outermost=outermost)
            follower.begin_stage(session.machine.stage)
        return session

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Confirms the batch as the Trainer's own, and labels it."""
        session = self._session
        if session is not None:
            self._note_batch(session, trainer, batch, batch_idx, session.size_of)

    def _note_batch(
        self, session: Session, trainer: Any, batch: Any, batch_idx: int, size_of: Callable[[Any], int | None]
    ) -> None:
        try:
            if session.is_installed(trainer):
                size = size_of(batch)
                label = _label((trainer.current_epoch, batch_idx, session.steps.completed, size, False))
                session.trail.note(session.batch_started, label)
            elif not session.is_deaf and self._is_of(trainer):
                session.is_deaf = True
                other = type(trainer.profiler).__name__
                warn_that_off(
                    self.name_in_messages, f"{other} has taken the place of the Trainer's profiler in mid-run"
                )
        except Exception as error:  # noqa: BLE001  # whatever it is: a timer must not end what it times
            session.failsafe.fail(error)

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Tells the optimizers of manual optimization apart."""
        session = self._session
        if session is None:
            return
        with session.failsafe:
            if len(trainer.optimizers) > 1 and session.is_installed(trainer):
                index = next((i for i, known in enumerate(trainer.optimizers) if known is optimizer), None)
                if index is not None:
                    session.note_step_of(index)

    def _evaluation_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Confirms the batch of another stage, whose loaders follow one another, so that it is of one of them."""
        session = self._session
        if session is not None:
            self._note_batch(session, trainer, batch, batch_idx, batch_size)

    on_validation_batch_start = _evaluation_batch_start
    on_test_batch_start = _evaluation_batch_start
    on_predict_batch_start = _evaluation_batch_start
