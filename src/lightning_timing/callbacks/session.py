"""Watches a Trainer's run: replaces its profiler and some methods for the run, and restores them however it ends."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from inspect import signature
from typing import Any, Final

from lightning_timing.callbacks.actions import STEPS, ActionMeanings, overrides
from lightning_timing.callbacks.batch_size import batch_size, size_of_batches
from lightning_timing.callbacks.epoch_metrics import watch_epoch_metrics
from lightning_timing.callbacks.exception_watch import ExceptionWatch
from lightning_timing.callbacks.followers import Followers, PhaseFollower
from lightning_timing.callbacks.loader_starts import watch_loader_starts
from lightning_timing.callbacks.method_watch import MethodWatch
from lightning_timing.callbacks.optimizer_watch import OptimizerWatch
from lightning_timing.callbacks.phase_machine import PhaseMachine
from lightning_timing.callbacks.profiler_tap import ProfilerTap
from lightning_timing.callbacks.routine import Routines
from lightning_timing.callbacks.step_count import AskTheTrainer, StepCount, step_count_of
from lightning_timing.callbacks.trail import Trail
from lightning_timing.failsafe import Failsafe
from lightning_timing.interrupts import InterruptGuard
from lightning_timing.late_recorder import LateRecorder
from lightning_timing.no_op import nothing
from lightning_timing.phases import PREDICT, TEST, TRAIN, VALIDATE

_FIRST_STAGES: Final = {"fit": TRAIN, "validate": VALIDATE, "test": TEST, "predict": PREDICT}

_LOGGING: Final = (
    "log_metrics",
    "save",
    "log_hyperparams",
    "log_graph",
    "after_save_checkpoint",  # some upload the checkpoint here
    "finalize",
)
"""The methods of a logger that the loops, the Trainer and its checkpoints call."""
_COLLECTIVES: Final = ("broadcast", "reduce_boolean_decision")
"""The methods of a strategy, besides its barrier, in which a rank waits for the others, but not for their tensors."""

_sessions: weakref.WeakKeyDictionary[Any, Session] = weakref.WeakKeyDictionary()


class Session:
    """One machine for all of this package's callbacks in a Trainer, fed by its profiler, loggers and barriers.

    Attributes:
        machine: Turns boundaries into phases.
        followers: Notified of iterations and phases.
        trail: Keeps the boundaries that the machine handles later.
        batch_started: Handles that a batch of the Trainer's own has started; always the same object.
        steps: Counts the optimizer's steps.
        size_of: Tells how many samples a batch of training holds, or None.
        members: The followers that have joined and not left.
        is_deaf: Whether it was noticed that the profiler was replaced in mid-run.
        on_exception: Called when an exception ends the run, before any other callback's `on_exception`.
        on_optimization: Called with whether optimization is automatic, when that may have changed.
        on_off: Called when following the Trainer has failed, and nothing more will be reported.
        failsafe: Takes failures to follow the Trainer.
    """

    def __init__(self, trainer: Any, entry_point: str) -> None:
        stage = _FIRST_STAGES.get(entry_point, TRAIN)
        self.followers = Followers()
        self.machine = PhaseMachine(stage, self.followers)
        self.is_deaf = False
        self.members: set[object] = set()
        self._identified: dict[int, Callable[[], None]] = {}  # one for each, so that edges can be recognised
        self.on_optimization: list[Callable[[bool], None]] = []
        self._is_automatic: bool | None = None
        self.batch_started = self.machine.batch_started
        self.steps: StepCount = AskTheTrainer(trainer)
        self.size_of: Callable[[Any], int | None] = batch_size
        epoch_begins = partial(self._epoch_begins, trainer)
        self.on_off: list[Callable[[], None]] = []
        self.failsafe = Failsafe("following the Trainer", strict=False, raises_once=True, turn_off=self._turn_off)
        self._exceptions = ExceptionWatch(self.failsafe)
        self.on_exception = self._exceptions.on_exception
        meanings = ActionMeanings(trainer, self.machine, self._exceptions.raised, epoch_begins)
        # The Trainer notes the handlers after the hooks of `setup`, and sets them again when it fails.
        self._guard = InterruptGuard(may_stay=entry_point != "fit")
        self.trail = Trail(self.failsafe, self._guard)
        self._can_be_late = not _fetches_by_itself(trainer.lightning_module)
        self._tap = ProfilerTap(trainer.profiler, self.machine, meanings, self.trail, self.failsafe)
        self.followers.on_change = self._choose_late_follower
        self._loggers: list[Any] = []
        self._logger_watch = self._watch([], nothing, nothing)
        self._step_watch = self._watch_steps([])
        self._backward_watch = self._watch_backward([])
        self._other_watches: list[MethodWatch] = []
        try:
            self._begin_to_watch(trainer)
        except BaseException:
            self.close(trainer)
            raise

    def _begin_to_watch(self, trainer: Any) -> None:
        machine, watches = self.machine, self._other_watches
        if trainer.world_size > 1:
            collectives = [(trainer.strategy, method) for method in _COLLECTIVES]
            watches.append(self._watch([(trainer.strategy, "barrier")], machine.barrier_began, machine.barrier_ended))
            watches.append(self._watch(collectives, machine.collective_began, machine.barrier_ended))
        self._exceptions.watch(trainer)
        watches.append(watch_epoch_metrics(trainer, machine, self.trail, self.failsafe))
        watches.extend(watch_loader_starts(trainer, machine, self.trail, self.failsafe))
        self._look_at_loggers(trainer)
        trainer.profiler = self._tap

    def _watch(
        self, methods: list[tuple[Any, str]], began: Callable[[], None], ended: Callable[[], None]
    ) -> MethodWatch:
        note = self.trail.note
        return MethodWatch(methods, partial(note, began), partial(note, ended), self.failsafe)

    def _watch_steps(self, optimizers: list[Any]) -> OptimizerWatch:
        note, optimization = self.trail.note, self.machine.optimization
        step_called, closure_began = partial(note, optimization.step_called), partial(note, optimization.closure_began)
        return OptimizerWatch(optimizers, step_called, closure_began, self.failsafe)

    def _watch_backward(self, strategies: list[Any]) -> MethodWatch:
        """Watches for the end of a backward, which no hook tells of where it fails."""
        over = partial(self.trail.note, self.machine.optimization.backward_over)
        return MethodWatch([(strategy, "backward") for strategy in strategies], nothing, over, self.failsafe)

    def note_step_of(self, index: int) -> None:
        """Notes that the optimizer of this index steps."""
        if index not in self._identified:
            self._identified[index] = partial(self.machine.optimization.step_identified, index)
        self.trail.note(self._identified[index])

    @contextmanager
    def logging(self) -> Iterator[None]:
        """Notes that what runs in this context is logging, for Lightning takes long to log before it calls a logger."""
        with self.failsafe:
            self.trail.note(self.machine.logging_began)
        try:
            yield
        finally:
            with self.failsafe:
                self.trail.note(self.machine.logging_ended)

    def _choose_late_follower(self) -> None:
        """Chooses the follower that is notified late: the only one, if it can be, unless failures are to be raised."""
        followers = self.followers.inward
        alone = followers[0] if len(followers) == 1 and self._can_be_late and not self.failsafe.strict else None
        late = alone if isinstance(alone, LateRecorder) and alone.may_follow_late else None
        if late is not self.trail.follower:
            self.trail.set_late_follower(None if late is None else Routines(self.machine, self.followers, late))
            self._tap.forget_boundaries()

    def _turn_off(self) -> None:
        self.followers.remove_all()
        for turn_off in self.on_off:
            turn_off()

    def _epoch_begins(self, trainer: Any) -> None:
        """Begins an epoch, and reads what was not settled in `setup` or may have changed since the last epoch."""
        self.machine.epoch_began()
        self._guard.may_stay = True
        self.size_of = size_of_batches(trainer.train_dataloader)
        self._look_at_optimization(trainer)
        self._look_at_optimizers(trainer)
        self._look_at_loggers(trainer)

    def _look_at_optimization(self, trainer: Any) -> None:
        is_automatic = trainer.lightning_module.automatic_optimization
        self.steps = step_count_of(trainer, is_automatic)
        expects_backward = is_automatic and not _has_no_backward(trainer)
        optimization = self.machine.optimization
        if (is_automatic, expects_backward) == (self._is_automatic, optimization.expects_backward):
            return
        self._is_automatic, optimization.expects_backward = is_automatic, expects_backward
        self._backward_watch.close()
        self._backward_watch = self._watch_backward([] if is_automatic else [trainer.strategy])
        self._tap.forget_boundaries()  # and the routines with them, which are known by what handles these
        for tell in self.on_optimization:
            tell(is_automatic)

    def _look_at_optimizers(self, trainer: Any) -> None:
        """Watches the optimizers where the module may step them: in manual optimization, or by its `optimizer_step`."""
        module = trainer.lightning_module
        is_up_to_the_module = not module.automatic_optimization or overrides(module, "optimizer_step")
        self._step_watch.close()
        self._step_watch = self._watch_steps(trainer.optimizers if is_up_to_the_module else [])
        hears_of_steps = is_up_to_the_module and self._step_watch.hears_all
        optimization = self.machine.optimization
        if hears_of_steps != optimization.hears_of_steps:
            optimization.hears_of_steps = hears_of_steps
            self._tap.forget_boundaries()

    def _look_at_loggers(self, trainer: Any) -> None:
        loggers = list(trainer.loggers)
        if loggers != self._loggers:
            self._loggers = loggers
            self._logger_watch.close()
            methods = [(logger, method) for logger in loggers for method in _LOGGING]
            self._logger_watch = self._watch(methods, self.machine.logging_began, self.machine.logging_ended)

    def call_last(self, end: Callable[[], None]) -> None:
        """Calls `end` when all else in the run is over, unless an exception ends the run before."""
        self._tap.call_last(end)

    def is_installed(self, trainer: Any) -> bool:
        """Whether this session's profiler is still the Trainer's."""
        return trainer.profiler is self._tap

    def close(self, trainer: Any) -> None:
        """Restores what was replaced, unless other code has replaced it since."""
        for watch in (self._logger_watch, self._backward_watch, *self._other_watches):
            watch.close()
        self._step_watch.close()
        if self.is_installed(trainer):
            trainer.profiler = self._tap.users_profiler
        self._guard.close()
        self._exceptions.close()


def _has_no_backward(trainer: Any) -> bool:
    """Whether this is the epoch that StochasticWeightAveraging adds for BatchNorm, which has steps but no backward."""
    return any(getattr(callback, "swa_end", None) == trainer.current_epoch - 1 for callback in trainer.callbacks)


def _fetches_by_itself(module: Any) -> bool:
    """Whether a step takes `dataloader_iter` and fetches by itself, so that the loop fetches nothing in between."""
    try:
        return any("dataloader_iter" in signature(getattr(module, step)).parameters for step in STEPS)
    except (TypeError, ValueError):  # some callables have no signature
        return True


def join(trainer: Any, entry_point: str, follower: PhaseFollower) -> Session:
    """Makes a follower a member of a Trainer's session, which is made if there is none, until it leaves.

    Args:
        trainer: The Trainer, at the beginning of a run.
        entry_point: `fit`, `validate`, `test` or `predict`.
        follower: The follower. It is notified of nothing yet.
    """
    session = _sessions.get(trainer)
    if session is None:
        session = _sessions[trainer] = Session(trainer, entry_point)
    session.members.add(follower)
    return session


def leave(trainer: Any, follower: PhaseFollower) -> None:
    """Removes a follower from the Trainer's session; the last one to leave ends the session."""
    session = _sessions.get(trainer)
    if session is None:
        return
    try:
        session.trail.catch_up()
        session.machine.run_ended()
    finally:
        session.members.discard(follower)
        if not session.members:
            del _sessions[trainer]
            session.close(trainer)
        session.followers.remove(follower)


def call_last(trainer: Any, end: Callable[[], None]) -> bool:
    """Schedules `end` for when all else in a run is over, every callback's `teardown` and the loggers' ends included.

    Args:
        trainer: The Trainer, in a `teardown` hook.
        end: The function. It is not called where an exception ends the run before.

    Returns:
        Whether it will be called; False where no session watches the run.
    """
    session = _sessions.get(trainer)
    if session is None or not session.is_installed(trainer):
        return False
    session.call_last(end)
    return True
