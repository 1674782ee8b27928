"""Hears of what optimizers do that no profiler action tells of: that one steps at all, and evaluates its closure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import get_ident
from typing import Any

from lightning_timing.parts import Part


class OptimizerWatch:
    """Has torch call a hook before each step of some optimizers, until closed.

    Args:
        optimizers: The optimizers. One without such hooks is left alone.
        steps: Told when one of them is asked to step by the thread that made this.
        evaluates: Told then when it is about to evaluate its closure, each time.
        part: Takes failures of these two.

    Attributes:
        hears_all: Whether all of the optimizers have such hooks.
    """

    def __init__(
        self, optimizers: Iterable[Any], steps: Callable[[], None], evaluates: Callable[[], None], part: Part
    ) -> None:
        self._steps, self._evaluates = steps, evaluates
        self._part = part
        self._thread = get_ident()
        handles = [self._hook_into(optimizer) for optimizer in optimizers]
        self.hears_all = None not in handles
        self._handles = [handle for handle in handles if handle is not None]

    def _hook_into(self, optimizer: Any) -> Any:
        try:
            return optimizer.register_step_pre_hook(self._before_step)
        except AttributeError:  # of torch's class in name only, or not at all
            return None

    def close(self) -> None:
        """Takes the hooks out again."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _before_step(self, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What torch calls. Returns the arguments with a closure that tells, or None: as they are."""
        if get_ident() != self._thread:
            return None
        with self._part:
            self._steps()
        if callable(kwargs.get("closure")):
            return args, {**kwargs, "closure": self._telling(kwargs["closure"])}
        if len(args) > 1 and callable(args[1]):  # after the optimizer itself
            return (args[0], self._telling(args[1]), *args[2:]), kwargs
        return None

    def _telling(self, closure: Callable[..., Any]) -> Callable[..., Any]:
        def evaluate(*args: Any, **kwargs: Any) -> Any:
            with self._part:
                self._evaluates()
            return closure(*args, **kwargs)

        return evaluate
