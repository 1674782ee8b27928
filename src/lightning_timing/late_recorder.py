"""A recorder to which phases can be reported after they happened: `docs/architecture.md` shows how, with one batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from lightning_timing.alike_iterations import AlikeIterations, Moments, PhaseEdges
from lightning_timing.clocks import Clock
from lightning_timing.measured_iterations import NOTHING, IterationLabel
from lightning_timing.phase_recorder import PhaseRecorder
from lightning_timing.recorder_settings import RecorderSettings


class LateRecorder(PhaseRecorder):
    """A `PhaseRecorder` to which phases can be reported late: the caller sets its clock and brings it up to date."""

    _catch_up_if_stuck: Callable[[], bool] = bool  # there is nothing to catch up with

    @property
    def may_follow_late(self) -> bool:
        """Whether phases can be reported late: not where the device is timed, or synchronized at each edge."""
        return self._deferred is None and not self._syncs

    def follow_late(self, catch_up: Callable[[], None], catch_up_if_stuck: Callable[[], bool]) -> None:
        """Sets the functions that bring the recorder up to date. From now on phases are reported late.

        Args:
            catch_up: Reports all phases so far. Called where these matter.
            catch_up_if_stuck: Called on another thread: reports the iterations that have ended, if the measuring thread
                makes no progress. Returns whether it reported any.
        """
        self.catch_up = self.user.catch_up = catch_up
        self._catch_up_if_stuck = catch_up_if_stuck

    def keep_up(self) -> None:
        """Hands on what waits if the measuring thread is stuck. Another thread calls this now and then.

        So the record of a run that hangs and is killed has the iterations that had ended.
        """
        if self._catch_up_if_stuck():
            self._closed.work_off(wait=False)
        else:
            self._closed.work_off_if_stuck()

    def read_moments_by(self, read: Clock) -> None:
        """Sets the clock for phase boundaries: the real one, or one that replays the noted timestamps."""
        self._ledger.read = self._outside.ledger.read = read

    def patience(self) -> int:
        """Returns how many iterations may end from now on before they are reported; 0: each is reported as it ends."""
        if not self.takes_whole_iterations:
            return 0
        room = self._closed.room
        if self._on_report_due is None:
            return room - 1
        return min(room, self._report_every - self.stage.iterations % self._report_every) - 1

    def cut(self, end_ns: int, undisturbed: AbstractContextManager[object]) -> bool:
        """Sets apart what the user measured in an iteration that has ended and is reported later.

        Args:
            end_ns: When the iteration ended, on the clock.
            undisturbed: A context in which Ctrl-C waits.

        Returns:
            Whether the iteration may be reported later, as far as the user's measurements are concerned.
        """
        if not self.stage.user_measurements:
            return True
        if not self.takes_whole_iterations:
            return False
        with undisturbed:  # what is set apart by half would be in no iteration, or in two
            return self.user.cuts.set_apart(end_ns, list(self.stage.user_measurements.values()))

    @property
    def is_in_iteration(self) -> bool:
        """Whether an iteration is open."""
        return self._ledger.is_open

    @property
    def takes_whole_iterations(self) -> bool:
        """Whether whole iterations can be reported in one call: after warm-up, unless CPU metering has yet to begin."""
        stage = self.stage
        is_warm = bool(stage.iterations) and stage.warmup_left <= 0
        return is_warm and not self.cpu.is_due(stage.name)

    def trial(self) -> LateRecorder:
        """Returns a recorder that does the same at each edge, but never waits for the device: to be timed itself."""
        timer = None if self._deferred is None else type(self._deferred.timer)(self._deferred.timer.device)
        settings = RecorderSettings(num_warmup_iters=0)
        return LateRecorder(settings, keep_intervals=self._keep_intervals, device_timer=timer)

    def take_alike(
        self, phases: tuple[PhaseEdges, ...], iterations: Sequence[Moments], labels: Sequence[IterationLabel]
    ) -> None:
        """Counts successive iterations that have ended and whose phases are known.

        Args:
            phases: The intervals of their phases, none of which was open before or after.
            iterations: The times of the edges of each iteration.
            labels: The label of each iteration.
        """
        stage = self.stage
        self._outside.take_first_wait()
        of_iteration = self.user.cuts.of_iteration
        by_user = [of_iteration(at[-1]) or NOTHING for at in iterations] if stage.user_measurements else ()
        alike = AlikeIterations(stage, phases, iterations, labels, self._intervals_to_keep, by_user)
        stage.iterations += len(labels)
        self._closed_at = iterations[-1][-1]
        self._closed.add_alike(alike)
        self._report_if_due(newly_counted=len(labels))
