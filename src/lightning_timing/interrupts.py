"""Signals during our own code: Ctrl-C waits while state is half changed, and what handlers raise is recognised."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from threading import get_ident, main_thread
from types import FrameType
from typing import Any, Final

_Handler = Callable[[int, FrameType | None], object]

try:  # what `signal` wraps: there, setting a handler spends microseconds on looking for an enum until Python 3.12
    _signal: Any = import_module("_signal")
except ImportError:
    _signal = import_module("signal")
_handler_of: Final[Callable[[int], Any]] = _signal.getsignal
_set_handler: Final[Callable[[int, Any], Any]] = _signal.signal
_SIGINT: Final = int(_signal.SIGINT)

_OVER: Final = ()


def raised_by_handler(error: BaseException) -> bool:
    """Whether an exception was raised by a signal's handler, which Python may call during any code.

    An example is a deadline set with `signal.alarm`: the code that set the handler waits for the exception. A handler
    is recognised by its argument: the frame that it interrupts, which is the one before its own in the traceback.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        interrupted, trace = trace.tb_frame, trace.tb_next
        if _was_given(trace.tb_frame, interrupted):
            return True
    return False


def _was_given(frame: FrameType, interrupted: FrameType) -> bool:
    for value in frame.f_locals.values():
        if value is interrupted or (type(value) is tuple and any(each is interrupted for each in value)):
            return True
    return False


class undisturbed:  # noqa: N801  # used as a function is, like those of contextlib
    """A context in which the first SIGINT waits for the end; the previous handler is called then.

    A second SIGINT goes straight to that handler, so that a run can be stopped although storage or another rank hangs.
    The context does nothing where SIGINT calls no Python code, on threads other than the main one, and within another
    such context.
    """

    __slots__ = ("_noted", "_previous")

    def __init__(self) -> None:
        self._previous: _Handler | None = None
        self._noted: tuple[int, FrameType | None] | tuple[()] | None = None

    def __enter__(self) -> None:
        previous = _handler_of(_SIGINT)
        if not callable(previous) or type(previous) is undisturbed or get_ident() != main_thread().ident:
            return
        self._previous = previous  # before the handler is there, which may be called at once
        try:
            _set_handler(_SIGINT, self)
        except ValueError:  # the main thread of a subinterpreter may not
            self._previous = None

    def __exit__(self, *_: object) -> None:
        previous = self._previous
        if previous is None:
            return
        if _handler_of(_SIGINT) is self:
            _set_handler(_SIGINT, previous)
        # Not before: one that comes in between is still noted.
        noted, self._noted = self._noted, _OVER
        if noted:
            previous(*noted)

    def leave_out(self, handler: _Handler, for_its_own: _Handler) -> None:
        """Restores `for_its_own` at the end instead of `handler`, if that is the handler that was replaced."""
        if self._previous is handler:
            self._previous = for_its_own

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        """Handles SIGINT: notes the first one; for any later one restores the previous handler and calls it.

        So it steps aside even if other code sets it again after the context is over.
        """
        if self._noted is None:
            self._noted = (signum, frame)
        elif self._previous is not None:
            _set_handler(_SIGINT, self._previous)
            self._previous(signum, frame)


class InterruptGuard:
    """A context like `undisturbed`, for many uses at a tenth of the cost: its handler stays in place between them.

    Between two uses the handler passes each SIGINT on. The first use, and `close`, must be on the main thread:
    elsewhere they do nothing. Where other code has set a handler meanwhile, each use is a context of `undisturbed`.

    Attributes:
        may_stay: Whether the handler may stay in place; else each use is a context of `undisturbed`. It must not where
            other code is about to note the handler that it finds, and to set that again when the guard is closed.
    """

    __slots__ = ("_depth", "_instead", "_is_closed", "_noted", "_previous", "may_stay")

    def __init__(self, *, may_stay: bool = True) -> None:
        self.may_stay = may_stay
        self._depth = 0
        self._is_closed = False
        self._instead: undisturbed | None = None
        self._noted: tuple[int, FrameType | None] | None = None
        self._previous: _Handler | None = None

    def __enter__(self) -> None:
        self._depth += 1
        if self._depth == 1 and _handler_of(_SIGINT) is not self:
            self._enter_without_own_handler()

    def _enter_without_own_handler(self) -> None:
        if self._is_closed:  # the edge at which it was closed ends
            return
        if self.may_stay and self._previous is None and get_ident() == main_thread().ident:
            previous = _handler_of(_SIGINT)
            while type(previous) is InterruptGuard and previous._is_closed:
                previous = previous._previous  # other code has set a closed one again: they must not add up
            if callable(previous) and type(previous) is not undisturbed:
                self._previous = previous
                _set_handler(_SIGINT, self)
                return
        # Its own handler is not put back: the other one may call it, and would be called by it.
        self._instead = undisturbed()
        self._instead.__enter__()

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if (self._instead is not None or self._noted is not None) and not self._depth:
            self._hand_on()

    def _hand_on(self) -> None:
        instead, self._instead = self._instead, None
        noted, self._noted = self._noted, None
        try:
            if instead is not None:
                instead.__exit__()
        finally:
            if noted is not None and self._previous is not None:
                self._previous(*noted)

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        """Handles SIGINT: notes the first one in a context, and passes all others to the previous handler."""
        if self._depth and self._noted is None:
            self._noted = signum, frame
        elif self._previous is not None:
            self._previous(signum, frame)

    def close(self) -> None:
        """Restores the previous handler, unless other code has set one since. Later uses do nothing."""
        self._is_closed = True
        if self._previous is None or get_ident() != main_thread().ident:
            return
        handler = _handler_of(_SIGINT)
        if handler is self:
            _set_handler(_SIGINT, self._previous)
        elif type(handler) is undisturbed:  # a run ends within one
            handler.leave_out(self, self._previous)
