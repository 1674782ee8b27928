"""Which part of a training batch is backward and which an optimizer's step, from what hooks tell of each."""

from __future__ import annotations

from lightning_timing.callbacks.open_phases import OpenPhases
from lightning_timing.phases import BACKWARD, OPTIMIZER_STEP


class OptimizationPhases:
    """Follows the optimization of a batch, automatic or manual.

    An optimizer's step begins when its gradients are ready, since Lightning's hook around it contains the closure, and
    with it forward and backward.

    Args:
        phases: The phases that are open.

    Attributes:
        expects_backward: Whether a training batch without a backward is one for which the step returned None.
        hears_of_steps: Whether each call of an optimizer's own step is reported.
    """

    def __init__(self, phases: OpenPhases) -> None:
        self.expects_backward = self.hears_of_steps = False
        self._phases = phases
        self._step_phase = OPTIMIZER_STEP
        self._in_step = self._step_called = self._step_seen = False
        self._backward_by_hooks = self._backward_seen = False

    def begin_iteration(self) -> None:
        """Forgets the last batch."""
        self._in_step = self._step_seen = self._backward_by_hooks = self._backward_seen = False

    @property
    def was_skipped(self) -> bool:
        """Whether the training step returned None for this batch, as far as can be told."""
        return self.expects_backward and not self._backward_seen

    # ---- the optimizer ----

    def step_began(self) -> None:
        """An optimizer is asked to step, but its closure comes first."""
        if not self._phases.is_asleep:
            self._in_step, self._step_phase = True, OPTIMIZER_STEP
            self._step_called = self._step_seen = False

    def step_identified(self, index: int) -> None:
        """The optimizer of this index steps, one of several."""
        if self._in_step and not self._phases.is_asleep:
            self._step_phase = f"{OPTIMIZER_STEP}/{index}"

    def step_called(self) -> None:
        """An optimizer's own step is called: the model's `optimizer_step` does more than evaluate the closure."""
        if not self._phases.is_asleep:
            self._step_called = True

    def closure_began(self) -> None:
        """The closure runs, perhaps not for the first time in this step: the optimizer's own work is interrupted."""
        phases = self._phases
        if self._in_step and not phases.is_asleep and phases.names and phases.names[-1] == self._step_phase:
            phases.leave(self._step_phase, paused=True)

    def gradients_ready(self, succeeded: bool) -> None:
        """The gradients are ready, clipped if they are to be: the optimizer's own work comes next."""
        if self._in_step and not self._phases.is_asleep:
            self._step_seen = True
            self._phases.enter(self._step_phase)

    def step_ended(self, succeeded: bool) -> None:
        """The step is over."""
        phases = self._phases
        if phases.is_asleep or not self._in_step:
            return
        self._in_step = False
        stepped = self._step_called or not self.hears_of_steps
        if stepped and not self._step_seen and succeeded and not phases.names:
            # A model that overrides `optimizer_step` may bypass the clipping: all since the closure was the step.
            phases.enter(self._step_phase, since_last=True)
        phases.leave(self._step_phase)

    # ---- backward ----

    def backward_began(self) -> None:
        """Backward begins: the step returned a loss. Without a loss there is none, though the optimizer may step."""
        self._backward_seen = True

    def backward_announced(self, succeeded: bool) -> None:
        """The model's hook before backward returned. In manual optimization nothing else tells that it begins."""
        if not self._phases.is_asleep and succeeded and BACKWARD not in self._phases.names:
            self._backward_by_hooks = True
            self._phases.enter(BACKWARD)

    def backward_over(self) -> None:
        """A hook after backward is about to be called."""
        if self._backward_by_hooks and not self._phases.is_asleep:
            self._backward_by_hooks = False
            self._phases.leave(BACKWARD)
