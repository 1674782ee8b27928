"""Detects calls that no profiler action reports, such as those to the Trainer's loggers and to its barriers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from threading import get_ident
from typing import Any

from lightning_timing.failsafe import Failsafe


class _Watched:
    """Replaces a method in its instance, and reports its calls.

    A deep copy of the instance, or an unpickled one, gets the original method: the run is not copied with it. A shallow
    one shares this with the instance.

    Args:
        instance: The instance.
        method: The method's name.
        watch: Notified of the calls.

    Attributes:
        before: What the instance itself had under that name; None: the method is its class's.
    """

    def __init__(self, instance: Any, method: str, watch: MethodWatch) -> None:
        original: Callable[..., Any] = getattr(instance, method)
        functools.update_wrapper(self, original)  # first, as it takes all attributes of one of these along
        self._original = original
        self._instance, self._method = instance, method
        self._watch = watch
        self.before = vars(instance).get(method) if hasattr(instance, "__dict__") else None

    def __getattr__(self, name: str) -> Any:
        """Returns what else the original has, such as a bound method's `__self__`."""
        if name == "_original":  # not there yet
            raise AttributeError(name)
        return getattr(self._original, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        watch = self._watch
        if get_ident() != watch.thread:  # beside the loop, and so no part of it
            return self._original(*args, **kwargs)
        with watch.failsafe:
            watch.began()
        try:
            return self._original(*args, **kwargs)
        finally:
            with watch.failsafe:
                watch.ended()

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        if self.before is None and hasattr(type(self._instance), self._method):
            return getattr, (self._instance, self._method)
        return itself, (self._original,)


def itself(original: Any) -> Any:
    """Returns its argument. A stand-in is pickled as a call of this, so that its copies are copies of the original."""
    return original


class MethodWatch:
    """Wraps methods on their instances until closed.

    Args:
        methods: The instances and the names of the methods. An instance that takes no attributes is left alone; its
            time stays where it occurs.
        began: Called when one of the methods is called by the thread that made this watch.
        ended: Called when the method returns.
        failsafe: Takes failures of these two.
    """

    def __init__(
        self,
        methods: Iterable[tuple[Any, str]],
        began: Callable[[], None],
        ended: Callable[[], None],
        failsafe: Failsafe,
    ) -> None:
        self.began, self.ended = began, ended
        self.failsafe = failsafe
        self.thread = get_ident()
        self._wrapped: list[tuple[Any, str, _Watched]] = []
        for instance, method in methods:
            self._wrap(instance, method)

    def _wrap(self, instance: Any, method: str) -> None:
        if not callable(getattr(instance, method, None)):
            return
        watched = _Watched(instance, method, self)
        try:
            original = getattr(instance, method)
            setattr(instance, method, watched)
            if vars(instance).get(method) is not watched:  # it went elsewhere, such as to what the instance stands for
                setattr(instance, method, original)
                return
        except Exception:  # noqa: BLE001  # an attribute is set by anybody's code: what cannot be set is not watched
            return
        self._wrapped.append((instance, method, watched))

    def close(self) -> None:
        """Restores the instances' own methods, unless other code has replaced them since."""
        for instance, method, watched in reversed(self._wrapped):
            if vars(instance).get(method) is not watched:
                continue
            # Not by `delattr`, with which a mock would forget the method for good.
            del vars(instance)[method]
            if watched.before is not None:
                vars(instance)[method] = watched.before
        self._wrapped.clear()
