"""Hears of calls to the Trainer's loggers, which no profiler action tells of."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from threading import get_ident
from typing import Any, Final

from lightning_timing.callbacks.phase_machine import PhaseMachine

_METHODS: Final = ("log_metrics", "save")


class LoggerWatch:
    """Wraps the methods of the loggers that the loops call, on the instances, until closed.

    Args:
        loggers: The Trainer's loggers. One that takes no attributes is left alone; its time stays where it occurs.
        machine: Told when a logger is called and when it returns.
    """

    def __init__(self, loggers: Iterable[Any], machine: PhaseMachine) -> None:
        self._wrapped: list[tuple[Any, str, Callable[..., Any], Callable[..., Any] | None]] = []
        self._thread = get_ident()
        for logger in loggers:
            for method in _METHODS:
                self._wrap(logger, method, machine)

    def _wrap(self, logger: Any, method: str, machine: PhaseMachine) -> None:
        original = getattr(logger, method, None)
        if not callable(original):
            return

        @functools.wraps(original)
        def watched(*args: Any, **kwargs: Any) -> Any:
            if get_ident() != self._thread:  # beside the loop, and so no part of it
                return original(*args, **kwargs)
            machine.logging_began()
            try:
                return original(*args, **kwargs)
            finally:
                machine.logging_ended()

        before = vars(logger).get(method) if hasattr(logger, "__dict__") else None
        try:
            setattr(logger, method, watched)
        except AttributeError:
            return
        self._wrapped.append((logger, method, watched, before))

    def close(self) -> None:
        """Puts the loggers' own methods back, unless somebody else has replaced them since."""
        for logger, method, watched, before in reversed(self._wrapped):
            if vars(logger).get(method) is not watched:
                continue
            if before is None:
                delattr(logger, method)
            else:
                setattr(logger, method, before)
        self._wrapped.clear()
