"""`span`: one measurement and one NVTX range around a block or a function."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext, suppress
from types import TracebackType
from typing import Any, ClassVar, Final, TypeVar

from lightning_timing.compiling import compiling_probe
from lightning_timing.errors import MisuseError, TimingError
from lightning_timing.nvtx_ranges import NVTX_RANGES, NVTXRangeWrapper
from lightning_timing.stopwatch import STOPWATCH, Stopwatch

_Function = TypeVar("_Function", bound=Callable[..., Any])

_MAX_SPANS_KEPT: Final = 1024


# What a span does while nothing is enabled. C code that ignores its arguments would cost 60 ns less, but Dynamo does
# not see that it is replaced: what was compiled with it goes on calling it its way, which fails.


def _enter_for_nothing(span: Span) -> None:
    """Does nothing."""


def _leave_for_nothing(
    span: Span, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
) -> None:
    """Does nothing."""


class Span:
    """A context manager and a decorator. It holds no state of its own, so one serves any number of threads at once.

    What entering and leaving it do depends on whether the Stopwatch and the NVTXRangeWrapper are on: see `_switch`.

    Attributes:
        name: The measurement's and the range's name.
    """

    __slots__ = ("name",)

    __enter__: ClassVar[Callable[..., None]] = _enter_for_nothing
    __exit__: ClassVar[Callable[..., None]] = _leave_for_nothing

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, function: _Function) -> _Function:
        """Wraps a function, or a coroutine function, so that each call of it is a span.

        Raises:
            TimingError: It is a generator function: its call returns at once, and the work is done later.
        """
        import inspect  # not before it is needed: it takes a tenth of this package's import

        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            what = getattr(function, "__qualname__", function)
            raise TimingError(
                f"span({self.name!r}) would time the making of the generator {what} and not its work; "
                "put `with span(...)` round the work inside it"
            )
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def timed_coroutine(*args: Any, **kwargs: Any) -> Any:
                with self:
                    return await function(*args, **kwargs)

            return timed_coroutine  # type: ignore[return-value]  # wraps keeps the signature, which mypy cannot see

        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            # The branch comes before any `with`: Dynamo cannot enter a context manager made outside of what it traces.
            if _is_compiling():
                return function(*args, **kwargs)
            with self:
                return function(*args, **kwargs)

        return timed  # type: ignore[return-value]  # wraps keeps the signature, which mypy cannot see


# What a span does, by what is enabled. What is disabled while it is open, and not enabled again, is left alone when it
# ends.


def _start(span: Span) -> None:
    recorder = STOPWATCH._recorder
    if recorder is not None:
        recorder.user.start(span.name)


def _end(
    span: Span, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
) -> None:
    recorder = STOPWATCH._recorder
    if recorder is None:
        return
    if kind is None:
        recorder.user.end(span.name)
    else:
        with suppress(MisuseError):  # what the block raised is what is to be seen
            recorder.user.end(span.name)


def _push(span: Span) -> None:
    NVTX_RANGES.range_push(span.name)


def _pop(
    span: Span, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
) -> None:
    if kind is None:
        NVTX_RANGES.range_pop(span.name)
    else:
        NVTX_RANGES._unwind(span.name)


def _push_and_start(span: Span) -> None:
    _push(span)
    try:
        _start(span)
    except BaseException:  # misuse, or a signal's handler: no `__exit__` follows
        NVTX_RANGES._unwind(span.name)
        raise


def _end_and_pop(
    span: Span, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
) -> None:
    try:
        _end(span, kind, error, trace)
    except BaseException:  # misuse, or a signal's handler
        NVTX_RANGES._unwind(span.name)
        raise
    _pop(span, kind, error, trace)


_WHAT_IT_DOES: Final[dict[tuple[bool, bool], tuple[Callable[..., None], Callable[..., None]]]] = {
    (False, False): (_enter_for_nothing, _leave_for_nothing),
    (True, False): (_start, _end),
    (False, True): (_push, _pop),
    (True, True): (_push_and_start, _end_and_pop),
}
"""What a span does on entering and on leaving, by whether the Stopwatch measures and whether ranges are recorded."""


def _switch() -> None:
    """Rebinds `Span.__enter__` and `__exit__` to the cheapest functions for what is enabled now.

    Python looks up both methods in the class before it enters a block. So a block that is open now still ends with the
    function that belongs to the one it was entered with.
    """
    before = None
    # Another thread may enable something meanwhile, so this repeats until nothing has changed.
    while before != (now := (STOPWATCH._recorder is not None, NVTX_RANGES._recorder is not None)):
        enter, leave = _WHAT_IT_DOES[now]
        # Nothing is called between these two, so no other thread enters a span with one of them and not the other.
        Span.__enter__ = enter
        Span.__exit__ = leave
        before = now


Stopwatch._on_switch = NVTXRangeWrapper._on_switch = staticmethod(_switch)
_switch()

_spans: dict[str, Span] = {}
"""Spans made so far, by name: the first `_MAX_SPANS_KEPT`."""

_is_compiling = compiling_probe()


def _check_has_name(name: object) -> None:
    """Refuses a callable as a name: `@span` without a name would replace the function by a span that never calls it."""
    if callable(name):
        what = getattr(name, "__qualname__", name)
        reason = f'a span takes a name, not {what} itself: write @span("name")'
        raise TimingError(reason) from None  # not from the look-up of the name


def _new_span(name: str) -> Span:
    global _is_compiling  # noqa: PLW0603  # the hot path reads a global, which is the cheapest there is
    # torch may have been imported since; its own function is much cheaper than looking for torch.
    _is_compiling = compiling_probe()
    _check_has_name(name)
    made = Span(name)
    if len(_spans) < _MAX_SPANS_KEPT:
        _spans[name] = made
    return made


def span(name: str) -> Span:
    """Times a block or a function under a name, as a Stopwatch measurement and as an NVTX range.

        with span("matcher"):
            ...

        @span("matcher")
        def match(...): ...

    One name is open once at a time on a thread: a function that calls itself, or two coroutines that take turns, need
    names of their own for each level or task. A coroutine's span includes the time in which it waits.

    Costs about 0.2 us while nothing is enabled. In a region compiled by torch.compile it does nothing; call it there,
    at the place of use, instead of entering a span made outside.

    Args:
        name: A non-empty string of at most 512 characters.

    Raises:
        TimingError: `name` is callable, as where `@span` was written without a name. Any other bad name is misuse where
            the span is entered.
    """
    if _is_compiling():
        return nullcontext()  # type: ignore[return-value]  # all that Dynamo can enter; only ever seen while it traces
    try:
        return _spans[name]
    except KeyError:
        return _new_span(name)
    except TypeError:  # not hashable, so no str: refused where it is entered, as any other bad name
        return Span(name)
