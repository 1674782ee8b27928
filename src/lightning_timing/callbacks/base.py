"""What this package's callbacks have in common: how a run begins and ends for them, and that they never end one."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any, ClassVar, Final

from lightning_timing.callbacks.lightning_base import Callback
from lightning_timing.errors import TimingError
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

_OF_A_RUN: Final = (
    "log",  # these two are methods of the module, and of its Trainer with it, that Lightning lends to callbacks
    "log_dict",
    "on_before_optimizer_step",  # None in a run that does without the hook, though the copy's run may need it
)
"""What is put into an instance while a run lasts or, by Lightning, for good."""


class TimingCallback(Callback):
    """A callback that watches a run from `setup` to `teardown` or `on_exception`.

    Subclasses say what they do in `begin` and `end`. What they keep for the length of a run goes into `_running`, which
    no copy of the callback takes along.

    Attributes:
        enable: Whether it does anything at all.
    """

    part: ClassVar[str]
    """What the callback is called in messages."""

    def __init__(self, *, enable: bool) -> None:
        super().__init__()
        if not isinstance(enable, bool):
            raise TimingError(f"enable takes true or false, got {enable!r}")
        self.enable = enable
        self._running: Any = None
        self._state_key: str | None = None
        for hook in _HOOKS_OF_A_BATCH:
            if getattr(type(self), hook) is getattr(Callback, hook):
                # Lightning skips a hook that is not callable; calling an empty one costs more than timing a phase.
                setattr(self, hook, None)

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

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Begins, if enabled."""
        if self.enable and self._running is None:
            with contained(self.part, self.strict):
                self._running = self.begin(trainer, pl_module, stage)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Ends as completed."""
        self._finish(trainer, "completed")

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Ends as interrupted (Ctrl-C, a signal, `sys.exit`) or failed; Lightning calls no other hook then."""
        stopped_by_user = isinstance(exception, (KeyboardInterrupt, SystemExit, GeneratorExit))
        interrupted = stopped_by_user or type(exception).__name__ == "SIGTERMException"
        self._finish(trainer, "interrupted" if interrupted else "failed")

    def _finish(self, trainer: Any, status: Status) -> None:
        running, self._running = self._running, None
        if running is not None:
            with contained(self.part, self.strict):
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
        return {name: value for name, value in vars(self).items() if name not in _OF_A_RUN} | {"_running": None}


class contained:  # noqa: N801  # reads as a word in a `with` statement
    """Keeps a failure of ours from ending the training: one warning instead, unless strict."""

    def __init__(self, part: str, strict: bool) -> None:
        self._part, self._strict = part, strict

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, Exception) or self._strict:
            return False
        warn_of_failure(self._part, error)
        return True


def warn_of_failure(part: str, error: BaseException | str) -> None:
    """Says that a part is off for the rest of the run, and why."""
    reason = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    warnings.warn(f"lightning_timing: {part} is off for the rest of this run: {reason}", stacklevel=2)


def is_timing_callback(callback: object) -> bool:
    """Whether a callback is one of this package's."""
    return isinstance(callback, TimingCallback)


def failure_handler(strict: bool) -> Callable[[Any, Exception], None] | None:
    """What a machine calls when a follower raised; None, which lets it raise, in `debug`."""
    if strict:
        return None
    return lambda follower, error: warn_of_failure(type(follower).__name__, error)
