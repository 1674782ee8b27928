"""A stand-in for the Trainer's profiler that detects every boundary in the loops, and forwards to the user's own.

Lightning opens some 25 profiler actions a batch, each through a generator-based context manager, even where no profiler
was asked for. Handing out prepared context objects instead makes that cheaper than it was, which pays for most of what
timing the phases costs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import get_ident
from typing import Any, Final

from lightning_timing.callbacks.actions import ActionMeaning, ActionMeanings
from lightning_timing.callbacks.boundary_contexts import (
    QUIET,
    AtOnce,
    AtTimes,
    Both,
    Context,
    Handler,
    Noted,
    OfThread,
    Quiet,
    ignore,
    noted,
)
from lightning_timing.callbacks.method_watch import itself
from lightning_timing.callbacks.phase_machine import PhaseMachine
from lightning_timing.callbacks.trail import Trail
from lightning_timing.failsafe import Failsafe

_MAX_QUIET_ACTIONS_KEPT: Final = 1000
"""Limit of the actions remembered to be no boundary. A user's own may have numbers in their names."""


class _Contexts(dict[str, Context]):
    """The contexts of actions, each made when it is first asked for.

    Args:
        make: Makes one.
    """

    def __init__(self, make: Callable[[str], Context]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, action_name: str) -> Context:
        made = self._make(action_name)
        if made is not QUIET or len(self) < _MAX_QUIET_ACTIONS_KEPT:
            self[action_name] = made
        return made


class ProfilerTap:
    """Takes the place of `trainer.profiler` during a run.

    Passes all actions, and attributes that it does not have itself, on to the user's profiler, if that does anything.

    Args:
        profiler: The Trainer's own profiler.
        machine: Handles the boundaries.
        meanings: Says which actions are boundaries, and what they mean.
        trail: Keeps the edges that can wait, where a follower is notified late.
        failsafe: Takes the failures of all these.

    Attributes:
        users_profiler: The Trainer's own profiler. (`profiler` is an attribute of some of these themselves.)
        profile: Returns the context of an action: as in Lightning's `Profiler`.
    """

    __slots__ = (
        "__weakref__",
        "_contexts",
        "_does_nothing",
        "_ends",
        "_failsafe",
        "_machine",
        "_meanings",
        "_starts",
        "_stops",
        "_thread",
        "_trail",
        "profile",
        "users_profiler",
    )

    def __init__(
        self, profiler: Any, machine: PhaseMachine, meanings: ActionMeanings, trail: Trail, failsafe: Failsafe
    ) -> None:
        self.users_profiler = profiler
        self._machine = machine
        self._meanings = meanings
        self._trail = trail
        self._failsafe = failsafe
        self._thread = get_ident()  # the loop's
        self._does_nothing = type(profiler).__name__ == "PassThroughProfiler"
        self._contexts = _Contexts(self._context_of)
        self.profile: Callable[[str], Any]
        self.profile = self._contexts.__getitem__ if self._does_nothing else self._profile_with_the_users
        self._starts: dict[str, Handler | None] = {}
        self._stops: dict[str, Handler | None] = {}
        self._ends: list[Callable[[], None]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.users_profiler, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Sets attributes of the user's profiler, such as `filename`, there, as if it stood here itself."""
        if name in ProfilerTap.__slots__:
            super().__setattr__(name, value)
        else:
            setattr(self.users_profiler, name, value)

    def __delattr__(self, name: str) -> None:
        """Deletes attributes of the user's profiler there."""
        delattr(self.users_profiler, name)

    @property  # type: ignore[misc]  # mypy knows `__class__` as an attribute; for `isinstance` a property does as well
    def __class__(self) -> type:
        """The class of the user's profiler, for code that asks with `isinstance` which one there is."""
        return type(self.users_profiler)

    def __reduce__(self) -> tuple[Callable[[Any], Any], tuple[Any]]:
        """A copy of the Trainer gets a copy of the user's profiler, for the run is not copied with it."""
        return itself, (self.users_profiler,)

    def forget_boundaries(self) -> None:
        """Discards the prepared contexts and handlers, as edges are handled differently from now on."""
        self._contexts.clear()
        self._starts.clear()
        self._stops.clear()

    def _profile_with_the_users(self, action_name: str) -> Any:
        context = self._contexts[action_name]
        outer = self.users_profiler.profile(action_name)
        return outer if isinstance(context, Quiet) else Both(outer, context)

    def start(self, action_name: str) -> None:
        """An action starts: as in Lightning's `Profiler`."""
        if not self._does_nothing:
            self.users_profiler.start(action_name)
        try:
            try:
                begin = self._starts[action_name]
            except KeyError:
                begin, _ = self._find_handlers_of(action_name)
            if begin is not None:
                begin()
        except Exception as failure:  # noqa: BLE001  # whatever it is: it must not end the loop that is watched
            self._failsafe.fail(failure)

    def stop(self, action_name: str) -> None:
        """An action stops: as in Lightning's `Profiler`."""
        try:
            try:
                end = self._stops[action_name]
            except KeyError:
                _, end = self._find_handlers_of(action_name)
            if end is not None:
                end()
        except Exception as failure:  # noqa: BLE001  # whatever it is: it must not end the loop that is watched
            self._failsafe.fail(failure)
        if not self._does_nothing:
            self.users_profiler.stop(action_name)

    def call_last(self, end: Callable[[], None]) -> None:
        """Calls `end` after the profiler has described the run, the last thing that Lightning asks for in a run."""
        self._ends.append(end)

    def describe(self) -> None:
        """The run is over, `teardown` hooks included: as in Lightning's `Profiler`."""
        self.users_profiler.describe()
        while self._ends:
            self._ends.pop(0)()

    def _find_handlers_of(self, action_name: str) -> tuple[Handler | None, Handler | None]:
        """Returns the functions to call when an action is started and when it is stopped, and remembers them."""
        begin: Handler | None = None
        end: Handler | None = None
        meaning = self._meanings.of_start_and_stop(action_name)
        if meaning is not None:
            note = self._trail.note
            begin, end = (partial(note, handler) for handler in self._handlers(meaning)[:2])
            if meaning.turn is not None and self._trail.follower is not None:
                begin = partial(self._trail.turn, meaning.turn, meaning.before or ignore)
        if meaning is not None or len(self._starts) < _MAX_QUIET_ACTIONS_KEPT:
            self._starts[action_name], self._stops[action_name] = begin, end
        return begin, end

    def _context_of(self, action_name: str) -> Context:
        meaning = None
        with self._failsafe:
            meaning = self._meanings.of_context(action_name)
        if meaning is None:
            return QUIET
        context = self._context_that_means(meaning)
        if meaning.from_any_thread:
            return OfThread(context, self._thread)
        if meaning.is_phase is None:
            return context
        mere_boundary = self._context_that_means(meaning._replace(phase=None))
        return AtTimes(meaning.is_phase, context, mere_boundary, self._failsafe)

    def _context_that_means(self, meaning: ActionMeaning) -> AtOnce | Noted:
        begin, end, fail = self._handlers(meaning)
        trail = self._trail
        if trail.follower is None or not meaning.can_wait:
            return AtOnce(trail.at_once(begin), trail.at_once(end), trail.at_once(fail), self._failsafe)
        return noted(begin, end, fail, trail, self._failsafe)

    def _handlers(self, meaning: ActionMeaning) -> tuple[Handler, Handler, Handler]:
        """Returns the handlers of the beginning of an action, of its end, and of its end by an exception."""
        enter, leave = self._machine.phases.enter, self._machine.phases.leave
        entering = [] if meaning.phase is None else [partial(enter, meaning.phase)]
        leaving = [] if meaning.phase is None else [partial(leave, meaning.phase)]
        before = [] if meaning.before is None else [meaning.before]
        turning = [] if meaning.turn is None else [meaning.turn]
        after = [[] if meaning.after is None else [partial(meaning.after, succeeded)] for succeeded in (True, False)]
        return _one_of([*turning, *before, *entering]), _one_of([*leaving, *after[0]]), _one_of([*leaving, *after[1]])


def _one_of(handlers: list[Handler]) -> Handler:
    """Returns one handler that calls all of them in order."""
    if len(handlers) < 2:
        return handlers[0] if handlers else ignore

    def handle_all() -> None:
        for handle in handlers:
            handle()

    return handle_all
