"""The recorder of a plain loop, in which the user says where an iteration ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from lightning_timing.clocks import Clock
from lightning_timing.closed_iterations import ClosedIterations
from lightning_timing.ledger import Ledger
from lightning_timing.measured_iterations import IterationLabel, MeasuredByUser
from lightning_timing.phases import TRAIN
from lightning_timing.recorder import Recorder
from lightning_timing.recorder_settings import RecorderSettings
from lightning_timing.stage_totals import StageTotals

_NO_LABEL: Final = IterationLabel()


class LoopRecorder(Recorder):
    """A `Recorder` with one stage and no phases, whose iterations follow each other at once.

    Args:
        settings: How to count.
        clock: Monotonic, in nanoseconds.
        before_reading: Called before each reading of the clock: synchronizes the device.
    """

    def __init__(
        self, settings: RecorderSettings, clock: Clock, before_reading: Callable[[], None] | None = None
    ) -> None:
        stage = StageTotals(TRAIN, settings.warmup_of(TRAIN))
        ledger = Ledger(clock, stage.phases, before_reading)
        super().__init__(settings, clock, before_reading, stage=stage, ledger=ledger, closed=ClosedIterations())

    def finish_iteration(self) -> None:
        """Ends the iteration and begins the next one."""
        ledger = self._ledger
        if not ledger.is_open:
            ledger.begin(keep_intervals=False)
        try:
            ledger.close()
            self._close_reported_ns = ledger.begin_ns + ledger.total_ns
            self.count_iteration(_NO_LABEL)
        finally:
            ledger.begin(keep_intervals=False)

    def _leave_out(self) -> None:
        """Does nothing: there is nothing of the iteration but what the ledger has."""

    def _keep(self, label: IterationLabel, by_user: MeasuredByUser) -> None:
        ledger = self._ledger
        self._closed.add((self.stage, label, ledger.begin_ns, ledger.total_ns, None, ledger.times, by_user, False))
