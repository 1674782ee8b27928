"""`span`: one measurement and one NVTX range around a block or a function."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext, suppress
from types import TracebackType
from typing import Any, Final, TypeVar

from lightning_timing.compiling import compiling_probe
from lightning_timing.errors import MisuseError, TimingError
from lightning_timing.nvtx_ranges import NVTX_RANGES
from lightning_timing.stopwatch import STOPWATCH

_Function = TypeVar("_Function", bound=Callable[..., Any])

_MAX_SPANS_KEPT: Final = 1024


class Span:
    """A context manager and a decorator. It holds no state of its own, so one serves any number of threads at once.

    Attributes:
        name: The measurement's and the range's name.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        if NVTX_RANGES.recorder is not None:
            NVTX_RANGES.range_push(self.name)
        if STOPWATCH.recorder is not None:
            STOPWATCH.start_meas(self.name)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if STOPWATCH.recorder is not None:
            if kind is None:
                STOPWATCH.end_meas(self.name)
            else:
                with suppress(MisuseError):  # what the block raised is what is to be seen
                    STOPWATCH.end_meas(self.name)
        if NVTX_RANGES.recorder is not None:
            if kind is None:
                NVTX_RANGES.range_pop(self.name)
            else:
                NVTX_RANGES.unwind(self.name)

    def __call__(self, function: _Function) -> _Function:
        """Wraps a function, or a coroutine function, so that each call of it is a span.

        Raises:
            TimingError: It is a generator function: its call returns at once, and the work is done later.
        """
        import inspect  # not before it is needed: it takes a tenth of this package's import

        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TimingError(
                f"span({self.name!r}) would time the making of the generator {function.__qualname__} and not its work; "
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


_spans: dict[str, Span] = {}
"""Those made so far, by name; a bounded number of them."""

_is_compiling = compiling_probe()


def _check_has_name(name: object) -> None:
    """Refuses what `@span` is put on by itself, which it would replace by a span that never calls it."""
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
        TimingError: It can be called, as a function or a class can: `@span` was written without a name. What else
            is no name is misuse where the span is entered.
    """
    if _is_compiling():
        return nullcontext()  # type: ignore[return-value]  # all that Dynamo can enter; only ever seen while it traces
    try:
        return _spans[name]
    except KeyError:
        return _new_span(name)
    except TypeError:  # not hashable, so no str: refused where it is entered, as any other bad name
        return Span(name)
