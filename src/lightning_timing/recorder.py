"""The recorder behind a Stopwatch: stages, iterations, warm-up and phases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from lightning_timing.clocks import Clock, monotonic_ns
from lightning_timing.closed_iterations import ClosedIterations, measure
from lightning_timing.compiling import compilations_so_far, compiling_probe
from lightning_timing.cpu_choice import CpuChoice
from lightning_timing.deferred import DeferredIterations, Pending
from lightning_timing.device_ledger import DeviceLedger
from lightning_timing.ledger import Ledger
from lightning_timing.measurement import Measurement
from lightning_timing.misuse import NOT_MEASURED, SAMPLE_DROPPED, Misuse
from lightning_timing.names import shown, why_refused
from lightning_timing.no_op import nothing
from lightning_timing.one_time import OneTimeMeasurements
from lightning_timing.outside import Outside
from lightning_timing.parts import Part
from lightning_timing.phases import ITERATION, OTHER, TRAIN, is_phase
from lightning_timing.recording import (
    CountsInside,
    IterationLabel,
    MeasuredByUser,
    MeasuredIteration,
    MeasuredOutside,
    RecorderSettings,
)
from lightning_timing.stage_record import StageRecord
from lightning_timing.user_measurements import UserMeasurements

if TYPE_CHECKING:
    from lightning_timing.device_timer import DeviceTimer
    from lightning_timing.figures import Figures

INTERVALS_KEPT_ITERATIONS: Final = 10_000
"""Iterations of a stage whose intervals are handed on with their positions; later ones have only their sums."""

_STILL_OPEN: Final = (
    "measurement {!r} was still open when its iteration was finished: end it with end_meas, or use `with span(...)`"
)
_NO_LABEL: Final = IterationLabel()


class Recorder:
    """Turns iterations, phases and the user's measurements into the figures of each stage.

    Beyond counting, the work on an iteration is done for several iterations at once.

    Args:
        settings: How to count.
        clock: Monotonic, in nanoseconds.
        has_phases: Whether callbacks report iterations and phases, whose names are then not free for the user; else it
            is a plain loop, in which the user says where an iteration ends.
        keep_intervals: Whether iterations are handed on with the positions of their intervals.
        before_reading: Called before each reading of the clock: synchronizes the device.
        device_timer: Times intervals on the device as well; None: host time only.

    Attributes:
        clock: The clock.
        is_compiling: Says whether torch.compile is tracing.
        stage: The current stage.
        user: The user's measurements.
        one_time: One-time measurements.
        cpu: Which measurement gets CPU usage.
        catch_up: Brings it up to date, where phases are reported to it late.
        enter: Opens a phase, of the given name, inside the one that is open: now, or (`since_last`) as of the last
            boundary, where it was recognised late. Rebound when an iteration opens or closes, so that the hot path
            needs neither a branch nor a further call.
        leave: Closes the phase that is open, for good or (`paused`) to be continued by the next one of its name.
            Rebound likewise.
        rank: Global rank of the process.
        world_size: Number of processes.
        bookkeeping_ns: The time that went into counting iterations and handing them on, in nanoseconds.
    """

    def __init__(
        self,
        settings: RecorderSettings,
        clock: Clock = monotonic_ns,
        *,
        has_phases: bool = False,
        keep_intervals: bool = False,
        before_reading: Callable[[], None] | None = None,
        device_timer: DeviceTimer[Pending] | None = None,
    ) -> None:
        self.clock = clock
        self.is_compiling = compiling_probe()
        self.rank, self.world_size = 0, 1
        self.bookkeeping_ns = 0
        self._settings = settings
        self._has_phases = has_phases
        self._keep_intervals = keep_intervals
        self._syncs = before_reading is not None
        self.catch_up: Callable[[], None] = nothing
        self._stages: dict[str, StageRecord] = {}
        self.stage = self._stages[TRAIN] = self._new_stage(TRAIN)
        self._ledger = _new_ledger(clock, self.stage, device_timer, before_reading)
        self._closed = ClosedIterations()
        self._outside = Outside(self.stage, clock, before_reading, partial(self._closed.work_off, wait=False))
        self._inside_edges = self._ledger.enter, self._ledger.leave
        self._outside_edges = self._outside.enter, self._outside.leave
        self.enter: Callable[..., None]
        self.leave: Callable[..., None]
        self.enter, self.leave = self._outside_edges
        self._deferred = None if device_timer is None else DeferredIterations(device_timer)
        self._misuse = Misuse(settings.on_misuse)
        self._cpu_part = Part("CPU usage", strict=False)
        self.cpu = CpuChoice(clock)
        self.one_time = OneTimeMeasurements(self._ledger.read, self._misuse)
        self.user = UserMeasurements(
            clock,
            before_reading,
            timer=device_timer,
            ledger=self._ledger,
            between=self._outside.ledger,
            cpu=self.cpu,
            misuse=self._misuse,
            stages=self._stages,
            has_phases=has_phases,
        )
        self.user.begin_stage(self.stage)
        self.cpu.begin_stage(is_warming_up=self.stage.warmup_left > 0)
        self._compilations = compilations_so_far()
        self._closed_at: int | None = None
        self._told_ns = 0  # when the close of the iteration was reported
        self._report_every = 1  # is read only where the next one is set
        self._on_report_due: Callable[[], None] | None = None

    # ---- stages ----

    def begin_stage(self, stage: str) -> None:
        """Counts what follows for the given stage. To be called while no iteration is open."""
        self._outside.take_first_wait()
        self._take_users_outside(self.stage)  # now, since the stage may never come again
        if stage not in self._stages:
            self._stages[stage] = self._new_stage(stage)
        self.stage = self._stages[stage]
        self.user.begin_stage(self.stage)
        self._ledger.phases = self.stage.phases
        self._outside.begin_stage(self.stage)
        self.cpu.begin_stage(is_warming_up=self.stage.warmup_left > 0)
        self._compilations = compilations_so_far()

    def _new_stage(self, stage: str) -> StageRecord:
        record = StageRecord(stage, self._settings.warmup_of(stage))
        if self._has_phases:
            for phase in (ITERATION, OTHER):
                _ = record.phases[phase]  # reported as not measured where all is warm-up
        return record

    def restart_warmup(self) -> None:
        """Restarts the warm-up of every stage: a new call of the Trainer starts new workers and allocates anew."""
        for stage, record in self._stages.items():
            record.warmup_left = self._settings.warmup_of(stage)
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

    def report_every(self, iterations: int, on_due: Callable[[], None]) -> None:
        """Calls `on_due` after every `iterations` counted iterations, before the next."""
        self._report_every, self._on_report_due = iterations, on_due

    def stop_reporting(self) -> None:
        """Ends what `report_every` began."""
        self._on_report_due = None

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
                self._take_users_outside(stage, until_ns=now)
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
        self._told_ns = ledger.read() if at_last else end_ns

    def count_iteration(self, label: IterationLabel) -> bool:
        """Counts the iteration that was closed.

        Args:
            label: Its label.

        Returns:
            Whether it was counted; False in warm-up.

        Raises:
            MisuseError: A measurement was still open on this thread, and misuse is to be raised.
        """
        stage, ledger = self.stage, self._ledger
        if not stage.iterations:
            self._recognise_compilation()
        self._outside.take_first_wait()
        by_user = self.user.cuts.of_iteration(self._told_ns)
        users = stage.users_known_by(self._told_ns) if stage.user_measurements and by_user is None else ()
        left_open = self.user.spoil_open(users, last_of_warmup=stage.warmup_left == 1) if users else ()
        counts = not stage.leave_out(users, ledger.total_ns)
        if by_user is None:
            by_user = self.user.cuts.take(users)
        if counts:
            stage.iterations += 1
            self._keep(label, by_user)
        else:
            self._closed_at = None  # what is done with warm-up is in no figure, so neither is its cost
            self.cpu.leave_out(is_warming_up=stage.warmup_left > 0)
            if isinstance(ledger, DeviceLedger) and self._deferred is not None:
                self._deferred.end_iteration(stage, None, ledger)
        if counts:
            self._report_if_due()
        for name in left_open:
            still_open = _STILL_OPEN.format(name)
            # The callbacks are called by Lightning, whose line says nothing of where it was left open.
            self._misuse.report(name, still_open, consequence=SAMPLE_DROPPED, has_place=not self._has_phases)
        return counts

    def _report_if_due(self, newly_counted: int = 1) -> None:
        if self._on_report_due is not None and self.stage.iterations % self._report_every < newly_counted:
            self._on_report_due()

    def drop_iteration(self) -> None:
        """Forgets the iteration that is open: it was not completed."""
        if self._deferred is not None:
            self._deferred.timer.drop_iteration()
        self._closed_at = None
        users: Sequence[Measurement] = ()
        now = self._ledger.read()
        if self.user.cuts.of_iteration(now) is None:
            users = self.stage.users_known_by(now)
            self.user.cuts.take(users)
        self._ledger.drop()
        self.user.cuts.rest()
        self.enter, self.leave = self._outside_edges
        self.stage.drop_current(users)

    def finish_iteration(self) -> None:
        """Ends the iteration of a plain loop and begins the next one.

        Does nothing where the callbacks drive the phases: they say when an iteration ends.
        """
        if self._has_phases:
            return
        if not self._ledger.is_open:
            self._ledger.begin(keep_intervals=False)
        try:
            self.close_iteration()
            self.count_iteration(_NO_LABEL)
        finally:
            self._ledger.begin(keep_intervals=False)

    def _recognise_compilation(self) -> None:
        """Adds this iteration to the warm-up if it compiled. Called only until the first iteration is counted."""
        compilations = compilations_so_far()
        if compilations != self._compilations:
            self._compilations = compilations
            self.stage.warmup_left = max(self.stage.warmup_left, 1)

    def _keep(self, label: IterationLabel, by_user: MeasuredByUser) -> None:
        """Adds the closed iteration to the figures: at once where the device is timed, else together with others."""
        stage, ledger = self.stage, self._ledger
        other_ns = ledger.other_ns if self._has_phases else None
        kept = ledger.keeps_intervals
        closed = stage, label, ledger.begin_ns, ledger.total_ns, other_ns, ledger.times, by_user, kept
        if isinstance(ledger, DeviceLedger) and self._deferred is not None:
            self._deferred.end_iteration(stage, measure(closed), ledger)
            stage.fold()
        else:
            self._closed.add(closed)

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
            self._take_users_outside(stage)

    def _take_users_outside(self, stage: StageRecord, until_ns: int | None = None) -> None:
        """Counts what the user measured since the stage's last iteration; see `StageRecord.take_users_outside`."""
        if self._deferred is not None and stage is self.stage:
            self._deferred.end_outside(stage)
        if self._outside.take_users_of(stage, until_ns):
            self._closed.fold(stage)

    # ---- the user's measurements ----

    def choose_cpu_usage(self, name: str, by_default: bool = False) -> None:
        """Meters the CPU usage of a measurement, or of the whole iteration. Without psutil there is only a warning.

        Args:
            name: The measurement.
            by_default: Whether a later choice may replace this one.

        Raises:
            MisuseError: Another was chosen already, or the name is refused, and misuse is to be raised.
        """
        refusal = why_refused(name)
        if refusal is None and self._has_phases and is_phase(name) and name != ITERATION:
            refusal = (
                f"{name!r} is a phase, whose CPU usage is not measured; choose 'iteration' or a measurement of yours"
            )
        if refusal is not None:
            self._misuse.report(name, refusal, consequence=NOT_MEASURED)
            return
        if not self.cpu.may_be(name):
            taken = f"CPU usage is measured of {self.cpu.name!r} already, and of one measurement only"
            self._misuse.report(name, taken, consequence=f"that of {shown(name)} is not measured")
            return
        with self._cpu_part:
            self.cpu.choose(name, by_default)
        for measurements in self.user.of_all_stages():
            if name in measurements:
                measurements[name].go_unusual()

    # ---- results ----

    def work_off(self) -> None:
        """Adds all iterations counted so far to the figures, and hands them on."""
        self.catch_up()
        self._closed.work_off()

    def figures(self, stage: str | None = None) -> Figures:
        """Returns what has been measured so far, in one stage or (None) in all that were used."""
        from lightning_timing.figures import Figures
        from lightning_timing.summaries import summarize_stage

        self.catch_up()
        with self._closed.worked_off():
            stages = {
                name: summarize_stage(record)
                for name, record in list(self._stages.items())
                if record.was_used and stage in (None, name)
            }
        return Figures(stages, self.one_time.seconds(), self.cpu.result(), self.rank, self.world_size)

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


def _new_ledger(
    clock: Clock,
    stage: StageRecord,
    device_timer: DeviceTimer[Pending] | None,
    before_reading: Callable[[], None] | None,
) -> Ledger:
    if device_timer is None:
        return Ledger(clock, stage.phases, before_reading)
    return DeviceLedger(clock, stage.phases, device_timer, before_reading)
