"""A recorder that can be told of phases later than they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from lightning_timing.alike_iterations import AlikeIterations, Moments, Slot
from lightning_timing.clocks import Clock
from lightning_timing.recorder import Recorder
from lightning_timing.recording import NOTHING, IterationLabel


class LateRecorder(Recorder):
    """As `Recorder`; but whoever tells it says how it reads moments, and is asked to let it catch up if need be."""

    _catch_up_if_stuck: Callable[[], bool] = bool  # there is nothing to catch up with

    @property
    def may_follow_late(self) -> bool:
        """Whether it can be told of phases later than they are, which it cannot where the device is asked at each."""
        return self._deferred is None and not self._syncs

    def follow_late(self, catch_up: Callable[[], None], catch_up_if_stuck: Callable[[], bool]) -> None:
        """Has it told of phases late from now on.

        Args:
            catch_up: Has it told of all so far. It is called where those matter.
            catch_up_if_stuck: The same on another thread, if the one that measures does not get on. Says if it did.
        """
        self.catch_up = self.user.catch_up = catch_up
        self._catch_up_if_stuck = catch_up_if_stuck

    def keep_up(self) -> None:
        """Hands on what waits if the thread that measures is stuck: for another thread to call now and then.

        So a run that hangs and is then killed leaves all that it measured.
        """
        if self._catch_up_if_stuck():
            self._closed.work_off(wait=False)
        else:
            self._closed.work_off_if_stuck()

    def read_moments_by(self, read: Clock) -> None:
        """Has it read the moments of phases otherwise: by its own clock, or by one that shows when they were."""
        self._ledger.read = self._outside.ledger.read = read

    def patience(self) -> int:
        """How many iterations it can wait from now on before it is told of them; 0: nor for what begins one."""
        if not self.can_be_told_in_one:
            return 0
        room = self._closed.room
        if self._on_report_due is None:
            return room - 1
        return min(room, self._report_every - self.stage.iterations % self._report_every) - 1

    def cut(self, end_ns: int, undisturbed: AbstractContextManager[object]) -> bool:
        """An iteration ended, of which it is told later: what the user measured in it is set apart now.

        Args:
            end_ns: When it ended, on the clock.
            undisturbed: Has Ctrl-C wait meanwhile.

        Returns:
            Whether it may be told later, as far as that goes.
        """
        if not self.stage.measurements:
            return True
        if not self.can_be_told_in_one:
            return False
        with undisturbed:  # what is set apart by half would be in no iteration, or in two
            return self.user.shares.set_apart(end_ns, list(self.stage.measurements.values()))

    @property
    def is_in_iteration(self) -> bool:
        """Whether an iteration is open."""
        return self._ledger.is_open

    @property
    def can_be_told_in_one(self) -> bool:
        """Whether it can be told of whole iterations, as nothing but their phases matters."""
        stage = self.stage
        is_warm = bool(stage.iterations) and stage.warmup_left <= 0
        return is_warm and not self.cpu.is_due(stage.stage)

    def take_alike(
        self, slots: tuple[Slot, ...], iterations: Sequence[Moments], labels: Sequence[IterationLabel]
    ) -> None:
        """Opens, closes and counts iterations, one after the other, of which all is known.

        Args:
            slots: The intervals of their phases, none of which was open before or after.
            iterations: The moments of the edges of each.
            labels: What each is known by.
        """
        stage = self.stage
        self._outside.take_first_wait()
        of_iteration = self.user.shares.of_iteration
        shares = [of_iteration(at[-1]) or NOTHING for at in iterations] if stage.measurements else ()
        alike = AlikeIterations(stage, slots, iterations, labels, self._intervals_to_keep, shares)
        stage.iterations += len(labels)
        self._closed_at = iterations[-1][-1]
        self._closed.add_alike(alike)
        self._report_if_due(newly_counted=len(labels))
