"""Hears of calls that no profiler action tells of: to the Trainer's loggers, and to where its ranks wait."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from threading import get_ident
from typing import Any

from lightning_timing.parts import Part


class MethodWatch:
    """Wraps methods on their instances until closed.

    Args:
        methods: The instances and the names of the methods. An instance that takes no attributes is left alone; its
            time stays where it occurs.
        began: Told when one of the methods is called by the thread that made this.
        ended: Told when it returns.
        part: Takes failures of these two.
    """

    def __init__(
        self, methods: Iterable[tuple[Any, str]], began: Callable[[], None], ended: Callable[[], None], part: Part
    ) -> None:
        self._wrapped: list[tuple[Any, str, Callable[..., Any], Callable[..., Any] | None]] = []
        self._began, self._ended = began, ended
        self._part = part
        self._thread = get_ident()
        for instance, method in methods:
            self._wrap(instance, method)

    def _wrap(self, instance: Any, method: str) -> None:
        original = getattr(instance, method, None)
        if not callable(original):
            return

        @functools.wraps(original)
        def watched(*args: Any, **kwargs: Any) -> Any:
            if get_ident() != self._thread:  # beside the loop, and so no part of it
                return original(*args, **kwargs)
            with self._part:
                self._began()
            try:
                return original(*args, **kwargs)
            finally:
                with self._part:
                    self._ended()

        before = vars(instance).get(method) if hasattr(instance, "__dict__") else None
        try:
            setattr(instance, method, watched)
        except AttributeError:
            return
        self._wrapped.append((instance, method, watched, before))

    def close(self) -> None:
        """Puts the instances' own methods back, unless somebody else has replaced them since."""
        for instance, method, watched, before in reversed(self._wrapped):
            if vars(instance).get(method) is not watched:
                continue
            if before is None:
                delattr(instance, method)
            else:
                setattr(instance, method, before)
        self._wrapped.clear()
