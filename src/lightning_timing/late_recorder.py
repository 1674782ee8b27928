"""A recorder that can be told of phases later than they are."""

from __future__ import annotations

from collections.abc import Callable

from lightning_timing.clocks import Clock
from lightning_timing.ledger import Sample
from lightning_timing.recorder import Recorder
from lightning_timing.recording import IterationLabel


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

    @property
    def is_in_iteration(self) -> bool:
        """Whether an iteration is open."""
        return self._ledger.is_open

    @property
    def can_be_told_in_one(self) -> bool:
        """Whether it can be told of a whole iteration in one, as nothing but its phases matters."""
        stage = self.stage
        return bool(stage.iterations) and not self.measurements and not self.cpu.is_due(stage.stage)

    def take_iteration(self, label: IterationLabel, begin_ns: int, end_ns: int, samples: list[Sample]) -> None:
        """Opens, closes and counts an iteration, of which all is known.

        Args:
            label: What it is known by.
            begin_ns: When it began, on the clock.
            end_ns: When it ended.
            samples: Those of its phases, none of which was open before or after.
        """
        self._ledger.fill(begin_ns, end_ns, samples, self._keeps_intervals)
        self._closed_at = end_ns
        self.count_iteration(label)
