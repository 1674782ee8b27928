"""What is measured while no iteration is open."""

from __future__ import annotations

from collections.abc import Callable

from lightning_timing.clocks import Clock
from lightning_timing.ledger import Ledger
from lightning_timing.measured_iterations import MeasuredOutside
from lightning_timing.measurement import Measurement
from lightning_timing.phases import FIRST_DATA_WAIT
from lightning_timing.stage_totals import StageTotals


class Outside:
    """Phases between two iterations, the waits for an epoch's first batch, and what the user measures meanwhile.

    Warm-up leaves out only what the user measures; all else counts from the start.

    Args:
        stage: The stage to count for.
        clock: Read at every boundary.
        before_reading: Called before the clock is read, where the device is to be synchronized there.
        before_handing_on: Called before something is handed on: hands on the iterations before it.

    Attributes:
        stage: The stage to count for, set when another one begins.
        ledger: The phases that are open.
        on_measured: Called with what was measured.
        current_epoch: Returns the epoch. Called as the wait for its first batch begins, since what follows may be
            recorded late.
    """

    def __init__(
        self,
        stage: StageTotals,
        clock: Clock,
        before_reading: Callable[[], None] | None,
        before_handing_on: Callable[[], None],
    ) -> None:
        self.stage = stage
        self.ledger = Ledger(clock, stage.between, before_reading)
        self.on_measured: Callable[[MeasuredOutside], None] | None = None
        self.current_epoch: Callable[[], int] = _no_epoch
        self._epoch = 0
        self._before_handing_on = before_handing_on
        self._first_wait_begin = 0
        self._first_wait: tuple[int, int] | None = None  # how long, of all its parts, and when it ended

    def begin_stage(self, stage: StageTotals) -> None:
        """Counts what follows for another stage."""
        self.stage = stage
        self.ledger.phases = stage.between

    def enter(self, phase: str, since_last: bool = False) -> None:
        """Opens a phase inside the one that is open, always as of now: `since_last` has no effect here."""
        if not self.ledger.is_open:
            self.ledger.begin(keep_intervals=False)
        self.ledger.enter(phase)

    def leave(self, paused: bool = False) -> None:
        """Closes the phase that is open; as in `Ledger`."""
        self.ledger.leave(paused)
        measurement, own_ns, _, end_ns = self.ledger.times.pop()
        if not self.ledger.depth:
            self.ledger.drop()
        if own_ns is None:
            return
        for counted in measurement.counted_in:
            counted.distribution.add(own_ns)
            self._hand_on(self.stage, counted.name, own_ns, end_ns)

    def begin_first_wait(self, resumed: bool) -> None:
        """Begins the wait for an epoch's first batch, or (`resumed`) continues it after `end_first_wait`."""
        self._first_wait_begin = self.ledger.read()
        if not resumed:
            self.take_first_wait()  # of an epoch of which no iteration was counted
            self._epoch = self.current_epoch()

    def end_first_wait(self) -> None:
        """Ends the wait for the first batch, for good or until it is resumed."""
        now = self.ledger.read()
        waited_before = 0 if self._first_wait is None else self._first_wait[0]
        self._first_wait = waited_before + now - self._first_wait_begin, now

    def take_first_wait(self) -> None:
        """Counts the last wait for a first batch, unless that was done. To be called once it cannot be resumed."""
        if self._first_wait is None:
            return
        (waited, end), self._first_wait = self._first_wait, None
        between = self.stage.between
        if FIRST_DATA_WAIT not in between:
            between[FIRST_DATA_WAIT] = Measurement(FIRST_DATA_WAIT, inside=False)
        between[FIRST_DATA_WAIT].distribution.add(waited)
        self._hand_on(self.stage, FIRST_DATA_WAIT, waited, end)

    def take_user_times_of(self, stage: StageTotals, until_ns: int | None = None) -> bool:
        """Counts what the user measured since the stage's last iteration; see `StageTotals.take_user_times_outside`.

        Returns:
            Whether there was anything.
        """
        taken = stage.take_user_times_outside(until_ns)
        for measurement, samples in taken:
            # Of several since the last iteration only the last one's beginning is known: the others are put before it.
            end_ns = measurement.begin_ns + samples[-1] - sum(samples)
            for ns in samples:
                end_ns += ns
                self._hand_on(stage, measurement.name, ns, end_ns)
        return bool(taken)

    def _hand_on(self, stage: StageTotals, name: str, ns: int, end_ns: int) -> None:
        self._before_handing_on()
        if self.on_measured is not None:
            self.on_measured(MeasuredOutside(stage.name, self._epoch, name, end_ns, ns))


def _no_epoch() -> int:
    return 0
