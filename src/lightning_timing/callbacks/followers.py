"""Those who are told of a Trainer's iterations and phases, each kept from the failures of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from lightning_timing.recording import IterationLabel


class PhaseFollower(Protocol):
    """Who is told of iterations and phases. Phases nest; `leave` always means the innermost."""

    def begin_stage(self, stage: str) -> None:
        """What follows belongs to the given stage. No iteration is open."""

    def begin_first_data_wait(self, resumed: bool) -> None:
        """The wait for the first batch of an epoch begins, or (`resumed`) goes on. No iteration is open."""

    def end_first_data_wait(self) -> None:
        """The first batch is there, or other things come before the wait for it goes on."""

    def begin_iteration(self) -> None:
        """An iteration begins."""

    def close_iteration(self, at_last: bool) -> None:
        """The iteration is complete, as of now or (`at_last`) of the last phase's end. No phase is open.

        Work on it waits for `count_iteration`, so that it is in nobody's iteration.
        """

    def count_iteration(self, label: IterationLabel) -> object:
        """All followers have closed the iteration."""

    def drop_iteration(self) -> None:
        """The iteration was not completed. No phase is open."""

    def rest(self) -> None:
        """No iteration follows for now."""

    def enter(self, phase: str, since_last: bool) -> None:
        """A phase opens, as of now or of the last boundary."""

    def leave(self, paused: bool) -> None:
        """The innermost phase ends, for good or to be continued by the next one of its name."""


class Followers:
    """Who follows.

    Attributes:
        inward: The followers, in the order in which they are told of what opens.
        outward: The other way round, as they are told of what ends.
        on_change: Called when there are others.
    """

    def __init__(self) -> None:
        self.inward: tuple[PhaseFollower, ...] = ()
        self.outward: tuple[PhaseFollower, ...] = ()
        self.on_change: Callable[[], None] = _nothing
        self._on_failure: dict[PhaseFollower, Callable[[Exception], None]] = {}

    def add(self, follower: PhaseFollower, on_failure: Callable[[Exception], None], *, outermost: bool = False) -> None:
        """Has a follower told of what comes.

        Args:
            follower: The follower.
            on_failure: Told what the follower raised. Unless it raises that again, the follower is told of nothing
                any more, and the others go on.
            outermost: Whether it is told first of what opens and last of what ends.
        """
        self._on_failure[follower] = on_failure
        self._set((follower, *self.inward) if outermost else (*self.inward, follower))

    def remove(self, follower: PhaseFollower) -> None:
        """Has a follower told of nothing any more."""
        self._on_failure.pop(follower, None)
        self._set(tuple(f for f in self.inward if f is not follower))

    def remove_all(self) -> None:
        """Has nobody told of anything any more."""
        self._on_failure.clear()
        self._set(())

    @contextmanager
    def stand_in(self, follower: PhaseFollower, substitute: PhaseFollower) -> Iterator[None]:
        """Has another one told in a follower's place, who is still there afterwards unless the other one failed."""
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
        """Tells all of something; those who fail are told of nothing any more."""
        for follower in self.outward if leaving else self.inward:
            try:
                getattr(follower, notice)(*args)
            except Exception as error:  # noqa: BLE001, PERF203  # one that fails must not end a training, nor keep the others from hearing
                self.failed(follower, error)

    def failed(self, follower: PhaseFollower, error: Exception) -> None:
        """Takes what a follower raised."""
        try:
            self._on_failure[follower](error)
        finally:  # also where that is raised, the follower was told by half
            self.remove(follower)


def _nothing() -> None:
    """Nobody wants to know."""
