"""What Lightning's profiler actions mean: the only place that knows their names.

Read from Lightning 2.5 to 2.6: `trainer/call.py` opens `[Callback]<state_key>.<hook>`, and `<class>.<hook>` behind
`[LightningModule]`, `[LightningDataModule]` and `[Strategy]`; the loops open `run_training_epoch`, start and stop
`[<loop>].<prefix>_next` around each fetch and `optimizer_step` around a step in manual optimization; the Trainer opens
`save_checkpoint`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from lightning_timing.callbacks.base import TimingCallback
from lightning_timing.callbacks.lightning_base import Callback
from lightning_timing.callbacks.phase_machine import PhaseMachine
from lightning_timing.phases import (
    BACKWARD,
    CHECKPOINT,
    FORWARD,
    GRAD_CLIP,
    LR_SCHEDULER,
    PREDICT,
    SANITY_CHECK,
    TEST,
    VALIDATE,
    ZERO_GRAD,
    callback_phase,
)

_FETCHES: Final = ("train_dataloader_next", "val_next", "test_next", "predict_next")
STEPS: Final = ("training_step", "validation_step", "test_step", "predict_step")
_EVALUATION_STARTS: Final = {
    "on_validation_model_eval": VALIDATE,
    "on_test_model_eval": TEST,
    "on_predict_model_eval": PREDICT,
}
_EVALUATION_EPOCH_ENDS: Final = ("on_validation_epoch_end", "on_test_epoch_end", "on_predict_epoch_end")
_EVALUATION_ENDS: Final = ("on_validation_end", "on_test_end", "on_predict_end")
_BATCH_ENDS: Final = ("on_train_batch_end", "on_validation_batch_end", "on_test_batch_end", "on_predict_batch_end")


_WITHIN_A_BATCH: Final = tuple(
    f".{hook}"
    for hook in (
        *STEPS,
        *_BATCH_ENDS,
        *(name.replace("_end", "_start") for name in _BATCH_ENDS),
        "batch_to_device",
        "optimizer_step",
        "optimizer_zero_grad",
        "configure_gradient_clipping",
        "lr_scheduler_step",
        "backward",
        "on_before_zero_grad",
        "on_before_backward",
        "on_after_backward",
        "on_before_optimizer_step",
    )
)


_PREPARING: Final = (
    "prepare_data",
    "setup",
    "configure_model",
    "train_dataloader",
    "val_dataloader",
    "test_dataloader",
    "predict_dataloader",
    "teardown",
)
"""Hooks of a module or a data module that run between the loops over batches, though their names do not say so."""

_FROM_ANY_THREAD: Final = "save_checkpoint"
"""Suffix of the actions that other threads than the loop's may open: a checkpoint and the hooks inside it."""


class ActionMeaning(NamedTuple):
    """What an action means.

    Attributes:
        phase: The phase that lasts as long as the action; None: there is none.
        before: Called as the action begins.
        after: Called as the action ends, with whether it ended without an exception.
        turn: Called ahead of `before`: ends the iteration before.
        can_wait: Whether it may be handled later: it is only a phase, or a boundary within a batch.
        is_phase: Called each time that the action begins: whether it is that phase this time; None: it always is.
        from_any_thread: Whether threads other than the loop's may open it too; then it is no part of the loop.
    """

    phase: str | None = None
    before: Callable[[], None] | None = None
    after: Callable[[bool], None] | None = None
    turn: Callable[[], None] | None = None
    can_wait: bool = False
    is_phase: Callable[[], bool] | None = None
    from_any_thread: bool = False


class ActionMeanings:
    """Finds what an action of a given Trainer means. Each is asked for once.

    Args:
        trainer: The Trainer.
        machine: Handles the boundaries.
        exception_raised: Called before a callback's `on_exception`.
        epoch_begins: Called as a training epoch begins, never later.
    """

    def __init__(
        self,
        trainer: Any,
        machine: PhaseMachine,
        exception_raised: Callable[[], None],
        epoch_begins: Callable[[], None],
    ) -> None:
        self._trainer = trainer
        self._machine = machine
        self._exception_raised = exception_raised
        self._epoch_begins = epoch_begins

    def of_start_and_stop(self, action: str) -> ActionMeaning | None:
        """Returns the meaning of an action that is started and stopped by name; None where it is no boundary."""
        machine, optimization = self._machine, self._machine.optimization
        if action.rpartition(".")[2] in _FETCHES:
            return ActionMeaning(
                before=machine.fetch_began, after=machine.fetch_ended, turn=machine.iteration_ended, can_wait=True
            )
        if action == "optimizer_step":
            return ActionMeaning(before=optimization.step_began, after=optimization.step_ended, can_wait=True)
        return None

    def of_context(self, action: str) -> ActionMeaning | None:
        """Returns the meaning of an action that is entered as a context; None where it is no boundary."""
        meaning = self._of_context(action)
        if meaning is None:
            return None
        is_mere_phase = meaning.before is None and meaning.after is None
        return meaning._replace(
            can_wait=is_mere_phase or action.endswith(_WITHIN_A_BATCH),
            from_any_thread=action.endswith(_FROM_ANY_THREAD),
        )

    def _of_context(self, action: str) -> ActionMeaning | None:
        machine = self._machine
        if action == "run_training_epoch":
            return ActionMeaning(before=self._epoch_begins, after=machine.epoch_ended)
        if action == "save_checkpoint":
            return ActionMeaning(phase=CHECKPOINT)
        kind, _, rest = action.partition("]")
        owner, _, hook = rest.rpartition(".")
        if kind == "[Strategy":
            return self._of_strategy(hook)
        if kind == "[LightningModule":
            return self._of_module(hook)
        if kind == "[LightningDataModule" and hook in _PREPARING:
            return self._of_preparation(self._trainer.datamodule, hook)
        if kind == "[Callback":
            return self._of_callback(owner, hook)
        return None

    def _of_strategy(self, hook: str) -> ActionMeaning | None:
        optimization = self._machine.optimization
        if hook == "batch_to_device":
            return ActionMeaning(after=self._machine.transferred)
        if hook in STEPS:
            return ActionMeaning(phase=FORWARD, before=optimization.closure_began)
        if hook == "backward":
            return ActionMeaning(phase=BACKWARD, before=optimization.backward_began)
        return None

    def _of_module(self, hook: str) -> ActionMeaning | None:
        machine, optimization, module = self._machine, self._machine.optimization, self._trainer.lightning_module
        if hook == "optimizer_step":
            return ActionMeaning(before=optimization.step_began, after=optimization.step_ended)
        if hook == "optimizer_zero_grad":
            return ActionMeaning(phase=ZERO_GRAD)
        if hook == "lr_scheduler_step":
            return ActionMeaning(phase=LR_SCHEDULER)
        if hook == "configure_gradient_clipping":
            clips = self._clips() or overrides(module, hook)
            return ActionMeaning(GRAD_CLIP, after=optimization.gradients_ready, is_phase=None if clips else self._clips)
        if hook in _PREPARING:
            return self._of_preparation(module, hook)
        is_a_hook = hook.startswith("on_") and not hook.endswith("_batch_transfer")
        phase = callback_phase(type(module).__name__) if is_a_hook and overrides(module, hook) else None
        if not module.automatic_optimization:
            if hook == "on_before_backward":
                return ActionMeaning(phase, after=optimization.backward_announced)
            if hook == "on_after_backward":
                return ActionMeaning(phase, before=optimization.backward_over)
            if hook == "on_before_optimizer_step":
                return ActionMeaning(phase, after=optimization.gradients_ready)
        if hook in _BATCH_ENDS:
            return ActionMeaning(phase, after=machine.batch_completed)
        if hook == "on_validation_model_zero_grad":  # there may be nothing to validate, and then no loop begins
            return ActionMeaning(phase, before=machine.batches_paused)
        if hook in _EVALUATION_STARTS:
            return ActionMeaning(phase, before=lambda: machine.evaluation_began(self._evaluation_stage(hook)))
        if hook in _EVALUATION_EPOCH_ENDS:
            return ActionMeaning(phase, before=machine.evaluation_batches_ended)
        if hook in _EVALUATION_ENDS:
            return ActionMeaning(phase, after=machine.evaluation_ended)
        return ActionMeaning(phase) if phase else None

    def _of_preparation(self, owner: object, hook: str) -> ActionMeaning | None:
        if owner is None or not overrides(owner, hook):
            return None
        return ActionMeaning(callback_phase(type(owner).__name__), before=self._machine.batches_paused)

    def _clips(self) -> bool:
        return self._trainer.gradient_clip_val is not None

    def _evaluation_stage(self, hook: str) -> str:
        return SANITY_CHECK if self._trainer.sanity_checking else _EVALUATION_STARTS[hook]

    def _of_callback(self, state_key: str, hook: str) -> ActionMeaning | None:
        if hook == "on_exception":
            return ActionMeaning(before=self._exception_raised)
        # Several callbacks may share a key, and their actions look alike. One that overrides nothing costs nothing.
        same_key = (c for c in self._trainer.callbacks if c.state_key == state_key)
        callback = next((c for c in same_key if not isinstance(c, TimingCallback) and overrides(c, hook)), None)
        phase = None if callback is None else callback_phase(type(callback).__name__)
        if hook == "on_after_backward" and not self._trainer.lightning_module.automatic_optimization:
            return ActionMeaning(phase, before=self._machine.optimization.backward_over)
        if hook in _EVALUATION_EPOCH_ENDS:
            return ActionMeaning(phase, before=self._machine.evaluation_batches_ended)
        return ActionMeaning(phase) if phase else None


def overrides(instance: object, hook: str) -> bool:
    """Whether an object does something of its own in a hook, instead of Lightning's default."""
    if hook in vars(instance):
        return True
    for base in type(instance).__mro__:
        if hook in vars(base):
            return not _is_lightnings_own(base)
    return False


def _is_lightnings_own(base: type) -> bool:
    """Whether a class is one in which Lightning defines its default hooks."""
    is_default = base.__name__ in ("Callback", "LightningModule", "ModelHooks", "DataHooks", "CheckpointHooks")
    return base is Callback or (is_default and base.__module__.startswith(("lightning.pytorch.", "pytorch_lightning.")))
