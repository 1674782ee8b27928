"""The one state machine that turns what a Trainer's loops do into iterations and phases, and notifies its followers."""

from __future__ import annotations

from lightning_timing.callbacks.followers import Followers
from lightning_timing.phases import (
    BACKWARD,
    BARRIER,
    BATCH_TRANSFER,
    DATA_WAIT,
    FORWARD,
    LOGGING,
    OPTIMIZER_STEP,
    TRAIN,
)
from lightning_timing.recording import IterationLabel


class PhaseMachine:
    """Follows a Trainer's loops.

    An iteration begins with the fetch of its batch, and is reported when the next fetch begins. It is dropped unless a
    batch hook of ours confirmed it and the last hook of its batch has returned. The first fetch of an epoch is part of
    no iteration.

    A run inside a hook of a callback, such as the trial of a learning-rate finder, belongs to that callback: the
    machine sleeps until the hook returns.

    Args:
        stage: The stage that the Trainer's method begins with.
        followers: Notified of iterations and phases.

    Attributes:
        stage: The current stage.
        expects_backward: Whether a training batch without a backward is one for which the step returned None.
        hears_of_steps: Whether each call of an optimizer's own step is reported to the machine.
    """

    def __init__(self, stage: str, followers: Followers) -> None:
        self.stage = self._began_with = stage
        self.expects_backward = self.hears_of_steps = False
        self._followers = followers
        self._is_asleep = False
        self._open: list[str] = []
        self._in_iteration = False
        self._label: IterationLabel | None = None
        self._hooks_batch_idx = 0
        self._batches_begun: dict[str, int] = {}  # by stage, where the step fetches by itself
        self._completed = False
        self._first_fetch = True
        self._waiting_first = False
        self._is_starting = self._is_started = False
        self._after_first_fetch = False
        self._in_step = False
        self._step_phase = OPTIMIZER_STEP
        self._step_called = self._step_seen = False
        self._backward_by_hooks = False
        self._backward_seen = False
        self._ignored = 0

    @property
    def is_at_turn(self) -> bool:
        """Whether the machine is between two batches of a loop, where its state is always the same."""
        return not (self._in_iteration or self._open or self._is_asleep or self._first_fetch or self._waiting_first)

    # ---- phases ----

    def enter(self, phase: str, since_last: bool = False) -> None:
        """A phase opens inside the one that is open."""
        if self._is_asleep:
            self._ignored += 1
            return
        self._open.append(phase)
        for follower in self._followers.inward:
            try:
                follower.enter(phase, since_last)
            except Exception as error:  # noqa: BLE001, PERF203  # one that fails must not end a training, nor keep the others from hearing
                self._followers.failed(follower, error)

    def leave(self, phase: str, paused: bool = False) -> None:
        """A phase ends, and with it the phases inside it that are still open."""
        if self._is_asleep:
            if self._ignored:
                self._ignored -= 1
                return
            self._is_asleep = False
        if phase not in self._open:
            return
        while True:
            innermost = self._open.pop()
            for follower in self._followers.outward:
                try:
                    follower.leave(paused)
                except Exception as error:  # noqa: BLE001, PERF203  # one that fails must not end a training, nor keep the others from hearing
                    self._followers.failed(follower, error)
            if innermost == phase:
                return

    def _leave_all(self) -> None:
        if self._open:
            self.leave(self._open[0])

    def _sleep_if_nested(self) -> bool:
        """Falls asleep if a loop starts inside an open phase. Returns whether the machine sleeps."""
        if not self._is_asleep and self._open:
            self._is_asleep, self._ignored = True, 0
        return self._is_asleep

    # ---- loops ----

    def epoch_began(self) -> None:
        """A training epoch begins; its loader is about to be asked for its first batch."""
        if self._sleep_if_nested():
            return
        self._close_last_iteration(at_last=True)
        self._begin_stage(TRAIN)
        self._wait_for_first()

    def epoch_ended(self, succeeded: bool) -> None:
        """A training epoch is over."""
        if not self._is_asleep:
            self._close_last_iteration(at_last=not succeeded)

    def evaluation_began(self, stage: str) -> None:
        """The loop of another stage begins, perhaps in the middle of a training epoch."""
        if self._sleep_if_nested():
            return
        self._close_last_iteration(at_last=True)
        self._begin_stage(stage)

    def evaluation_batches_ended(self) -> None:
        """The loop of another stage has no more batches; hooks of its end follow."""
        if not self._is_asleep and self.stage != TRAIN:
            self._close_last_iteration(at_last=True)

    def evaluation_ended(self, succeeded: bool) -> None:
        """The loop of another stage is over; training goes on if it was inside one."""
        if not self._is_asleep and self._began_with == TRAIN and self.stage != TRAIN:
            self._begin_stage(TRAIN, resumed=True)

    def _begin_stage(self, stage: str, resumed: bool = False) -> None:
        if not resumed:
            self._first_fetch = True
            self._batches_begun.pop(stage, None)
        if stage != self.stage:
            self.stage = stage
            self._followers.tell("begin_stage", stage)

    # ---- loaders ----

    def batches_paused(self) -> None:
        """No batch follows for now: closes the last iteration, as of its last boundary."""
        if not (self._is_asleep or self._open or self._waiting_first):
            self._close_last_iteration(at_last=True)

    def loader_starting(self, stage: str) -> None:
        """The loop of a stage is about to ask its loader for an iterator, a part of the wait for the first batch.

        May be called for each of several loaders: the last one counts. `batches_paused` has been called before.
        """
        if self._is_asleep or self._open or self._waiting_first:
            return
        self.loader_started()
        self._begin_stage(stage)
        self._is_starting = True
        self._followers.tell("begin_first_data_wait", False)

    def loader_started(self) -> None:
        """The loop has the iterator; hooks of its beginning may come before it asks for the first batch."""
        if self._is_starting:
            self._is_starting, self._is_started = False, True
            self._followers.tell("end_first_data_wait", leaving=True)

    def _wait_for_first(self) -> None:
        resumed, self._is_started = self._is_started, False
        self._waiting_first = True
        self._followers.tell("begin_first_data_wait", resumed)

    # ---- batches ----

    def iteration_ended(self) -> None:
        """The loop is about to ask for the next batch."""
        if not self._is_asleep and not self._open:
            self._close_iteration(at_last=False)

    def fetch_began(self) -> None:
        """The loop asks for the next batch, or the step does, where it was handed the iterator."""
        if self._is_asleep:
            return
        if FORWARD in self._open:
            self.enter(DATA_WAIT)
            return
        if self._after_first_fetch and self._open == [BATCH_TRANSFER] and self._label is None:
            # A loader without a length is asked for one batch more before the first one is used.
            self._close_iteration(at_last=False)
            self._waiting_first = True
            self._followers.tell("begin_first_data_wait", True)
            return
        if self._open:
            return
        if not self._first_fetch:
            self._begin_iteration()
            self.enter(DATA_WAIT)
        elif not self._waiting_first:
            self._wait_for_first()

    def fetch_ended(self, succeeded: bool) -> None:
        """The loop has the next batch, or there is none."""
        if self._is_asleep:
            return
        if FORWARD in self._open:
            self.leave(DATA_WAIT)
            return
        if self._waiting_first:
            self._first_fetch = self._waiting_first = False
            self._followers.tell("end_first_data_wait", leaving=True)
            self._begin_iteration()
            self._after_first_fetch = True
        else:
            self.leave(DATA_WAIT)
        self.enter(BATCH_TRANSFER)

    def transferred(self, succeeded: bool) -> None:
        """The batch is on the device."""
        if not self._is_asleep:
            self.leave(BATCH_TRANSFER)

    def batch_started(self, label: IterationLabel) -> None:
        """A batch hook of ours was called: the batch is the Trainer's own, and no trial's."""
        if self._is_asleep:
            return
        known = self._label
        if known is not None and not self._completed and self._hooks_batch_idx == label.batch_idx:
            return
        self._hooks_batch_idx = label.batch_idx
        if not self._in_iteration or known is not None:
            # The step is handed the iterator and fetches by itself: the hook is the only boundary there is, and the
            # batch that it was given is the one before.
            self._close_iteration(at_last=False)
            if self._waiting_first:
                self._followers.tell("end_first_data_wait", leaving=True)
            self._begin_iteration()
            self._first_fetch = self._waiting_first = False
            batch_idx = self._batches_begun.get(self.stage, 0)
            self._batches_begun[self.stage] = batch_idx + 1
            label = label._replace(batch_idx=batch_idx, samples=None)
        self._label = label

    def batch_completed(self, succeeded: bool) -> None:
        """The last hook of the batch returned."""
        if succeeded and not self._is_asleep:
            self._completed = True

    def _begin_iteration(self) -> None:
        self._in_iteration, self._label, self._completed = True, None, False
        self._in_step = self._step_seen = self._backward_by_hooks = self._after_first_fetch = False
        self._backward_seen = False
        self._followers.tell("begin_iteration")

    def _close_iteration(self, at_last: bool) -> None:
        """Reports the iteration that is open if it was completed, and drops it otherwise."""
        if not self._in_iteration:
            return
        self._leave_all()
        label, self._label, self._in_iteration = self._label, None, False
        if label is not None and self._completed:
            if self.expects_backward and not self._backward_seen and self.stage == TRAIN:
                label = label._replace(skipped=True)
            self._followers.tell("close_iteration", at_last, leaving=True)
            self._followers.tell("count_iteration", label, leaving=True)
        else:
            self._followers.tell("drop_iteration", leaving=True)

    def _close_last_iteration(self, at_last: bool) -> None:
        """Closes the iteration that is open, if any, and reports that none follows for now."""
        self._close_iteration(at_last)
        self._followers.tell("rest")

    def run_ended(self) -> None:
        """The run ends, however it does: what is open is closed, an iteration that was cut off is dropped."""
        self._is_asleep = False
        self._close_last_iteration(at_last=True)
        self._leave_all()

    # ---- the optimizer ----

    def step_began(self) -> None:
        """An optimizer is asked to step, but its closure comes first."""
        if not self._is_asleep:
            self._in_step, self._step_phase = True, OPTIMIZER_STEP
            self._step_called = self._step_seen = False

    def step_identified(self, index: int) -> None:
        """The optimizer of this index steps, one of several."""
        if self._in_step and not self._is_asleep:
            self._step_phase = f"{OPTIMIZER_STEP}/{index}"

    def step_called(self) -> None:
        """An optimizer's own step is called: the model's `optimizer_step` does more than evaluate the closure."""
        if not self._is_asleep:
            self._step_called = True

    def closure_began(self) -> None:
        """The closure runs, perhaps not for the first time in this step: the optimizer's own work is interrupted."""
        if self._in_step and not self._is_asleep and self._open and self._open[-1] == self._step_phase:
            self.leave(self._step_phase, paused=True)

    def gradients_ready(self, succeeded: bool) -> None:
        """The gradients are ready, clipped if they are to be: the optimizer's own work comes next."""
        if self._in_step and not self._is_asleep:
            self._step_seen = True
            self.enter(self._step_phase)

    def step_ended(self, succeeded: bool) -> None:
        """The step is over."""
        if self._is_asleep or not self._in_step:
            return
        self._in_step = False
        stepped = self._step_called or not self.hears_of_steps
        if stepped and not self._step_seen and succeeded and not self._open:
            # A model that overrides `optimizer_step` may bypass the clipping: all since the closure was the step.
            self.enter(self._step_phase, since_last=True)
        self.leave(self._step_phase)

    # ---- backward ----

    def backward_began(self) -> None:
        """Backward begins: the step returned a loss. Without a loss there is none, though the optimizer may step."""
        self._backward_seen = True

    def backward_announced(self, succeeded: bool) -> None:
        """The model's hook before backward returned. In manual optimization nothing else tells that it begins."""
        if not self._is_asleep and succeeded and BACKWARD not in self._open:
            self._backward_by_hooks = True
            self.enter(BACKWARD)

    def backward_over(self) -> None:
        """A hook after backward is about to be called."""
        if self._backward_by_hooks and not self._is_asleep:
            self._backward_by_hooks = False
            self.leave(BACKWARD)

    # ---- logging, which no hook tells of ----

    def logging_began(self) -> None:
        """A logger is called.

        The time since the batch's last hook counts as well: it was work for the logger, such as fetching values.
        """
        self.enter(LOGGING, since_last=self._completed and self._in_iteration and not self._open)

    def logging_ended(self) -> None:
        """The logger returned."""
        self.leave(LOGGING)

    # ---- other ranks, for which no hook waits ----

    def barrier_began(self) -> None:
        """The ranks wait for each other. That time is no part of what is open, such as a checkpoint."""
        if self._in_iteration and self._completed and not self._open:
            # They wait for validation to be set up. Where gradients are accumulated nothing has told that it begins.
            self._close_iteration(at_last=True)
        self.collective_began()

    def collective_began(self) -> None:
        """The ranks broadcast something, or decide it together, for which each waits for the last one."""
        if self._open or self._in_iteration:
            self.enter(BARRIER)

    def barrier_ended(self) -> None:
        """All ranks have reached the barrier, or have got what is broadcast."""
        self.leave(BARRIER)
