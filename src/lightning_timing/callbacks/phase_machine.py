"""The one state machine that turns what a Trainer's loops do into iterations and phases, and notifies its followers."""

from __future__ import annotations

from lightning_timing.callbacks.followers import Followers
from lightning_timing.callbacks.open_phases import OpenPhases
from lightning_timing.callbacks.optimization_phases import OptimizationPhases
from lightning_timing.measured_iterations import IterationLabel
from lightning_timing.phases import BARRIER, BATCH_TRANSFER, DATA_WAIT, FORWARD, LOGGING, TRAIN


class PhaseMachine:
    """Follows a Trainer's loops.

    An iteration begins with the fetch of its batch, and is reported when the next fetch begins. It is dropped unless a
    batch hook of ours confirmed it and the last hook of its batch has returned. The first fetch of an epoch is part of
    no iteration.

    A run inside a hook of a callback, such as the trial of a learning-rate finder, belongs to that callback: the
    machine ignores its loops and batches while the stack of phases sleeps.

    Args:
        stage: The stage that the Trainer's method begins with.
        followers: Notified of iterations and phases.

    Attributes:
        stage: The current stage.
        phases: The phases that are open.
        optimization: Handles what happens in the optimization of a batch.
    """

    def __init__(self, stage: str, followers: Followers) -> None:
        self.stage = self._began_with = stage
        self._followers = followers
        self.phases = OpenPhases(followers)
        self.optimization = OptimizationPhases(self.phases)
        self._in_iteration = False
        self._label: IterationLabel | None = None
        self._hooks_batch_idx = 0
        self._batches_begun: dict[str, int] = {}  # by stage, where the step fetches by itself
        self._completed = False
        self._first_fetch = True
        self._waiting_first = False
        self._is_starting = self._is_started = False
        self._after_first_fetch = False

    @property
    def is_at_turn(self) -> bool:
        """Whether the machine is between two batches of a loop, where its state is always the same."""
        return not (self._in_iteration or self.phases.names or self._first_fetch or self._waiting_first)

    # ---- loops ----

    def epoch_began(self) -> None:
        """A training epoch begins; its loader is about to be asked for its first batch."""
        if self.phases.sleep_if_nested():
            return
        self._close_last_iteration(at_last=True)
        self._begin_stage(TRAIN)
        self._wait_for_first()

    def epoch_ended(self, succeeded: bool) -> None:
        """A training epoch is over."""
        if not self.phases.is_asleep:
            self._close_last_iteration(at_last=not succeeded)

    def evaluation_began(self, stage: str) -> None:
        """The loop of another stage begins, perhaps in the middle of a training epoch."""
        if self.phases.sleep_if_nested():
            return
        self._close_last_iteration(at_last=True)
        self._begin_stage(stage)

    def evaluation_batches_ended(self) -> None:
        """The loop of another stage has no more batches; hooks of its end follow."""
        if not self.phases.is_asleep and self.stage != TRAIN:
            self._close_last_iteration(at_last=True)

    def evaluation_ended(self, succeeded: bool) -> None:
        """The loop of another stage is over; training goes on if it was inside one."""
        if not self.phases.is_asleep and self._began_with == TRAIN and self.stage != TRAIN:
            self._begin_stage(TRAIN, resumed=True)

    def _begin_stage(self, stage: str, resumed: bool = False) -> None:
        self._first_fetch = not resumed
        if resumed:
            self._is_started = False  # the validation's loader, if its first batch was not waited for
        else:
            self._batches_begun.pop(stage, None)
        if stage != self.stage:
            self.stage = stage
            self._followers.tell("begin_stage", stage)

    # ---- loaders ----

    def batches_paused(self) -> None:
        """No batch follows for now: closes the last iteration, as of its last boundary."""
        if not (self.phases.names or self._waiting_first):
            self._close_last_iteration(at_last=True)

    def loader_starting(self, stage: str) -> None:
        """The loop of a stage is about to ask its loader for an iterator, a part of the wait for the first batch.

        May be called for each of several loaders: the last one counts. `batches_paused` has been called before.
        """
        if self.phases.names or self._waiting_first:
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
        if not self.phases.names:
            self._close_iteration(at_last=False)

    def fetch_began(self) -> None:
        """The loop asks for the next batch, or the step does, where it was handed the iterator."""
        if self.phases.is_asleep:
            return
        if FORWARD in self.phases.names:
            self.phases.enter(DATA_WAIT)
            return
        if self._after_first_fetch and self.phases.names == [BATCH_TRANSFER] and self._label is None:
            # A loader without a length is asked for one batch more before the first one is used.
            self._close_iteration(at_last=False)
            self._waiting_first = True
            self._followers.tell("begin_first_data_wait", True)
            return
        if self.phases.names:
            return
        if not self._first_fetch:
            self._begin_iteration()
            self.phases.enter(DATA_WAIT)
        elif not self._waiting_first:
            self._wait_for_first()

    def fetch_ended(self, succeeded: bool) -> None:
        """The loop has the next batch, or there is none."""
        if self.phases.is_asleep:
            return
        if FORWARD in self.phases.names:
            self.phases.leave(DATA_WAIT)
            return
        if self._waiting_first:
            self._first_fetch = self._waiting_first = False
            self._followers.tell("end_first_data_wait", leaving=True)
            self._begin_iteration()
            self._after_first_fetch = True
        else:
            self.phases.leave(DATA_WAIT)
        self.phases.enter(BATCH_TRANSFER)

    def transferred(self, succeeded: bool) -> None:
        """The batch is on the device."""
        if not self.phases.is_asleep:
            self.phases.leave(BATCH_TRANSFER)

    def batch_started(self, label: IterationLabel) -> None:
        """A batch hook of ours was called: the batch is the Trainer's own, and no trial's."""
        if self.phases.is_asleep:
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
        if succeeded and not self.phases.is_asleep:
            self._completed = True

    def _begin_iteration(self) -> None:
        self._in_iteration, self._label, self._completed = True, None, False
        self._after_first_fetch = False
        self.optimization.begin_iteration()
        self._followers.tell("begin_iteration")

    def _close_iteration(self, at_last: bool) -> None:
        """Reports the iteration that is open if it was completed, and drops it otherwise."""
        if not self._in_iteration:
            return
        self.phases.leave_all()
        label, self._label, self._in_iteration = self._label, None, False
        if label is not None and self._completed:
            if self.stage == TRAIN and self.optimization.was_skipped:
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
        self.phases.is_asleep = False
        self._close_last_iteration(at_last=True)
        self.phases.leave_all()

    # ---- logging, which no hook tells of ----

    def logging_began(self) -> None:
        """A logger is called.

        The time since the batch's last hook counts as well: it was work for the logger, such as fetching values.
        """
        self.phases.enter(LOGGING, since_last=self._completed and self._in_iteration and not self.phases.names)

    def logging_ended(self) -> None:
        """The logger returned."""
        self.phases.leave(LOGGING)

    # ---- other ranks, for which no hook waits ----

    def barrier_began(self) -> None:
        """The ranks wait for each other. That time is no part of what is open, such as a checkpoint."""
        if self._in_iteration and self._completed and not self.phases.names:
            # They wait for validation to be set up. Where gradients are accumulated nothing has told that it begins.
            self._close_iteration(at_last=True)
        self.collective_began()

    def collective_began(self) -> None:
        """The ranks broadcast something, or decide it together, for which each waits for the last one."""
        if self.phases.names or self._in_iteration:
            self.phases.enter(BARRIER)

    def barrier_ended(self) -> None:
        """All ranks have reached the barrier, or have got what is broadcast."""
        self.phases.leave(BARRIER)
