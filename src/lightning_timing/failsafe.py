"""Parts of this package switch themselves off when they fail, instead of ending the program that they measure."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

from lightning_timing.interrupts import raised_by_handler


class Failsafe:
    """Guards a part of this package, which works until it fails. As a context it suppresses exceptions unless strict.

    Args:
        name: What the part is called in its warning.
        strict: Whether a failure is raised, as in the preset `debug`.
        raises_once: Whether only the first failure is raised, since it ends the run.
        turn_off: Called when it fails.

    Attributes:
        strict: As given; False once an exception ends the run, since a further one would hide it.
        is_off: Whether the part failed, and so is off.
    """

    def __init__(
        self, name: str, *, strict: bool, raises_once: bool = False, turn_off: Callable[[], object] | None = None
    ) -> None:
        self.strict = strict
        self.is_off = False
        self._raises_once = raises_once
        self._name = name
        self._turn_off = turn_off

    def fail(self, error: Exception | str, *, may_raise: bool = True) -> None:
        """Switches the part off for good, with one warning that says why.

        Args:
            error: What was raised, or what went wrong in words.
            may_raise: Whether it may raise; False while an exception of the user's propagates, which ours would hide.

        Raises:
            Exception: `error`, if this is strict, or if a signal's handler raised it and so it is no failure.
        """
        if isinstance(error, Exception) and may_raise and raised_by_handler(error):
            raise error
        if self.strict and may_raise and isinstance(error, Exception):
            self.strict = not self._raises_once
            raise error
        if self.is_off:
            return
        self.is_off = True
        if self._turn_off is not None:
            with suppress(Exception):  # a further failure adds nothing to the warning below
                self._turn_off()
        warn_that_off(self._name, error if isinstance(error, str) else f"{type(error).__name__}: {error}")

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        self.fail(error)
        return True


def warn_that_off(name: str, reason: str) -> None:
    """Warns that something is off for the rest of the run, and why."""
    warn_of_run(f"{name} is off for the rest of this run: {reason}", stacklevel=3)


def warn_of_run(message: str, stacklevel: int = 2) -> None:
    """Warns of what is missing in one run.

    `warnings.warn` would say the same of the first run of a process alone, though a notebook has many.

    Args:
        message: What to say.
        stacklevel: Whose line is shown, as for `warnings.warn`.
    """
    frame = sys._getframe(stacklevel)
    warnings.warn_explicit(
        f"lightning_timing: {message}",
        UserWarning,
        frame.f_code.co_filename,
        frame.f_lineno,
        module=frame.f_globals.get("__name__"),
    )


_said: set[str] = set()


def warn_once(message: str) -> None:
    """Warns, of the line that called the caller, unless this process gave the same warning before."""
    if message not in _said:
        _said.add(message)
        warnings.warn(f"lightning_timing: {message}", stacklevel=3)
