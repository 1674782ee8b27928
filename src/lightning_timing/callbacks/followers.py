"""The followers of a Trainer's iterations and phases, each protected from the failures of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from lightning_timing.measured_iterations import IterationLabel
from lightning_timing.no_op import nothing


class PhaseFollower(Protocol):
    """An object that is notified of iterations and phases. Phases nest; `leave` always means the innermost.

    A subclass may leave out the methods that have a `return` here, and so ignore their notices. To the type checker
    those without one are mere declarations.
    """

    def begin_stage(self, stage: str) -> None:
        """What follows belongs to the given stage. No iteration is open."""

    def begin_first_data_wait(self, resumed: bool) -> None:
        """The wait for the first batch of an epoch begins, or (`resumed`) goes on. No iteration is open."""
        return

    def end_first_data_wait(self) -> None:
        """The wait for the first batch ends, for good or until it is resumed."""
        return

    def begin_iteration(self) -> None:
        """An iteration begins."""

    def close_iteration(self, at_last: bool) -> None:
        """The iteration is complete, as of now or (`at_last`) of the last phase's end. No phase is open.

        Followers do their work on it in `count_iteration`, so that the work lies in no follower's iteration.
        """
        return

    def count_iteration(self, label: IterationLabel) -> object:
        """The iteration counts. All followers have closed it."""

    def drop_iteration(self) -> None:
        """The iteration was not completed. No phase is open."""
        return

    def rest(self) -> None:
        """No iteration follows for now."""
        return

    def enter(self, phase: str, since_last: bool) -> None:
        """A phase opens, as of now or of the last boundary."""
        return

    def leave(self, paused: bool) -> None:
        """The innermost phase ends, for good or to be continued by the next one of its name."""
        return


class Followers:
    """The followers of a Trainer's run.

    Attributes:
        inward: The followers, in the order in which they are notified of what opens.
        outward: The followers in reverse, the order in which they are notified of what ends.
        on_change: Called when a follower was added or removed.
    """

    def __init__(self) -> None:
        self.inward: tuple[PhaseFollower, ...] = ()
        self.outward: tuple[PhaseFollower, ...] = ()
        self.on_change: Callable[[], None] = nothing
        self._on_failure: dict[PhaseFollower, Callable[[Exception], None]] = {}

    def add(self, follower: PhaseFollower, on_failure: Callable[[Exception], None], *, outermost: bool = False) -> None:
        """Adds a follower, which is notified from now on.

        Args:
            follower: The follower.
            on_failure: Called with what the follower raised. The follower is removed, and the others go on unless this
                raises.
            outermost: Whether it is notified first of what opens and last of what ends.
        """
        self._on_failure[follower] = on_failure
        self._set((follower, *self.inward) if outermost else (*self.inward, follower))

    def remove(self, follower: PhaseFollower) -> None:
        """Removes a follower."""
        self._on_failure.pop(follower, None)
        self._set(tuple(f for f in self.inward if f is not follower))

    def remove_all(self) -> None:
        """Removes all followers."""
        self._on_failure.clear()
        self._set(())

    @contextmanager
    def stand_in(self, follower: PhaseFollower, substitute: PhaseFollower) -> Iterator[None]:
        """Temporarily replaces one follower by another; the first returns afterwards unless its substitute failed."""
        self._on_failure[substitute] = self._on_failure[follower]
        self._replace(follower, substitute)
        try:
            yield
        finally:
            self._replace(substitute, follower)
            self._on_failure.pop(substitute, None)

    def _replace(self, follower: PhaseFollower, other: PhaseFollower) -> None:
        self.inward = tuple(other if f is follower else f for f in self.inward)
        self.outward = self.inward[::-1]

    def _set(self, followers: tuple[PhaseFollower, ...]) -> None:
        self.inward, self.outward = followers, followers[::-1]
        self.on_change()

    def tell(self, notice: str, *args: object, leaving: bool = False) -> None:
        """Calls the method `notice` of all followers, in reverse if `leaving`. Removes those that fail."""
        for follower in self.outward if leaving else self.inward:
            try:
                getattr(follower, notice)(*args)
            except Exception as error:  # noqa: BLE001, PERF203  # one that fails must not end a training, nor keep the others from hearing
                self.failed(follower, error)

    def failed(self, follower: PhaseFollower, error: Exception) -> None:
        """Handles what a follower raised, and removes the follower."""
        try:
            self._on_failure[follower](error)
        finally:  # even where that raises, since the follower has missed something
            self.remove(follower)
