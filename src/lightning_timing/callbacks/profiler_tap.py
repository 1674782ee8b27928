"""A stand-in for the Trainer's profiler that hears of every boundary in the loops, and forwards to the user's own.

Lightning opens some 25 profiler actions a batch, each through a generator-based context manager of about 1 us, even
where no profiler was asked for. Handing out prepared context objects instead makes that cheaper than it was, so that
timing the phases costs about as much as it saves.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Final

from lightning_timing.callbacks.actions import Boundaries, Edges
from lightning_timing.callbacks.phase_machine import PhaseMachine
from lightning_timing.parts import Part

_MAX_QUIET_ACTIONS_KEPT: Final = 1000
"""Actions that are known to be no boundary. A user's own may have numbers in their names, and no end."""


class _Quiet:
    """The context of an action that is no boundary."""

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class _Phase:
    """The context of an action that is a phase and nothing more."""

    __slots__ = ("_enter", "_leave", "_part", "_phase")

    def __init__(self, machine: PhaseMachine, phase: str, part: Part) -> None:
        self._enter, self._leave, self._phase = machine.enter, machine.leave, phase
        self._part = part

    def __enter__(self) -> None:
        try:
            self._enter(self._phase)
        except Exception as failure:  # noqa: BLE001  # whatever it is: it must not end the loop that is watched
            self._part.fail(failure)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._leave(self._phase)
        except Exception as failure:  # noqa: BLE001  # whatever it is: it must not end the loop that is watched
            self._part.fail(failure, may_raise=error is None)


class _Boundary:
    """The context of an action whose beginning or end means something to the machine; it may be a phase as well."""

    __slots__ = ("_after", "_before", "_machine", "_part", "_phase")

    def __init__(self, machine: PhaseMachine, edges: Edges, part: Part) -> None:
        self._machine, self._phase = machine, edges.phase
        self._before, self._after = edges.before, edges.after
        self._part = part

    def __enter__(self) -> None:
        try:
            if self._before is not None:
                self._before()
            if self._phase is not None:
                self._machine.enter(self._phase)
        except Exception as failure:  # noqa: BLE001  # whatever it is: it must not end the loop that is watched
            self._part.fail(failure)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._phase is not None:
                self._machine.leave(self._phase)
            if self._after is not None:
                self._after(kind is None)
        except Exception as failure:  # noqa: BLE001  # whatever it is: it must not end the loop that is watched
            self._part.fail(failure, may_raise=error is None)


class _Both:
    """The user's profiler's context around ours, so that what it costs is charged to no phase."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, outer: AbstractContextManager[Any], inner: _Phase | _Boundary) -> None:
        self._outer, self._inner = outer, inner

    def __enter__(self) -> Any:
        value = self._outer.__enter__()
        self._inner.__enter__()
        return value

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self._inner.__exit__(kind, error, trace)
        return self._outer.__exit__(kind, error, trace)


_QUIET = _Quiet()


def _itself(profiler: Any) -> Any:
    return profiler


class ProfilerTap:
    """Takes the place of `trainer.profiler` during a run.

    Whatever is not a boundary, and every attribute that it does not have itself, is the user's profiler's.

    Args:
        profiler: The Trainer's own profiler.
        machine: Told of the boundaries.
        boundaries: Says which actions are boundaries.
        part: Takes the failures of these two.
    """

    def __init__(self, profiler: Any, machine: PhaseMachine, boundaries: Boundaries, part: Part) -> None:
        self.profiler = profiler
        self._machine = machine
        self._boundaries = boundaries
        self._part = part
        self._does_nothing = type(profiler).__name__ == "PassThroughProfiler"
        self._contexts: dict[str, _Quiet | _Phase | _Boundary] = {}
        self._starts: dict[str, Callable[[], None] | None] = {}
        self._stops: dict[str, Callable[[], None] | None] = {}
        self._ends: list[Callable[[], None]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.profiler, name)

    def __reduce__(self) -> tuple[Callable[[Any], Any], tuple[Any]]:
        """A copy of the Trainer gets a copy of the user's profiler, for the run is not copied with it."""
        return _itself, (self.profiler,)

    def profile(self, action_name: str) -> Any:
        """Returns the context of an action: as in Lightning's `Profiler`."""
        try:
            context = self._contexts[action_name]
        except KeyError:
            context = self._context_of(action_name)
            if context is not _QUIET or len(self._contexts) < _MAX_QUIET_ACTIONS_KEPT:
                self._contexts[action_name] = context
        if self._does_nothing:
            return context
        outer = self.profiler.profile(action_name)
        return outer if isinstance(context, _Quiet) else _Both(outer, context)

    def start(self, action_name: str) -> None:
        """An action starts: as in Lightning's `Profiler`."""
        if not self._does_nothing:
            self.profiler.start(action_name)
        try:
            try:
                begins = self._starts[action_name]
            except KeyError:
                begins, ends = self._boundaries.of_start_and_stop(action_name)
                if begins is not None or len(self._starts) < _MAX_QUIET_ACTIONS_KEPT:
                    self._starts[action_name], self._stops[action_name] = begins, ends
            if begins is not None:
                begins()
        except Exception as failure:  # noqa: BLE001  # whatever it is: it must not end the loop that is watched
            self._part.fail(failure)

    def stop(self, action_name: str) -> None:
        """An action stops: as in Lightning's `Profiler`."""
        ends = self._stops.get(action_name)
        if ends is not None:
            with self._part:
                ends()
        if not self._does_nothing:
            self.profiler.stop(action_name)

    def call_last(self, end: Callable[[], None]) -> None:
        """Calls something after the profiler has described the run, the last thing that Lightning asks for in one."""
        self._ends.append(end)

    def describe(self) -> None:
        """The run is over, `teardown` hooks included: as in Lightning's `Profiler`."""
        self.profiler.describe()
        while self._ends:
            self._ends.pop(0)()

    def _context_of(self, action_name: str) -> _Quiet | _Phase | _Boundary:
        edges = None
        with self._part:
            edges = self._boundaries.of_context(action_name)
        if edges is None:
            return _QUIET
        if edges.before is None and edges.after is None and edges.phase is not None:
            return _Phase(self._machine, edges.phase, self._part)
        return _Boundary(self._machine, edges, self._part)
