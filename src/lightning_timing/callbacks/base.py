"""The base of this package's callbacks: how a run begins and ends for them, and that their failures never end it."""

from __future__ import annotations

import inspect
import os
import weakref
from typing import Any, ClassVar, Final

from lightning_timing.callbacks.lightning_base import Callback
from lightning_timing.errors import TimingError
from lightning_timing.failsafe import Failsafe, warn_that_off
from lightning_timing.interrupts import undisturbed
from lightning_timing.record import Status

_HOOKS_OF_A_BATCH: Final = (
    "on_train_batch_start",
    "on_train_batch_end",
    "on_validation_batch_start",
    "on_validation_batch_end",
    "on_test_batch_start",
    "on_test_batch_end",
    "on_predict_batch_start",
    "on_predict_batch_end",
    "on_before_zero_grad",
    "on_before_backward",
    "on_after_backward",
    "on_before_optimizer_step",
)

SKIPPABLE_HOOKS: Final = (
    "on_train_batch_start",
    "on_validation_batch_start",
    "on_test_batch_start",
    "on_predict_batch_start",
    "on_before_optimizer_step",
)
"""Hooks that are set to None in the instance during a run that does not need them. The next run may need them."""

_PACKAGE: Final = __name__.partition(".")[0]
_INTERRUPTIONS: Final = ("SIGTERMException", "TrialPruned")
"""Names of exceptions that end a run on purpose: Lightning's own, and Optuna's for a trial that is given up."""

_NOT_COPIED: Final = (
    "log",  # these two are methods of the module, and of its Trainer with it, that Lightning lends to callbacks
    "log_dict",
    *_HOOKS_OF_A_BATCH,
)
"""Attributes that copies leave out: they are set in the instance during a run or, by Lightning, for good."""


class TimingCallback(Callback):
    """A callback that watches a run from `setup` on. It ends with an exception, or when a subclass calls `_finish`.

    Subclasses say what they do in `begin` and `end`. What they keep for the length of a run goes into `_running`, which
    no copy of the callback takes along. All derive from `PhaseCallback`; what is here knows no session, since a session
    has to know our callbacks from others (`actions.py`).

    Attributes:
        enable: Whether it does anything at all.
    """

    name_in_messages: ClassVar[str]
    """What the callback is called in messages."""

    def __init__(self, *, enable: bool) -> None:
        super().__init__()
        if not isinstance(enable, bool):
            raise TimingError(f"enable takes true or false, got {enable!r}")
        self.enable = enable
        self._running: Any = None
        self._owner: weakref.ReferenceType[Any] | None = None  # the Trainer whose run it is
        self._process = 0  # where it began
        self._calls_within = 0  # of the same Trainer, in a hook of its own run, that are not over
        self._failsafe = Failsafe(self.name_in_messages, strict=False)
        self._state_key: str | None = None

    @property
    def strict(self) -> bool:
        """Whether failures are raised, as in `debug`, instead of warned of."""
        return False

    def begin(self, trainer: Any, pl_module: Any, entry_point: str) -> Any:
        """Begins a run. Returns what the callback keeps while it lasts; None: the callback takes no part in it."""
        raise NotImplementedError

    def end(self, trainer: Any, running: Any, status: Status) -> None:
        """Ends the run. Called once for each `begin` that returned something."""
        raise NotImplementedError

    def turn_off(self) -> None:
        """Switches off, after a failure in mid-run, what the callback had switched on for user code."""

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Begins the run for this callback, if enabled."""
        self._unskip(*_HOOKS_OF_A_BATCH)  # an earlier run skipped them; in this one other code may hand them on
        self._skip(trainer, *self._empty_hooks())
        if not self.enable:
            return
        if self._running is None:
            with undisturbed():  # a run begun by half, or not noted as begun, would never be ended
                self._begin(trainer, pl_module, stage)
        elif not self._is_of(trainer):
            warn_that_off(self.name_in_messages, "another Trainer, whose run is not over, has the same callback")
        else:
            self._calls_within += 1

    def _empty_hooks(self) -> list[str]:
        """Returns the batch hooks that the callback leaves empty: calling one costs more than timing a phase."""
        return [hook for hook in _HOOKS_OF_A_BATCH if getattr(type(self), hook) is getattr(Callback, hook)]

    def _skip(self, trainer: Any, *hooks: str) -> None:
        """Sets hooks to None, so that Lightning skips them, as it does with a hook that is not callable.

        Does nothing where the callback is not the Trainer's own: other code hands the hooks on, and would call None.
        Nor are hooks skipped that a subclass has made its own.
        """
        if any(callback is self for callback in trainer.callbacks):
            vars(self).update(dict.fromkeys(hook for hook in hooks if not self._is_overridden(hook)))

    def _is_overridden(self, hook: str) -> bool:
        found = getattr(type(self), hook)
        is_ours = str(getattr(found, "__module__", "")).startswith(f"{_PACKAGE}.")
        return found is not getattr(Callback, hook) and not is_ours

    def _unskip(self, *hooks: str) -> None:
        for hook in hooks:
            if vars(self).get(hook, hook) is None:
                del vars(self)[hook]

    def _begin(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self._failsafe = Failsafe(self.name_in_messages, strict=self.strict, turn_off=self.turn_off)
        self._owner, self._process, self._calls_within = weakref.ref(trainer), os.getpid(), 0
        with self._failsafe:
            self._running = self.begin(trainer, pl_module, stage)

    def _is_of(self, trainer: Any) -> bool:
        """Whether the callback takes part in this Trainer's run, in this process: not in a nested run or a fork."""
        is_owner = self._owner is not None and self._owner() is trainer
        return self._running is not None and is_owner and self._process == os.getpid()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Ends the run as interrupted (Ctrl-C, a signal, `sys.exit`, a search that gives it up) or failed.

        Lightning calls no other hook then.
        """
        if not self._is_of(trainer):
            return
        stopped_by_user = isinstance(exception, (KeyboardInterrupt, SystemExit, GeneratorExit))
        interrupted = stopped_by_user or type(exception).__name__ in _INTERRUPTIONS
        self._failsafe.strict = False  # in `debug` too, the exception that is on its way stays the one that is seen
        self._finish(trainer, "interrupted" if interrupted else "failed")

    def _finish(self, trainer: Any, status: Status) -> None:
        if self._is_of(trainer):
            with undisturbed():  # else Ctrl-C would keep the summary from being written
                self._end(trainer, status)

    def _end(self, trainer: Any, status: Status) -> None:
        running, self._running, self._owner = self._running, None, None
        with self._failsafe:
            self.end(trainer, running, status)

    @property
    def state_key(self) -> str:
        """Tells instances with different settings apart, as Lightning asks.

        Lightning asks at every hook of every batch, so it is made once.
        """
        if self._state_key is None:
            parameters = inspect.signature(type(self)).parameters
            changed = {name: value for name, value in self._settings().items() if value != parameters[name].default}
            self._state_key = self._generate_state_key(**changed) if changed else type(self).__qualname__
        return self._state_key

    def _settings(self) -> dict[str, Any]:
        """Returns the constructor's arguments, as far as they are kept as public attributes."""
        own = vars(self)
        return {name: own[name] for name in inspect.signature(type(self)).parameters if name in own}

    def __getstate__(self) -> dict[str, Any]:
        """What a copy or a pickle takes along: the settings, and nothing of a run."""
        kept = {name: value for name, value in vars(self).items() if name not in _NOT_COPIED}
        return kept | {"_running": None, "_owner": None, "_failsafe": Failsafe(self.name_in_messages, strict=False)}
