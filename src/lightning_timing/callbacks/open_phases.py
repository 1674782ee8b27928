"""The phases that are open, one inside the other, and what the followers are told of them."""

from __future__ import annotations

from lightning_timing.callbacks.followers import Followers


class OpenPhases:
    """A stack of phases.

    A run inside a hook of a callback, such as the trial of a learning-rate finder, belongs to that callback: the stack
    sleeps from the start of the run's loop until the hook's phase ends.

    Args:
        followers: Notified of phases.

    Attributes:
        names: The phases that are open, the innermost last.
        is_asleep: Whether what happens belongs to a run inside an open phase, so that there is one.
    """

    def __init__(self, followers: Followers) -> None:
        self.names: list[str] = []
        self.is_asleep = False
        self._followers = followers
        self._ignored = 0

    def enter(self, phase: str, since_last: bool = False) -> None:
        """A phase opens inside the one that is open."""
        if self.is_asleep:
            self._ignored += 1
            return
        self.names.append(phase)
        for follower in self._followers.inward:
            try:
                follower.enter(phase, since_last)
            except Exception as error:  # noqa: BLE001, PERF203  # one that fails must not end a training, nor keep the others from hearing
                self._followers.failed(follower, error)

    def leave(self, phase: str, paused: bool = False) -> None:
        """A phase ends, and with it the phases inside it that are still open."""
        if self.is_asleep:
            if self._ignored:
                self._ignored -= 1
                return
            self.is_asleep = False
        if phase not in self.names:
            return
        while True:
            innermost = self.names.pop()
            for follower in self._followers.outward:
                try:
                    follower.leave(paused)
                except Exception as error:  # noqa: BLE001, PERF203  # one that fails must not end a training, nor keep the others from hearing
                    self._followers.failed(follower, error)
            if innermost == phase:
                return

    def leave_all(self) -> None:
        """All phases end."""
        if self.names:
            self.leave(self.names[0])

    def sleep_if_nested(self) -> bool:
        """Falls asleep if a loop starts inside an open phase. Returns whether the stack sleeps."""
        if not self.is_asleep and self.names:
            self.is_asleep, self._ignored = True, 0
        return self.is_asleep
