"""The hooks that the callbacks which follow phases have in common."""

from __future__ import annotations

from functools import partial
from typing import Any

from lightning_timing.callbacks.base import TimingCallback, is_timing_callback
from lightning_timing.callbacks.batch_size import batch_size
from lightning_timing.callbacks.phase_machine import PhaseFollower, PhaseMachine
from lightning_timing.callbacks.session import call_last, join, replaced_by
from lightning_timing.parts import warn_that_off
from lightning_timing.recording import IterationLabel


class PhaseCallback(TimingCallback):
    """A callback whose run has a machine: `begin` returns an object with a `machine`, which may be None.

    The machine hears of most boundaries through the Trainer's profiler. What it cannot hear there comes from these
    hooks: that a batch is the Trainer's own and which one it is, that a step returned None, and which optimizer steps.
    """

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Begins, if enabled."""
        super().setup(trainer, pl_module, stage)
        if self._running is not None and pl_module.automatic_optimization:
            # There is one optimizer, so nothing to tell apart, and Lightning skips a hook that is not callable.
            vars(self)["on_before_optimizer_step"] = None

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Ends as completed, once the hooks of others and the loggers are through, which may raise yet."""
        finish = partial(self._finish, trainer, "completed")
        if self._running is not None and not call_last(trainer, finish):
            finish()

    def _finish(self, trainer: Any, status: Any) -> None:
        vars(self).pop("on_before_optimizer_step", None)
        super()._finish(trainer, status)

    def _follow(
        self, trainer: Any, entry_point: str, follower: PhaseFollower, *, outermost: bool = False
    ) -> PhaseMachine:
        """Has a follower told of the phases of a run, until it leaves or fails."""
        return join(
            trainer,
            entry_point,
            follower,
            on_failure=self._part.fail,
            on_exception=partial(self.on_exception, trainer, trainer.lightning_module),
            is_ours=is_timing_callback,
            strict=self.strict,
            outermost=outermost,
        )

    def _machine(self) -> PhaseMachine | None:
        machine: PhaseMachine | None = getattr(self._running, "machine", None)
        return machine

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Confirms the batch as the Trainer's own, and labels it."""
        machine = self._machine()
        if machine is None or machine.is_confirmed(batch_idx):
            return
        with self._part:
            if not machine.awaits_confirmation and (other := replaced_by(trainer)) is not None:
                if not machine.is_deaf:
                    machine.is_deaf = True
                    warn_that_off(self.part, f"{other} has taken the place of the Trainer's profiler in mid-run")
            else:
                machine.batch_confirmed(
                    IterationLabel(trainer.current_epoch, batch_idx, trainer.global_step, batch_size(batch))
                )

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Notes a step that returned None."""
        machine = self._machine()
        if machine is not None and not outputs and pl_module.automatic_optimization:
            machine.batch_skipped()

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Tells the optimizers of manual optimization apart."""
        machine = self._machine()
        if machine is not None and len(trainer.optimizers) > 1:
            index = next((i for i, known in enumerate(trainer.optimizers) if known is optimizer), None)
            if index is not None:
                machine.step_identified(index)

    def _evaluation_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Confirms the batch of another stage."""
        PhaseCallback.on_train_batch_start(self, trainer, pl_module, batch, batch_idx)

    on_validation_batch_start = _evaluation_batch_start
    on_test_batch_start = _evaluation_batch_start
    on_predict_batch_start = _evaluation_batch_start
