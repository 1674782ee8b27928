"""The recorder behind a Stopwatch: stages, iterations, warm-up and phases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from lightning_timing.clocks import Clock, monotonic_ns
from lightning_timing.compiling import compilations_so_far, compiling_probe
from lightning_timing.cpu_choice import CpuChoice
from lightning_timing.deferred import DeferredIterations, Pending
from lightning_timing.device_ledger import DeviceLedger
from lightning_timing.device_timer import DeviceTimer
from lightning_timing.ledger import Balance, Ledger
from lightning_timing.measurement import Measurement
from lightning_timing.misuse import Misuse
from lightning_timing.names import shown
from lightning_timing.one_time import OneTimeMeasurements
from lightning_timing.parts import Part
from lightning_timing.phases import FIRST_DATA_WAIT, ITERATION, OTHER, TRAIN
from lightning_timing.record import Figures
from lightning_timing.recording import IterationLabel, MeasuredIteration, MeasuredOutside, RecorderSettings
from lightning_timing.stage_record import StageRecord
from lightning_timing.user_measurements import Measurements, UserMeasurements

INTERVALS_KEPT_ITERATIONS: Final = 10_000
"""Iterations of a stage whose intervals are handed on with their positions; later ones have only their sums."""


class Recorder:
    """Turns iterations, phases and the user's measurements into the figures of each stage.

    A measurement is started and ended by `Stopwatch` on `measurements`, the current stage's, so that the hot path
    costs no further call; what is out of the ordinary goes to `user`.

    Args:
        settings: How to count.
        clock: Monotonic, in nanoseconds.
        phases_are_taken: Whether the callbacks drive the phases, so that their names are not free for the user.
        keep_intervals: Whether iterations are handed on with the positions of their intervals.
        before_reading: Called before each reading of the clock: synchronizes the device.
        device_timer: Times intervals on the device as well; None: host time only.

    Attributes:
        clock: The clock.
        is_compiling: Whether torch.compile is tracing.
        stage: The current stage.
        measurements: The user's measurements in it.
        user: Takes what is out of the ordinary with them.
        one_time: One-time measurements.
        cpu: Which measurement gets CPU usage.
        on_outside: Told of what was measured while no iteration was open.
        bookkeeping_ns: The time between iterations that went into counting and handing them on, in nanoseconds.
    """

    def __init__(
        self,
        settings: RecorderSettings,
        clock: Clock = monotonic_ns,
        *,
        phases_are_taken: bool = False,
        keep_intervals: bool = False,
        before_reading: Callable[[], None] | None = None,
        device_timer: DeviceTimer[Pending] | None = None,
    ) -> None:
        self.clock = clock
        self.is_compiling = compiling_probe()
        self.on_outside: Callable[[MeasuredOutside], None] | None = None
        self.bookkeeping_ns = 0
        self._settings = settings
        self._phases_are_taken = phases_are_taken
        self._keep_intervals = keep_intervals
        self._on_iteration: Callable[[MeasuredIteration], None] | None = None
        self._ledger = (
            Ledger(clock, before_reading) if device_timer is None else DeviceLedger(clock, device_timer, before_reading)
        )
        self._between = Ledger(clock, before_reading)
        self._deferred = None if device_timer is None else DeferredIterations(device_timer)
        self._misuse = Misuse(settings.on_misuse)
        self._cpu_part = Part("CPU usage", strict=False)
        self.cpu = CpuChoice(clock)
        self.one_time = OneTimeMeasurements(self._ledger.read, self._misuse)
        self.user = UserMeasurements(
            clock, before_reading, device_timer, self._ledger, self.cpu, self._misuse, phases_are_taken
        )
        self._compilations = compilations_so_far()
        self._first_wait_begin = 0
        self._first_wait: tuple[int, int] | None = None
        self._balance = Balance(0, 0, 0)
        self._closed_at: int | None = None
        self._stages: dict[str, StageRecord] = {}
        self.stage: StageRecord
        self.measurements: Measurements
        self.begin_stage(TRAIN)

    # ---- stages ----

    def begin_stage(self, stage: str) -> None:
        """Has what follows counted for the given stage. No iteration is open."""
        if self._stages:
            self._take_outside_of(self.stage)  # now, since the stage may never come again
        if stage not in self._stages:
            self._stages[stage] = StageRecord(stage, self._warmup_of(stage))
        self.stage = self._stages[stage]
        self.measurements = self.stage.measurements

    def _warmup_of(self, stage: str) -> int:
        warmup = self._settings.num_warmup_iters
        return warmup if stage == TRAIN else min(warmup, 1)

    def restart_warmup(self) -> None:
        """Has every stage warm up again: a new call of the Trainer starts new workers and allocates anew."""
        for stage, record in self._stages.items():
            record.warmup_left = self._warmup_of(stage)

    def all_measurements(self) -> Iterator[Measurements]:
        """The user's measurements of each stage, the current one's first."""
        yield self.measurements
        for stage in list(self._stages.values()):  # another thread may ask while this one begins a stage
            if stage is not self.stage:
                yield stage.measurements

    # ---- iterations ----

    def hand_on_to(self, on_iteration: Callable[[MeasuredIteration], None] | None) -> None:
        """Has each iteration that counts handed on: at once, or where the device is timed, when that is known."""
        if self._deferred is None:
            self._on_iteration = on_iteration
        else:
            self._deferred.on_iteration = on_iteration

    def begin_iteration(self) -> None:
        """Opens an iteration. What the user measured since the last one counts as outside of iterations."""
        self._take_users_outside(self.stage)
        if self.cpu.name == ITERATION and self.stage.warmup_left <= 0:
            self.cpu.begin()
        kept = self._keep_intervals and self.stage.iterations < INTERVALS_KEPT_ITERATIONS
        self._ledger.begin(keep_intervals=kept)
        if self._closed_at is not None:
            self.bookkeeping_ns += self._ledger.begin_ns - self._closed_at
            self._closed_at = None

    def close_iteration(self, at_last: bool = False) -> None:
        """Closes the iteration as of now, or (`at_last`) as of the last phase's end."""
        self._balance = self._ledger.close(at_last)
        self._closed_at = None if at_last else self._balance.begin_ns + self._balance.total_ns
        if self.cpu.name == ITERATION:
            self.cpu.end()

    def count_iteration(self, label: IterationLabel) -> bool:
        """Counts the iteration that was closed, and hands it on.

        Args:
            label: What it is known by.

        Returns:
            Whether it was counted; False in warm-up.

        Raises:
            MisuseError: A measurement was still open on this thread, and misuse is to be raised.
        """
        stage, ledger, balance = self.stage, self._ledger, self._balance
        if self._phases_are_taken:
            stage.phase(OTHER).append(balance.other_ns)
            stage.phase(ITERATION).append(balance.total_ns)
        self._recognise_compilation()
        self._take_between(self.stage)
        left_open = self.user.spoil_open(list(self.measurements.values()), last_of_warmup=stage.warmup_left == 1)
        ns = stage.take(balance.total_ns, label.samples, label.skipped)
        measured = None if ns is None else MeasuredIteration(stage.stage, label, balance.begin_ns, ns, ledger.intervals)
        if self._deferred is not None and isinstance(ledger, DeviceLedger):
            self._deferred.end_iteration(stage, measured, ledger)
        elif self._on_iteration is not None and measured is not None:
            self._on_iteration(measured)
        for name in left_open:
            self._misuse.report(name, f"measurement {name!r} was still open when its iteration was finished")
        return measured is not None

    def drop_iteration(self) -> None:
        """Forgets the iteration that is open: it was not completed."""
        if self._deferred is not None:
            self._deferred.timer.drop_iteration()
        self._closed_at = None
        self._ledger.drop()
        self.stage.drop_current()

    def finish_iteration(self, when_counted: Callable[[], None]) -> None:
        """Ends the iteration of a plain loop, where one follows the other.

        Does nothing where the callbacks say when an iteration ends.

        Args:
            when_counted: Called if it was counted, before the next one begins.
        """
        if self._phases_are_taken:
            return
        if not self._ledger.frames:
            self._ledger.begin(keep_intervals=False)
        try:
            self.close_iteration()
            if self.count_iteration(IterationLabel(batch_idx=self.stage.iterations)):
                when_counted()
        finally:
            self._ledger.begin(keep_intervals=False)

    def _recognise_compilation(self) -> None:
        """An iteration that compiled is warm-up, as long as none has been counted: later ones are part of the run."""
        compilations = compilations_so_far()
        if compilations != self._compilations:
            self._compilations = compilations
            if not self.stage.iterations:
                self.stage.warmup_left = max(self.stage.warmup_left, 1)

    # ---- phases: the callbacks' own measurements ----

    def enter(self, phase: str, since_last: bool = False) -> None:
        """Opens a phase inside the one that is open.

        Args:
            phase: Its name.
            since_last: Open it as of the last boundary instead of now, where what it holds was recognised late.
        """
        ledger = self._ledger
        if ledger.frames:
            phases = self.stage.phases
            ledger.enter(phases[phase] if phase in phases else self.stage.phase(phase), since_last)
            return
        if not self._between.frames:
            self._between.begin(keep_intervals=False)
        self._between.enter(self.stage.between_iterations(phase))

    def leave(self, paused: bool = False) -> None:
        """Closes the phase that is open.

        Args:
            paused: Keep its time for the next interval of the same phase, which continues this one.
        """
        if self._ledger.frames:
            self._ledger.leave(paused)
        else:
            self._leave_between(paused)

    def _leave_between(self, paused: bool) -> None:
        measurement = self._between.frames[-1].measurement
        self._between.leave(paused)
        if len(self._between.frames) == 1:
            self._between.drop()
        while measurement is not None and not paused:
            self._hand_on_outside(self.stage, measurement.name, measurement.current[-1], self._between.last_ns)
            measurement = measurement.whole

    # ---- outside of iterations ----

    def take_outside(self) -> None:
        """Counts the phases between the iterations, and what the user measured there."""
        self._take_outside_of(self.stage)
        for stage in self._stages.values():
            self._take_outside_of(stage)

    def _take_outside_of(self, stage: StageRecord) -> None:
        self._take_between(stage)
        self._take_users_outside(stage)

    def _take_between(self, stage: StageRecord) -> None:
        stage.take_between()
        if self._first_wait is not None:
            begin, end = self._first_wait
            self._hand_on_outside(stage, FIRST_DATA_WAIT, end - begin, end)
            self._first_wait = None

    def _take_users_outside(self, stage: StageRecord) -> None:
        for measurement, samples in stage.take_users_outside():
            for ns in samples:
                # Of several since the last iteration only the last one's beginning is known.
                self._hand_on_outside(stage, measurement.name, ns, measurement.begin + ns)

    def _hand_on_outside(self, stage: StageRecord, name: str, ns: int, end_ns: int) -> None:
        if self.on_outside is not None:
            self.on_outside(MeasuredOutside(stage.stage, name, end_ns, ns))

    def begin_first_data_wait(self, resumed: bool = False) -> None:
        """The wait for an epoch's first batch begins.

        Args:
            resumed: Or rather, it was not over when `end_first_data_wait` was called.
        """
        if not resumed or self._first_wait is None:
            self._first_wait_begin = self._ledger.read()
        else:
            self.stage.between[FIRST_DATA_WAIT].current.pop()

    def end_first_data_wait(self) -> None:
        """Counts the wait for an epoch's first batch. It lies outside the iterations, and is never warm-up."""
        between = self.stage.between
        if FIRST_DATA_WAIT not in between:
            between[FIRST_DATA_WAIT] = Measurement(FIRST_DATA_WAIT, inside=False)
        now = self._ledger.read()
        self._first_wait = self._first_wait_begin, now
        between[FIRST_DATA_WAIT].append(now - self._first_wait_begin)

    # ---- the user's measurements ----

    def add(self, name: str) -> Measurement | None:
        """Makes the measurement of a new name in this stage; None where the name is refused."""
        measurement = self.user.add(self.measurements, name)
        if measurement is not None and not self._phases_are_taken and not self._ledger.frames:
            # A plain loop's first iteration begins with its first measurement.
            self._ledger.begin(keep_intervals=False)
        return measurement

    def choose_cpu_usage(self, name: str, by_default: bool = False) -> None:
        """Has the CPU usage of a measurement, or of the whole iteration, metered. Without psutil there is a warning.

        Args:
            name: The measurement.
            by_default: Whether a later choice may replace this one.

        Raises:
            MisuseError: Another was chosen already, and misuse is to be raised.
        """
        if not self.cpu.may_be(name):
            taken = f"CPU usage is measured of {self.cpu.name!r} already, and of one measurement only"
            self._misuse.report(name, taken, consequence=f"that of {shown(name)} is not measured")
            return
        with self._cpu_part:
            self.cpu.choose(name, by_default)
        for measurements in self.all_measurements():
            if name in measurements:
                measurements[name].go_unusual()

    # ---- results ----

    def figures(self, stage: str | None = None) -> Figures:
        """What has been measured so far, in one stage or (None) in all that were used."""
        return Figures(
            stages={
                name: record.summary()
                for name, record in list(self._stages.items())
                if record.was_used and stage in (None, name)
            },
            one_time=self.one_time.seconds(),
            cpu_usage=self.cpu.result(),
        )

    @property
    def measured_ns(self) -> int:
        """The time of all measured iterations, in nanoseconds."""
        return sum(stage.iterations_ns for stage in self._stages.values())

    @property
    def intervals_measured(self) -> int:
        """How many intervals were measured inside them."""
        stages = self._stages.values()
        return sum(m.distribution.count for stage in stages for m in stage.all_measurements() if m.inside)

    def problems(self) -> list[str]:
        """Why a part went off or has no figures, if any did."""
        reasons = (self.cpu.reason, None if self._deferred is None else self._deferred.timer.reason)
        return [reason for reason in reasons if reason is not None]

    def release(self) -> None:
        """The run ends: waits once for the device's last times, and ends what runs beside the measured code."""
        if self._deferred is not None:
            self._deferred.drain()
        self.cpu.stop()
