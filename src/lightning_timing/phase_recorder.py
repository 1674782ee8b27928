"""The recorder of a Trainer's run, to which callbacks report stages, iterations and phases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from lightning_timing.clocks import Clock, monotonic_ns
from lightning_timing.closed_iterations import ClosedIterations, measure
from lightning_timing.compiling import compilations_so_far
from lightning_timing.deferred import DeferredIterations, Pending
from lightning_timing.device_ledger import DeviceLedger
from lightning_timing.ledger import Ledger
from lightning_timing.measured_iterations import (
    CountsInside,
    IterationLabel,
    MeasuredByUser,
    MeasuredIteration,
    MeasuredOutside,
)
from lightning_timing.measurement import Measurement
from lightning_timing.misuse import SAMPLE_DROPPED
from lightning_timing.outside import Outside
from lightning_timing.phases import ITERATION, OTHER, TRAIN, is_phase
from lightning_timing.recorder import Recorder
from lightning_timing.recorder_settings import RecorderSettings
from lightning_timing.stage_totals import StageTotals

if TYPE_CHECKING:
    from lightning_timing.device_timer import DeviceTimer

INTERVALS_KEPT_ITERATIONS: Final = 10_000
"""Iterations of a stage whose intervals are handed on with their positions; later ones have only their sums."""


class PhaseRecorder(Recorder):
    """A `Recorder` of iterations that are made of phases, in several stages, with what lies between the iterations.

    Args:
        settings: How to count.
        clock: Monotonic, in nanoseconds.
        keep_intervals: Whether iterations are handed on with the positions of their intervals.
        before_reading: Called before each reading of the clock: synchronizes the device.
        device_timer: Times intervals on the device as well; None: host time only.

    Attributes:
        enter: Opens a phase, of the given name, inside the one that is open: now, or (`since_last`) as of the last
            boundary, where it was recognised late. Rebound when an iteration opens or closes, so that the hot path
            needs neither a branch nor a further call.
        leave: Closes the phase that is open, for good or (`paused`) to be continued by the next one of its name.
            Rebound likewise.
        bookkeeping_ns: The time that went into counting iterations and handing them on, in nanoseconds.
    """

    def __init__(
        self,
        settings: RecorderSettings,
        clock: Clock = monotonic_ns,
        *,
        keep_intervals: bool = False,
        before_reading: Callable[[], None] | None = None,
        device_timer: DeviceTimer[Pending] | None = None,
    ) -> None:
        stage = _new_stage(TRAIN, settings)
        ledger = _new_ledger(clock, stage, device_timer, before_reading)
        closed = ClosedIterations()
        outside = Outside(stage, clock, before_reading, partial(closed.work_off, wait=False))
        super().__init__(
            settings,
            clock,
            before_reading,
            stage=stage,
            ledger=ledger,
            closed=closed,
            between=outside.ledger,
            device_timer=device_timer,
        )
        self._outside = outside
        self.bookkeeping_ns = 0
        self._settings = settings
        self._keep_intervals = keep_intervals
        self._syncs = before_reading is not None
        self._inside_edges = ledger.enter, ledger.leave
        self._outside_edges = self._outside.enter, self._outside.leave
        self.enter: Callable[..., None]
        self.leave: Callable[..., None]
        self.enter, self.leave = self._outside_edges
        self._deferred = None if device_timer is None else DeferredIterations(device_timer)
        self._closed_at: int | None = None

    # ---- stages ----

    def begin_stage(self, stage: str) -> None:
        """Counts what follows for the given stage. To be called while no iteration is open."""
        self._outside.take_first_wait()
        self._take_user_times_outside(self.stage)  # now, since the stage may never come again
        if stage not in self._stages:
            self._stages[stage] = _new_stage(stage, self._settings)
        self.stage = self._stages[stage]
        self.user.begin_stage(self.stage)
        self._ledger.phases = self.stage.phases
        self._outside.begin_stage(self.stage)
        self.cpu.begin_stage(is_warming_up=self.stage.warmup_left > 0)
        self._compilations = compilations_so_far()

    def restart_warmup(self) -> None:
        """Restarts the warm-up of every stage: a new call of the Trainer starts new workers and allocates anew."""
        for stage, totals in self._stages.items():
            totals.warmup_left = self._settings.warmup_of(stage)
        self.cpu.begin_stage(is_warming_up=self.stage.warmup_left > 0)

    # ---- iterations ----

    def hand_on_to(
        self,
        on_iteration: Callable[[MeasuredIteration], None] | None,
        on_outside: Callable[[MeasuredOutside], None] | None = None,
        current_epoch: Callable[[], int] | None = None,
    ) -> None:
        """Sets the functions that get each counted iteration, and what is measured outside of iterations.

        Iterations are handed on soon after they end or, where the device is timed, when their device times are known.
        """
        self._outside.on_measured = on_outside
        if current_epoch is not None:
            self._outside.current_epoch = current_epoch
        if self._deferred is None:
            self._closed.on_iteration = on_iteration
        else:
            self._deferred.on_iteration = on_iteration

    @property
    def _intervals_to_keep(self) -> int:
        """How many iterations from now on are handed on with the positions of their intervals; 0 or less: none."""
        return INTERVALS_KEPT_ITERATIONS - self.stage.iterations if self._keep_intervals else 0

    def begin_iteration(self) -> None:
        """Opens an iteration. What the user measured since the last one counts as outside of iterations."""
        stage, ledger = self.stage, self._ledger
        if stage.user_measurements:  # first, since what it costs belongs to no iteration
            now = ledger.read()
            if now != self.user.cuts.cut_at_ns:  # else all since the last iteration is in this one
                self._take_user_times_outside(stage, until_ns=now)
                self.user.cuts.forget_places()
        if stage.warmup_left <= 0 and self.cpu.is_due(stage.name):
            self.cpu.begin()
        ledger.begin(self._intervals_to_keep > 0)
        self.user.cuts.begin_iterations(ledger.keeps_intervals)
        self.enter, self.leave = self._inside_edges
        if self._closed_at is not None:
            self.bookkeeping_ns += ledger.begin_ns - self._closed_at
            self._closed_at = None

    def close_iteration(self, at_last: bool = False) -> None:
        """Closes the iteration as of now, or (`at_last`) as of the last phase's end."""
        ledger = self._ledger
        ledger.close(at_last)
        if at_last:
            self.user.cuts.rest()
        self.enter, self.leave = self._outside_edges
        end_ns = ledger.begin_ns + ledger.total_ns
        self._closed_at = None if at_last else end_ns
        self._close_reported_ns = ledger.read() if at_last else end_ns

    def finish_iteration(self) -> None:
        """Does nothing: the callbacks say when an iteration ends."""

    def drop_iteration(self) -> None:
        """Forgets the iteration that is open: it was not completed."""
        if self._deferred is not None:
            self._deferred.timer.drop_iteration()
        self._closed_at = None
        users: Sequence[Measurement] = ()
        now = self._ledger.read()
        if self.user.cuts.of_iteration(now) is None:
            users = self.stage.user_measurements_at(now)
            self.user.cuts.take(users)
        self._ledger.drop()
        self.user.cuts.rest()
        self.enter, self.leave = self._outside_edges
        self.stage.drop_current(users)

    def _keep(self, label: IterationLabel, by_user: MeasuredByUser) -> None:
        """Adds the closed iteration to the figures: at once where the device is timed, else together with others."""
        self._outside.take_first_wait()
        stage, ledger = self.stage, self._ledger
        kept = ledger.keeps_intervals
        closed = stage, label, ledger.begin_ns, ledger.total_ns, ledger.other_ns, ledger.times, by_user, kept
        if isinstance(ledger, DeviceLedger) and self._deferred is not None:
            self._deferred.end_iteration(stage, measure(closed), ledger)
            stage.fold()
        else:
            self._closed.add(closed)

    def _leave_out(self) -> None:
        self._outside.take_first_wait()
        self._closed_at = None  # what is done with warm-up is in no figure, so neither is its cost
        if isinstance(self._ledger, DeviceLedger) and self._deferred is not None:
            self._deferred.end_iteration(self.stage, None, self._ledger)

    def _report_left_open(self, name: str, what: str) -> None:
        # The callbacks are called by Lightning, whose line says nothing of where it was left open.
        self._misuse.report(name, what, consequence=SAMPLE_DROPPED, has_place=False)

    def rest(self) -> None:
        """Ends a stretch of iterations: none follows for now.

        CPU usage is metered for a stretch as a whole, since the CPU's clock is slow to read.
        """
        self._closed_at = None  # until the next one there are hooks, checkpoints and waits, which are not our work
        self.cpu.rest()

    # ---- outside of iterations ----

    def begin_first_data_wait(self, resumed: bool = False) -> None:
        """Begins the wait for an epoch's first batch, or (`resumed`) continues it after `end_first_data_wait`."""
        self._outside.begin_first_wait(resumed)

    def end_first_data_wait(self) -> None:
        """Ends the wait for the first batch, for good or until it is resumed."""
        self._outside.end_first_wait()

    def take_outside(self) -> None:
        """Counts what lies outside of iterations and was not counted yet."""
        self._outside.take_first_wait()
        for stage in self._stages.values():
            self._take_user_times_outside(stage)

    def _take_user_times_outside(self, stage: StageTotals, until_ns: int | None = None) -> None:
        """Counts what the user measured since the stage's last iteration; see `StageTotals.take_user_times_outside`."""
        if self._deferred is not None and stage is self.stage:
            self._deferred.end_outside(stage)
        if self._outside.take_user_times_of(stage, until_ns):
            self._closed.fold(stage)

    # ---- the user's measurements ----

    def _why_no_cpu_usage(self, name: str) -> str | None:
        refusal = super()._why_no_cpu_usage(name)
        if refusal is None and is_phase(name) and name != ITERATION:
            refusal = (
                f"{name!r} is a phase, whose CPU usage is not measured; choose 'iteration' or a measurement of yours"
            )
        return refusal

    # ---- results ----

    @property
    def measured_ns(self) -> int:
        """The time of all measured iterations, in nanoseconds."""
        self.work_off()
        return sum(stage.iterations_ns for stage in self._stages.values())

    @property
    def counts_inside(self) -> CountsInside:
        """How often things were measured inside the iterations."""
        self.work_off()
        stages = self._stages.values()
        phases = sum(stage.phases_passed for stage in stages)
        users = [(m.inside_count, stage.iterations) for stage in stages for m in stage.user_measurements.values()]
        first = sum(min(count, iterations) for count, iterations in users)
        again = sum(count for count, _ in users) - first
        return CountsInside(phases, first, again, iterations=sum(stage.iterations for stage in stages))

    def problems(self) -> list[str]:
        """Returns the reasons why CPU usage or device time is unknown; empty where neither failed."""
        reasons = (self.cpu.reason, None if self._deferred is None else self._deferred.timer.reason)
        return [reason for reason in reasons if reason is not None]

    def release(self, *, device_may_hang: bool = False) -> None:
        """Ends the run: waits once for the last device times, and stops sampling CPU usage.

        Args:
            device_may_hang: Whether to wait for a short time only.
        """
        try:
            self.catch_up()
            self.rest()
            begin = self.clock()
            self.work_off()
            self.bookkeeping_ns += self.clock() - begin
            if self._deferred is not None:
                self._deferred.drain(may_hang=device_may_hang)
        finally:
            self.cpu.stop()


def _new_stage(stage: str, settings: RecorderSettings) -> StageTotals:
    totals = StageTotals(stage, settings.warmup_of(stage))
    for phase in (ITERATION, OTHER):
        _ = totals.phases[phase]  # reported as not measured where all is warm-up
    return totals


def _new_ledger(
    clock: Clock,
    stage: StageTotals,
    device_timer: DeviceTimer[Pending] | None,
    before_reading: Callable[[], None] | None,
) -> Ledger:
    if device_timer is None:
        return Ledger(clock, stage.phases, before_reading)
    return DeviceLedger(clock, stage.phases, device_timer, before_reading)
