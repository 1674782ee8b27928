"""The recorder behind a Stopwatch: what is open on which thread, iterations, warm-up, stages and misuse."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from threading import get_ident
from typing import Final, Literal, NamedTuple

from lightning_timing.clocks import Clock, monotonic_ns
from lightning_timing.compiling import compilations_so_far, compiling_probe
from lightning_timing.cpu_usage import CpuUsageMeter
from lightning_timing.errors import MisuseError, TimingError
from lightning_timing.ledger import Interval, Ledger
from lightning_timing.measurement import Measurement, Opening
from lightning_timing.names import caller_place, why_refused
from lightning_timing.phases import FIRST_DATA_WAIT, ITERATION, OTHER, PHASES, TRAIN
from lightning_timing.record import Figures
from lightning_timing.stage_record import StageRecord

MAX_MEASUREMENTS: Final = 1000
"""Different names in one stage; beyond it new ones are refused, since names made up on the way would be a leak."""

INTERVALS_KEPT_ITERATIONS: Final = 10_000
"""Iterations of a stage whose intervals are handed on with their positions; later ones have only their sums."""


@dataclass(frozen=True)
class RecorderSettings:
    """How a recorder counts and how it takes misuse.

    Attributes:
        num_warmup_iters: First iterations of training that are not counted. Of any other stage it is the first one,
            unless this is 0.
        on_misuse: `raise` a MisuseError, or `warn` once for each name and drop the sample.
    """

    num_warmup_iters: int = 10
    on_misuse: Literal["raise", "warn"] = "raise"


class IterationLabel(NamedTuple):
    """What an iteration is known by.

    Attributes:
        epoch: The epoch, from 0.
        batch_idx: The batch's index in its epoch, from 0.
        global_step: Optimizer steps taken when it began.
        samples: The size of its batch; None where it cannot be told.
        skipped: Whether its step returned None.
    """

    epoch: int = 0
    batch_idx: int = 0
    global_step: int = 0
    samples: int | None = None
    skipped: bool = False


class MeasuredIteration(NamedTuple):
    """An iteration that counts, as handed to whoever keeps a record.

    Attributes:
        stage: Its stage.
        label: What it is known by.
        begin_ns: When it began, on the recorder's clock.
        ns: The sum of each measurement's samples, in nanoseconds.
        intervals: Each interval's name, start and end in nanoseconds from `begin_ns`, or None where not kept.
    """

    stage: str
    label: IterationLabel
    begin_ns: int
    ns: dict[str, int]
    intervals: list[Interval] | None


class MeasuredOutside(NamedTuple):
    """Something measured while no iteration was open.

    Attributes:
        stage: Its stage.
        name: The measurement.
        end_ns: When it ended, at the latest, on the recorder's clock.
        ns: How long it took, in nanoseconds.
    """

    stage: str
    name: str
    end_ns: int
    ns: int


class Recorder:
    """Takes starts and ends, and turns them into the figures of each stage.

    Starting and ending a measurement is done by `Stopwatch` on `measurements`, the current stage's, so that the hot
    path costs no further call; all that is out of the ordinary comes here.

    Args:
        settings: How to count.
        clock: Monotonic, in nanoseconds.
        phases_are_taken: Whether the callbacks drive the phases, so that their names are not free for the user.
        keep_intervals: Whether iterations are handed on with the positions of their intervals.
        before_reading: Called before each reading of the clock: synchronizes the device.
    """

    def __init__(
        self,
        settings: RecorderSettings,
        clock: Clock = monotonic_ns,
        *,
        phases_are_taken: bool = False,
        keep_intervals: bool = False,
        before_reading: Callable[[], None] | None = None,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.before_reading = before_reading
        self.is_compiling = compiling_probe()
        self.on_iteration: Callable[[MeasuredIteration], None] | None = None
        self.on_outside: Callable[[MeasuredOutside], None] | None = None
        self.ledger = Ledger(clock, before_reading)
        self._between = Ledger(clock, before_reading)
        self._phases_are_taken = phases_are_taken
        self._keep_intervals = keep_intervals
        self._stages: dict[str, StageRecord] = {}
        self._one_time: dict[str, tuple[int, int | None]] = {}
        self._warned: set[str] = set()
        self._compilations = compilations_so_far()
        self._first_wait_begin = 0
        self._cpu: CpuUsageMeter | None = None
        self._cpu_by_default = False
        self._metered: str | None = None
        self._closed_at: int | None = None
        self.bookkeeping_ns = 0
        self.stage = self._stage_record(TRAIN)
        self.measurements = self.stage.measurements

    # ---- stages ----

    def begin_stage(self, stage: str) -> None:
        """Has what follows counted for the given stage. No iteration is open."""
        self.stage = self._stage_record(stage)
        self.measurements = self.stage.measurements

    def _stage_record(self, stage: str) -> StageRecord:
        record = self._stages.get(stage)
        if record is None:
            record = self._stages[stage] = StageRecord(stage, self._warmup_of(stage))
        return record

    def _warmup_of(self, stage: str) -> int:
        warmup = self.settings.num_warmup_iters
        return warmup if stage == TRAIN else min(warmup, 1)

    def restart_warmup(self) -> None:
        """Has every stage warm up again: a new call of the Trainer starts new workers and allocates anew."""
        for stage, record in self._stages.items():
            record.warmup_left = self._warmup_of(stage)

    # ---- iterations ----

    def begin_iteration(self) -> None:
        """Opens an iteration. What was measured since the last one counts as outside of iterations."""
        self.take_outside()
        if self._metered == ITERATION and self._cpu is not None and self.stage.warmup_left <= 0:
            self._cpu.begin()
        kept = self._keep_intervals and self.stage.iterations < INTERVALS_KEPT_ITERATIONS
        self.ledger.begin(keep_intervals=kept)
        if self._closed_at is not None:
            self.bookkeeping_ns += self.ledger.begin_ns - self._closed_at
            self._closed_at = None

    def end_iteration(self, label: IterationLabel, at_last: bool = False) -> bool:
        """Closes the iteration and counts it.

        Args:
            label: What it is known by.
            at_last: Close it as of the last phase's end instead of now.

        Returns:
            Whether it was counted; False in warm-up.

        Raises:
            MisuseError: A measurement was still open on this thread, and misuse is to be raised.
        """
        stage, ledger = self.stage, self.ledger
        balance = ledger.close(at_last)
        self._closed_at = None if at_last else balance.begin_ns + balance.total_ns
        if self._metered == ITERATION and self._cpu is not None:
            self._cpu.end()
        if self._phases_are_taken:
            stage.phase(OTHER).append(balance.other_ns)
            stage.phase(ITERATION).append(balance.total_ns)
        self._recognise_compilation()
        left_open = self._spoil_open(last_of_warmup=stage.warmup_left == 1)
        ns: dict[str, int] = {}
        counted = stage.warmup_left <= 0
        stage.take(ns, balance.total_ns, label.samples, label.skipped)
        if counted and self.on_iteration is not None:
            self.on_iteration(MeasuredIteration(stage.stage, label, balance.begin_ns, ns, ledger.intervals))
        for name in left_open:
            self.misuse(name, f"measurement {name!r} was still open when its iteration was finished")
        return counted

    def drop_iteration(self) -> None:
        """Forgets the iteration that is open: it was not completed."""
        self._closed_at = None
        self.ledger.drop()
        self.stage.drop_current()

    def finish_iteration(self) -> bool:
        """Ends the iteration of a plain loop and opens the next. Returns whether it was counted."""
        if not self.ledger.frames:
            self.ledger.begin(keep_intervals=False)
        try:
            return self.end_iteration(IterationLabel(batch_idx=self.stage.iterations))
        finally:
            self.ledger.begin(keep_intervals=False)

    def _recognise_compilation(self) -> None:
        """An iteration that compiled is warm-up, as long as none has been counted: later ones are part of the run."""
        compilations = compilations_so_far()
        if compilations != self._compilations:
            self._compilations = compilations
            if not self.stage.iterations:
                self.stage.warmup_left = max(self.stage.warmup_left, 1)

    def _spoil_open(self, last_of_warmup: bool) -> list[str]:
        """Has the samples of this thread's open measurements dropped. Returns their names, unless warm-up just ended."""
        thread = get_ident()
        names = []
        for measurement in self.measurements.values():
            if measurement.opened_by(thread):
                measurement.spoil(thread)
                names.append(measurement.name)
            if last_of_warmup and (measurement.is_open or measurement.openings):
                measurement.go_unusual()
                for opening in measurement.openings.values():
                    opening.spoilt = True
        return [] if last_of_warmup else names

    # ---- outside of iterations ----

    def take_outside(self) -> None:
        """Counts what was measured while no iteration was open."""
        taken = self.stage.take_outside()
        if taken and self.on_outside is not None:
            now = self.clock()
            for name, samples in taken.items():
                for ns in samples:
                    self.on_outside(MeasuredOutside(self.stage.stage, name, now, ns))

    def begin_first_data_wait(self) -> None:
        """The wait for an epoch's first batch begins."""
        self._first_wait_begin = self.ledger.read()

    def end_first_data_wait(self) -> None:
        """Counts the wait for an epoch's first batch. It lies outside the iterations, and is never warm-up."""
        measurement = self.stage.between.get(FIRST_DATA_WAIT)
        if measurement is None:
            measurement = self.stage.between[FIRST_DATA_WAIT] = Measurement(FIRST_DATA_WAIT, inside=False)
        measurement.append(self.ledger.read() - self._first_wait_begin)

    # ---- phases: the callbacks' own measurements ----

    def enter(self, phase: str, since_last: bool = False) -> None:
        """Opens a phase inside the one that is open.

        Args:
            phase: Its name.
            since_last: Open it as of the last boundary instead of now, where what it holds was recognised late.
        """
        ledger = self.ledger
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
        if self.ledger.frames:
            self.ledger.leave(paused)
            return
        self._between.leave(paused)
        if len(self._between.frames) == 1:
            self._between.drop()

    def rename(self, phase: str) -> None:
        """Gives the open phase's time to a part of it, such as `optimizer_step/1`."""
        if self.ledger.frames:
            self.ledger.frames[-1].measurement = self.stage.phase(phase)

    # ---- measurements: what is out of the ordinary ----

    def add(self, name: str) -> Measurement | None:
        """Makes the measurement of a new name in this stage; None, with a warning, for a name that is refused."""
        refusal = why_refused(name)
        if refusal is None and self._phases_are_taken and _is_a_phase(name):
            refusal = f"{name!r} is the name of a phase that the callbacks measure; choose another"
        if refusal is None and len(self.measurements) >= MAX_MEASUREMENTS:
            refusal = (
                f"there are {MAX_MEASUREMENTS} different names already, and no further one is measured; "
                "use fixed names instead of names with numbers in them"
            )
            name = "too many names"
        if refusal is not None:
            self.misuse(str(name)[:80], refusal)
            return None
        if not self._phases_are_taken and not self.ledger.frames:
            self.ledger.begin(keep_intervals=False)
        measurement = Measurement(name, unusual=self.before_reading is not None or name == self._metered)

        def first_sample(ns: int) -> None:
            measurement.append = measurement.current.append
            measurement.parent = self._parent_of(measurement)
            measurement.current.append(ns)

        measurement.append = first_sample
        return self.measurements.setdefault(name, measurement)

    def _parent_of(self, measurement: Measurement) -> str | None:
        """The innermost that was open, on this thread, during the whole of the interval that has just ended."""
        thread, begin = get_ident(), measurement.begin
        parent, parent_begin = None, None
        for other in self.measurements.values():
            if other is not measurement and other.opened_by(thread):
                other_begin = other.begun_at(thread)
                if other_begin <= begin and (parent_begin is None or other_begin >= parent_begin):
                    parent, parent_begin = other.name, other_begin
        if not self._phases_are_taken or not self.ledger.frames or thread != self.ledger.thread:
            return parent
        phase, phase_begin = self.ledger.enclosing(begin)
        if parent_begin is not None and (phase_begin is None or parent_begin >= phase_begin):
            return parent
        return phase if phase is not None else ITERATION if phase_begin is not None else None

    def start_carefully(self, measurement: Measurement, thread: int) -> None:
        """Starts a measurement that is open already, or whose every edge needs more than a reading of the clock."""
        measurement.go_unusual()
        opening = measurement.openings.get(thread)
        if opening is not None:
            opening.spoilt = True
            self.misuse(measurement.name, f"measurement {measurement.name!r} was started twice on thread {thread}")
            return
        if self.before_reading is not None:
            self.before_reading()
        if measurement.name == self._metered and self._cpu is not None and self.stage.warmup_left <= 0:
            self._cpu.begin()
        measurement.openings[thread] = Opening(self.clock())

    def end_carefully(self, name: str, now: int) -> None:
        """Ends a measurement that the fast path does not know as open."""
        thread = get_ident()
        measurement = self._find_open(name, thread)
        if measurement is None:
            self.misuse(
                str(name)[:80], f"measurement {name!r} was ended on thread {thread} without having been started"
            )
            return
        measurement.go_unusual()
        opening = measurement.openings.pop(thread)
        if opening.spoilt:
            return
        if self.before_reading is not None:
            self.before_reading()
            now = self.clock()
        if measurement.name == self._metered and self._cpu is not None:
            self._cpu.end()
        measurement.begin = opening.begin_ns
        measurement.append(now - opening.begin_ns)

    def _find_open(self, name: str, thread: int) -> Measurement | None:
        """The measurement of that name that is open on the thread, in this stage or in the one before it."""
        for stage in (self.stage, *self._stages.values()):
            measurement = stage.measurements.get(name)
            if measurement is not None and (
                thread in measurement.openings or (measurement.is_open and measurement.thread == thread)
            ):
                return measurement
        return None

    # ---- one-time measurements ----

    def start_one_time(self, name: str) -> None:
        """Starts a measurement that is made once; warm-up does not matter to it."""
        refusal = why_refused(name)
        if refusal is None and name not in self._one_time and len(self._one_time) >= MAX_MEASUREMENTS:
            refusal = f"there are {MAX_MEASUREMENTS} one-time measurements already"
        if refusal is None and name in self._one_time:
            refusal = f"one-time measurement {name!r} was started already: a name is measured once"
        if refusal is not None:
            self.misuse(str(name)[:80], refusal)
            return
        self._one_time[name] = (self.ledger.read(), None)

    def end_one_time(self, name: str) -> None:
        """Ends a one-time measurement."""
        begin, end = self._one_time.get(name, (None, None))
        if begin is None or end is not None:
            what = "was ended without having been started" if begin is None else "was ended twice"
            self.misuse(str(name)[:80], f"one-time measurement {name!r} {what}")
            return
        self._one_time[name] = (begin, self.ledger.read())

    # ---- CPU usage ----

    def choose_cpu_usage(self, name: str, by_default: bool = False) -> None:
        """Has the CPU usage of a measurement, or of the whole iteration, metered.

        Args:
            name: The measurement.
            by_default: Whether a later choice may replace this one.

        Raises:
            TimingError: Another was chosen already.
        """
        if self._metered is not None and self._metered != name and not self._cpu_by_default:
            raise TimingError(f"CPU usage is measured of {self._metered!r} already, and of one measurement only")
        if self._metered != name:
            self.release()
            self._cpu = CpuUsageMeter(name, clock=self.clock)
            self._metered, self._cpu_by_default = name, by_default
            for stage in self._stages.values():
                if name in stage.measurements:
                    stage.measurements[name].go_unusual()
        if self._cpu is not None:
            self._cpu.start()

    def release(self) -> None:
        """Lets go of what runs beside the measured code: the sampling of CPU usage."""
        if self._cpu is not None:
            self._cpu.stop()

    # ---- results ----

    def figures(self, stage: str | None = None) -> Figures:
        """What has been measured so far, in one stage or (None) in all that were used."""
        return Figures(
            stages={
                name: record.summary()
                for name, record in self._stages.items()
                if stage in (None, name) and record.was_used
            },
            one_time={n: None if end is None else (end - begin) / 1e9 for n, (begin, end) in self._one_time.items()},
            cpu_usage=None if self._cpu is None else self._cpu.result(),
        )

    @property
    def measured_ns(self) -> int:
        """The time of all measured iterations, in nanoseconds."""
        return sum(stage.iterations_ns for stage in self._stages.values())

    @property
    def boundary_pairs(self) -> int:
        """How many intervals were measured inside them."""
        return sum(
            m.distribution.count for stage in self._stages.values() for m in stage.all_measurements() if m.inside
        )

    def misuse(self, name: str, what: str) -> None:
        """Raises, or warns once for each name.

        Raises:
            MisuseError: If misuse is to be raised.
        """
        message = f"{what} (at {caller_place()})"
        if self.settings.on_misuse == "raise":
            raise MisuseError(message)
        if name not in self._warned and len(self._warned) < MAX_MEASUREMENTS:
            self._warned.add(name)
            warnings.warn(f"{message}; the sample is dropped, and this name is not warned of again", stacklevel=3)


def _is_a_phase(name: str) -> bool:
    return name.partition("/")[0] in PHASES or name in (ITERATION, FIRST_DATA_WAIT)
