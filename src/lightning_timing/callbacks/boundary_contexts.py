"""The context objects of profiler actions: prepared once, entered and left at every batch, and as cheap as can be.

User code may decorate a function with one, as it may with those of Lightning's profilers.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ContextDecorator
from functools import partial
from threading import get_ident
from types import TracebackType
from typing import Any, Final

from lightning_timing.callbacks.edges import noting
from lightning_timing.callbacks.trail import Trail
from lightning_timing.failsafe import Failsafe

ignore: Final[Any] = "".format
"""Takes any arguments and returns a false value. A C method: as `__enter__` or `__exit__` it costs half of what an
empty function does, and most contexts of a batch need no more."""

Handler = Callable[[], object]


class _Decorator:
    """Lets a context decorate a function, as `ContextDecorator` does, but without a `__dict__` for each context."""

    __slots__ = ()

    __call__ = ContextDecorator.__call__

    def _recreate_cm(self) -> Any:
        """Returns the context for one call of a decorated function. `ContextDecorator` calls it by this name."""
        return self


class Quiet(_Decorator):
    """The context of an action that is no boundary."""

    __slots__ = ()

    __enter__ = __exit__ = ignore


class AtOnce(_Decorator):
    """The context of a boundary whose edges are handled at once.

    Args:
        begin: Handles its beginning.
        end: Handles its end.
        fail: Handles its end by an exception.
        failsafe: Takes failures of these.
    """

    __slots__ = ("_begin", "_end", "_fail", "_failsafe")

    def __init__(self, begin: Handler, end: Handler, fail: Handler, failsafe: Failsafe) -> None:
        self._begin, self._end, self._fail = begin, end, fail
        self._failsafe = failsafe

    def __enter__(self) -> None:
        try:
            self._begin()
        except Exception as failure:  # noqa: BLE001  # whatever it is: it must not end the loop that is watched
            self._failsafe.fail(failure)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            (self._end if kind is None else self._fail)()
        except Exception as failure:  # noqa: BLE001  # whatever it is: it must not end the loop that is watched
            self._failsafe.fail(failure, may_raise=error is None)


class Noted(_Decorator):
    """The context of a boundary whose edges are noted with their times, to be handled later: see `noted`."""

    __slots__ = ()

    def __enter__(self) -> None:
        """Notes its beginning."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Notes its end."""


def noted(begin: Handler, end: Handler, fail: Handler, trail: Trail, failsafe: Failsafe) -> Noted:
    """Makes the context of a boundary whose edges are noted with their times, to be handled later.

    Python looks up `__enter__` and `__exit__` in a context's class. So each context gets a class of its own, whose
    methods do only what this boundary needs, as C code where possible.

    Args:
        begin: Handles its beginning later; `ignore`: that is no edge.
        end: Handles its end later, likewise.
        fail: Handles its end by an exception later.
        trail: Keeps the edges.
        failsafe: Takes failures to read the clock.
    """
    note, clock = trail.edges.extend, trail.clock

    def note_beginning(_: Noted) -> None:
        try:
            note((begin, clock(), None))
        except Exception as failure:  # noqa: BLE001  # whatever it is: it must not end the loop that is watched
            failsafe.fail(failure)

    def note_end(
        _: Noted, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            note((end if kind is None else fail, clock(), None))
        except Exception as failure:  # noqa: BLE001  # whatever it is: it must not end the loop that is watched
            failsafe.fail(failure, may_raise=error is None)

    def for_one_call(_: Noted) -> AtOnce:
        """Returns the context for a decorated function, which may be called when edges are not noted any more."""
        return AtOnce(partial(trail.note, begin), partial(trail.note, end), partial(trail.note, fail), failsafe)

    own = {
        "__slots__": (),
        "_recreate_cm": for_one_call,
        "__enter__": ignore if begin is ignore else noting(trail.edges, begin, clock) or note_beginning,
        "__exit__": ignore if end is ignore else note_end,
    }
    context: Noted = type("Noted", (Noted,), own)()
    return context


class AtTimes(_Decorator):
    """The context of a boundary that is only sometimes a phase, which is found out each time that it begins.

    Args:
        is_phase: Says whether it is one now.
        phase: The context if it is.
        mere_boundary: The context if it is not.
        failsafe: Takes failures of `is_phase`.
    """

    __slots__ = ("_failsafe", "_inner", "_is_phase", "_mere_boundary", "_phase")

    def __init__(
        self, is_phase: Callable[[], bool], phase: AtOnce | Noted, mere_boundary: AtOnce | Noted, failsafe: Failsafe
    ) -> None:
        self._is_phase = is_phase
        self._phase = phase
        self._inner = self._mere_boundary = mere_boundary
        self._failsafe = failsafe

    def _recreate_cm(self) -> AtTimes:
        phase, mere_boundary = self._phase._recreate_cm(), self._mere_boundary._recreate_cm()
        return AtTimes(self._is_phase, phase, mere_boundary, self._failsafe)

    def __enter__(self) -> None:
        self._inner = self._mere_boundary
        with self._failsafe:
            if self._is_phase():
                self._inner = self._phase
        self._inner.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inner.__exit__(kind, error, trace)


class OfThread(_Decorator):
    """Wraps the context of a boundary that other threads may open too: it takes effect on the loop's thread only.

    Args:
        inner: The context.
        thread: The loop's thread.
    """

    __slots__ = ("_inner", "_thread")

    def __init__(self, inner: AtOnce | Noted, thread: int) -> None:
        self._inner = inner
        self._thread = thread

    def _recreate_cm(self) -> OfThread:
        return OfThread(self._inner._recreate_cm(), self._thread)

    def __enter__(self) -> None:
        if get_ident() == self._thread:
            self._inner.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if get_ident() == self._thread:
            self._inner.__exit__(kind, error, trace)


BoundaryContext = AtOnce | Noted | AtTimes | OfThread
Context = Quiet | BoundaryContext

QUIET: Final = Quiet()


class Both(_Decorator):
    """The user's profiler's context around ours, so that what it costs is charged to no phase."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, outer: AbstractContextManager[Any], inner: BoundaryContext) -> None:
        self._outer, self._inner = outer, inner

    def _recreate_cm(self) -> Both:
        """Returns a context for one call of a decorated function, as the user's profiler's can be entered only once."""
        recreate: Callable[[], AbstractContextManager[Any]] = getattr(self._outer, "_recreate_cm", lambda: self._outer)
        return Both(recreate(), self._inner._recreate_cm())

    def __enter__(self) -> Any:
        value = self._outer.__enter__()
        self._inner.__enter__()
        return value

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self._inner.__exit__(kind, error, trace)
        return self._outer.__exit__(kind, error, trace)
