"""What this package's callbacks have in common: how a run begins and ends for them, and that they never end one."""

from __future__ import annotations

import inspect
import os
import weakref
from typing import Any, ClassVar, Final

from lightning_timing.callbacks.lightning_base import Callback
from lightning_timing.errors import TimingError
from lightning_timing.interrupts import undisturbed
from lightning_timing.parts import Part, warn_that_off
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
"""Hooks that are None in the instance during a run that does without them, though the next one may need them."""

_NOT_COPIED: Final = (
    "log",  # these two are methods of the module, and of its Trainer with it, that Lightning lends to callbacks
    "log_dict",
    *_HOOKS_OF_A_BATCH,
)
"""What is put into an instance while a run lasts or, by Lightning, for good."""


class TimingCallback(Callback):
    """A callback that watches a run from `setup` to `teardown` or `on_exception`.

    Subclasses say what they do in `begin` and `end`. What they keep for the length of a run goes into `_running`, which
    no copy of the callback takes along.

    Attributes:
        enable: Whether it does anything at all.
    """

    part_name: ClassVar[str]
    """What the callback is called in messages."""

    def __init__(self, *, enable: bool) -> None:
        super().__init__()
        if not isinstance(enable, bool):
            raise TimingError(f"enable takes true or false, got {enable!r}")
        self.enable = enable
        self._running: Any = None
        self._owner: weakref.ReferenceType[Any] | None = None  # the Trainer whose run it is
        self._process = 0  # where it began
        self._part = Part(self.part_name, strict=False)
        self._state_key: str | None = None

    @property
    def strict(self) -> bool:
        """Whether failures are raised, as in `debug`, instead of warned of."""
        return False

    def begin(self, trainer: Any, pl_module: Any, entry_point: str) -> Any:
        """A run begins. Returns what is kept while it lasts; None: take no part in this run."""
        raise NotImplementedError

    def end(self, trainer: Any, running: Any, status: Status) -> None:
        """The run ended. Called once for each `begin` that returned something."""
        raise NotImplementedError

    def turn_off(self) -> None:
        """It failed in mid-run: what it has switched on for others to use is switched off at once."""

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Begins, if enabled."""
        self._skip(trainer, *self._empty_hooks())
        if not self.enable:
            return
        if self._running is None:
            with undisturbed():  # what is begun by half, or not known to be begun, nobody would end
                self._begin(trainer, pl_module, stage)
        elif not self._is_of(trainer):
            warn_that_off(self.part_name, "another Trainer, whose run is not over, has the same callback")

    def _empty_hooks(self) -> list[str]:
        """The hooks of a batch in which it does nothing. Calling an empty one costs more than timing a phase."""
        return [hook for hook in _HOOKS_OF_A_BATCH if getattr(type(self), hook) is getattr(Callback, hook)]

    def _skip(self, trainer: Any, *hooks: str) -> None:
        """Has Lightning skip hooks, as it does where a hook is not callable.

        Not where the callback is no one of the Trainer's but somebody's who hands the hooks on, and would call None.
        """
        if any(callback is self for callback in trainer.callbacks):
            vars(self).update(dict.fromkeys(hooks))

    def _begin(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self._part = Part(self.part_name, strict=self.strict, turn_off=self.turn_off)
        self._owner, self._process = weakref.ref(trainer), os.getpid()
        with self._part:
            self._running = self.begin(trainer, pl_module, stage)

    def _is_of(self, trainer: Any) -> bool:
        """Whether it takes part in a run of this Trainer: not in one inside another's, nor in a forked child."""
        is_owner = self._owner is not None and self._owner() is trainer
        return self._running is not None and is_owner and self._process == os.getpid()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Ends as completed."""
        self._finish(trainer, "completed")

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Ends as interrupted (Ctrl-C, a signal, `sys.exit`) or failed; Lightning calls no other hook then."""
        if not self._is_of(trainer):
            return
        stopped_by_user = isinstance(exception, (KeyboardInterrupt, SystemExit, GeneratorExit))
        interrupted = stopped_by_user or type(exception).__name__ == "SIGTERMException"
        self._part.strict = False  # in `debug` too, the exception that is on its way stays the one that is seen
        self._finish(trainer, "interrupted" if interrupted else "failed")

    def _finish(self, trainer: Any, status: Status) -> None:
        if self._is_of(trainer):
            with undisturbed():  # else Ctrl-C would keep the summary from being written
                self._end(trainer, status)

    def _end(self, trainer: Any, status: Status) -> None:
        running, self._running, self._owner = self._running, None, None
        with self._part:
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
        """The constructor's arguments, as far as they are kept in the open."""
        own = vars(self)
        return {name: own[name] for name in inspect.signature(type(self)).parameters if name in own}

    def __getstate__(self) -> dict[str, Any]:
        """What a copy or a pickle takes along: the settings, and nothing of a run."""
        kept = {name: value for name, value in vars(self).items() if name not in _NOT_COPIED}
        return kept | {"_running": None, "_owner": None, "_part": Part(self.part_name, strict=False)}


def is_timing_callback(callback: object) -> bool:
    """Whether a callback is one of this package's."""
    return isinstance(callback, TimingCallback)
