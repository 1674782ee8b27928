"""The parts of this package go off by themselves when they fail, instead of ending the program that they measure."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType


class Part:
    """Something that works until it fails. As a context manager it lets no failure through, unless it is strict.

    Args:
        name: What it is called in its warning.
        strict: Whether a failure is raised, as in the preset `debug`.
        turn_off: Called when it fails.

    Attributes:
        strict: As given. What is raised must not hide an exception of the user's, so it is cleared when there is one.
        is_off: Whether it failed.
    """

    def __init__(self, name: str, *, strict: bool, turn_off: Callable[[], object] | None = None) -> None:
        self.strict = strict
        self.is_off = False
        self._name = name
        self._turn_off = turn_off

    def fail(self, error: Exception | str) -> None:
        """Goes off for good, with one warning that says why.

        Args:
            error: What was raised, or what went wrong in words.

        Raises:
            Exception: What was raised, if it is strict.
        """
        if self.strict and isinstance(error, Exception):
            raise error
        if self.is_off:
            return
        self.is_off = True
        if self._turn_off is not None:
            with suppress(Exception):  # what fails once more while it is turned off has been said to be off
                self._turn_off()
        warn_that_off(self._name, error if isinstance(error, str) else f"{type(error).__name__}: {error}")

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception) or self.strict:
            return False
        self.fail(error)
        return True


def warn_that_off(name: str, reason: str) -> None:
    """Says that something is off for the rest of the run, and why."""
    warnings.warn(f"lightning_timing: {name} is off for the rest of this run: {reason}", stacklevel=3)
