"""Detects what no profiler action reports: that an optimizer steps at all, and that it evaluates its closure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from inspect import signature
from threading import get_ident
from typing import Any, Final

from lightning_timing.compiling import is_compiling
from lightning_timing.failsafe import Failsafe

_CLOSURE: Final = "closure"


class OptimizerWatch:
    """Registers a hook that torch calls before each step of some optimizers, until closed.

    Args:
        optimizers: The optimizers. One for which torch calls no such hooks is left alone.
        steps: Called when one of them is asked to step by the thread that made this watch.
        evaluates: Called each time that such a step is about to evaluate its closure.
        failsafe: Takes failures of these two.

    Attributes:
        hears_all: Whether all of the optimizers have such hooks.
    """

    def __init__(
        self, optimizers: Iterable[Any], steps: Callable[[], None], evaluates: Callable[[], None], failsafe: Failsafe
    ) -> None:
        handles = [_hook_into(optimizer, steps, evaluates, failsafe) for optimizer in optimizers]
        self.hears_all = None not in handles
        self._handles = [handle for handle in handles if handle is not None]

    def close(self) -> None:
        """Removes the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


def _hook_into(optimizer: Any, steps: Callable[[], None], evaluates: Callable[[], None], failsafe: Failsafe) -> Any:
    # Torch marks a step that it has wrapped. One that hands attributes on to another, and steps by itself, has none.
    if not getattr(getattr(type(optimizer), "step", None), "hooked", False):
        return None
    try:
        return optimizer.register_step_pre_hook(_StepHook(optimizer, steps, evaluates, failsafe))
    except AttributeError:  # of torch's class in name only
        return None


class _StepHook:
    """The hook that torch calls before a step. A copy of the optimizer gets one that does nothing: no run is copied."""

    def __init__(
        self, optimizer: Any, steps: Callable[[], None], evaluates: Callable[[], None], failsafe: Failsafe
    ) -> None:
        self._steps, self._evaluates = steps, evaluates
        self._failsafe = failsafe
        self._thread = get_ident()
        parameters = list(signature(type(optimizer).step).parameters)  # the optimizer itself first
        self._place = parameters.index(_CLOSURE) if _CLOSURE in parameters else None

    def __reduce__(self) -> tuple[Callable[[], Any], tuple[()]]:
        return _no_hook, ()

    def __call__(self, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Reports the step. Returns the arguments with a closure that reports its evaluation; None: they stay as is."""
        if is_compiling() or get_ident() != self._thread:
            return None
        with self._failsafe:
            self._steps()
        place = self._place
        if callable(kwargs.get(_CLOSURE)):
            return args, {**kwargs, _CLOSURE: _ReportingClosure(kwargs[_CLOSURE], self._evaluates, self._failsafe)}
        if place is not None and len(args) > place and callable(args[place]):
            reporting = _ReportingClosure(args[place], self._evaluates, self._failsafe)
            return (*args[:place], reporting, *args[place + 1 :]), kwargs
        return None


class _ReportingClosure:
    """Replaces a closure, with all of its attributes, and reports each evaluation."""

    def __init__(self, closure: Any, evaluates: Callable[[], None], failsafe: Failsafe) -> None:
        self._closure, self._evaluates, self._failsafe = closure, evaluates, failsafe

    def __getattr__(self, name: str) -> Any:
        return getattr(self._closure, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with self._failsafe:
            self._evaluates()
        return self._closure(*args, **kwargs)


def _no_hook() -> Callable[..., None]:
    return _ignore_step


def _ignore_step(*_: Any) -> None:
    """Does nothing: the hook in a copy of an optimizer."""
