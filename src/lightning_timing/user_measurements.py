"""The user's measurements: started and ended at little more than two readings of the clock, and what else they need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

from lightning_timing.clocks import Clock
from lightning_timing.compiling import compiling_probe
from lightning_timing.cpu_choice import CpuChoice
from lightning_timing.failsafe import Failsafe
from lightning_timing.ledger import Ledger
from lightning_timing.measurement import NOBODY, Measurement, Opening
from lightning_timing.misuse import NOT_MEASURED, SAMPLE_DROPPED, Misuse
from lightning_timing.names import MAX_MEASUREMENTS, shown, why_refused
from lightning_timing.no_op import nothing
from lightning_timing.phases import ITERATION, OTHER, is_phase
from lightning_timing.stage_totals import StageTotals
from lightning_timing.user_cuts import UserCuts

if TYPE_CHECKING:
    from lightning_timing.device_timer import DeviceTimer

Measurements = dict[str, Measurement]

_TOO_MANY_NAMES: Final = "more different names than are measured"
_STARTED_TWICE: Final = (
    "measurement {!r} was started twice: a name is open once at a time on a thread; "
    "end it first, or give each level a name of its own"
)
_NOT_STARTED: Final = (
    "measurement {} was ended without having been started on its thread: start it with start_meas before, on the same "
    "thread, or use `with span(...)`"
)


class UserMeasurements:
    """Makes measurements, starts and ends them, and finds what encloses them.

    Args:
        clock: Monotonic, in nanoseconds.
        before_reading: Called before each reading of the clock, where the device is to be synchronized.
        timer: Times intervals on the device as well; None: host time only.
        ledger: The phases of the iteration that is open.
        between: The phases that are open while no iteration is; None in a plain loop, which has none and leaves their
            names to the user.
        cpu: Knows which measurement gets CPU usage.
        misuse: Told of what is used out of order.
        stages: All stages so far, by name.

    Attributes:
        is_compiling: Says whether torch.compile is tracing.
        failsafe: Takes failures to measure.
        catch_up: Brings the ledger up to date, where phases are reported to it late.
        cuts: Assigns what was measured to iterations.
    """

    __slots__ = (
        "_before_reading",
        "_between",
        "_clock",
        "_cpu",
        "_ledger",
        "_measurements",
        "_misuse",
        "_names_refused",
        "_stages",
        "_timer",
        "catch_up",
        "cuts",
        "failsafe",
        "is_compiling",
    )

    def __init__(
        self,
        clock: Clock,
        before_reading: Callable[[], None] | None,
        *,
        timer: DeviceTimer[Any] | None,
        ledger: Ledger,
        between: Ledger | None,
        cpu: CpuChoice,
        misuse: Misuse,
        stages: Mapping[str, StageTotals],
    ) -> None:
        self.is_compiling = compiling_probe()
        self.failsafe = Failsafe("the Stopwatch", strict=True)
        self.catch_up: Callable[[], None] = nothing
        self._clock = clock
        self._before_reading = before_reading
        self._timer = timer
        self._ledger = ledger
        self._between = between
        self._cpu = cpu
        self._misuse = misuse
        self._stages = stages
        self._names_refused = False
        self._measurements: Measurements = {}
        self.cuts = UserCuts(always_in_iteration=between is None)

    def begin_stage(self, stage: StageTotals) -> None:
        """Measures what follows for a stage, whose loop runs on this thread."""
        self._measurements = stage.user_measurements
        self.cuts.begin_stage()

    def of_all_stages(self) -> Iterator[Measurements]:
        """Yields the measurements of each stage, those of the current one first."""
        yield self._measurements
        for stage in list(self._stages.values()):  # another thread may ask while this one begins a stage
            if stage.user_measurements is not self._measurements:
                yield stage.user_measurements

    # ---- the hot path ----

    def start(self, name: str) -> None:
        """Starts a measurement: as in `Stopwatch.start_meas`."""
        is_compiling, clock = self.is_compiling, self._clock
        if is_compiling():
            return
        try:
            try:
                measurement = self._measurements[name]
            except (KeyError, TypeError):
                added = self.add(name)
                if added is None:
                    return
                measurement = added
            thread = get_ident()
            now = clock()
            # Nothing is called between this test and the two stores, so no other thread can come in between.
            if measurement.thread:
                self._start_unusual(measurement, thread)
                return
            measurement.begin_ns = now
            measurement.thread = thread
        except Exception as error:  # noqa: BLE001  # whatever it is: a timer must not end what it times
            self.failsafe.fail(error)

    def end(self, name: str) -> None:
        """Ends a measurement: as in `Stopwatch.end_meas`."""
        is_compiling, clock = self.is_compiling, self._clock
        if is_compiling():
            return
        try:
            now = clock()
            try:
                measurement = self._measurements[name]
            except (KeyError, TypeError):
                self._end_unusual(name, now)
                return
            thread = get_ident()
            if measurement.thread != thread:
                self._end_unusual(name, now)
                return
            measurement.thread = NOBODY
            append = measurement.append
            append(now - measurement.begin_ns)
        except Exception as error:  # noqa: BLE001  # whatever it is: a timer must not end what it times
            self.failsafe.fail(error)

    # ---- what is out of the ordinary ----

    def add(self, name: str) -> Measurement | None:
        """Makes the measurement of a new name; None for a name that is refused, after misuse was reported."""
        self.catch_up()
        refusal = self._why_refused(name)
        if refusal is not None:
            self._misuse.report(name, refusal, consequence=NOT_MEASURED)
            return None
        measurements = self._measurements
        if len(measurements) >= MAX_MEASUREMENTS:
            self._names_refused = True
            self._misuse.report(
                _TOO_MANY_NAMES,
                f"{shown(name)} is not measured, since there are {MAX_MEASUREMENTS} different names already; "
                "use fixed names instead of names with numbers in them",
                consequence="no further name is measured",
            )
            return None
        if self._between is None and not self._ledger.is_open:
            # A plain loop's first iteration begins with its first measurement.
            self._ledger.begin(keep_intervals=False)
        every_edge_does_more = self._before_reading is not None or self._timer is not None
        measurement = Measurement(name, unusual=every_edge_does_more or name == self._cpu.name)
        measurement.known_since_ns = self._clock()

        def first_sample(ns: int) -> None:
            # What encloses a measurement is looked for when its first interval in an iteration ends, and never again.
            self.catch_up()
            if self._ledger.is_open:
                measurement.append = placed_sample
            measurement.parent = self._parent_of(measurement, list(measurements.values()))
            placed_sample(ns)

        def placed_sample(ns: int) -> None:
            if self.cuts.are_placed:
                self.cuts.place(name, measurement.begin_ns, measurement.begin_ns + ns)
            elif self.cuts.are_placed is not None:
                measurement.append = measurement.current.append
            measurement.current.append(ns)

        measurement.append = first_sample
        return measurements.setdefault(name, measurement)

    def _why_refused(self, name: str) -> str | None:
        refusal = why_refused(name)
        if refusal is not None:
            return refusal
        if self._between is not None and is_phase(name):
            return f"{name!r} is the name of a phase that the callbacks measure; choose another"
        return None

    def _parent_of(self, measurement: Measurement, others: Iterable[Measurement]) -> str | None:
        """Returns the innermost measurement or phase that was open, on this thread, throughout the last interval.

        An interval in which a phase began or ended, such as the whole update of an optimizer in manual optimization, is
        in the iteration instead: the phase around it does not have all of its time.
        """
        thread, begin = get_ident(), measurement.begin_ns
        enclosing = [
            (other.begun_at(thread), other.name)
            for other in others
            if other is not measurement and other.opened_by(thread) and other.begun_at(thread) <= begin
        ]
        innermost = max(enclosing, key=lambda beginning: beginning[0], default=None)
        ledger = self._ledger if self._ledger.is_open else self._between
        if self._between is not None and ledger is not None and thread == ledger.thread:
            phase, phase_begin = ledger.enclosing(begin)
            is_known = phase is not None or ledger is self._ledger
            if is_known and phase_begin is not None and (innermost is None or innermost[0] < phase_begin):
                if ledger.last_ns > begin:
                    return ITERATION if ledger is self._ledger else None
                return phase or OTHER
        return None if innermost is None else innermost[1]

    def _start_unusual(self, measurement: Measurement, thread: int) -> None:
        """Starts a measurement that is open already, or whose every edge needs more than a reading of the clock."""
        measurement.go_unusual()
        opening = measurement.openings.get(thread)
        if opening is not None:
            opening.spoilt = True
            self._drop_cpu_usage_of(measurement)
            twice = _STARTED_TWICE.format(measurement.name)
            self._misuse.report(measurement.name, twice, consequence=SAMPLE_DROPPED)
            return
        if self._before_reading is not None:
            self._before_reading()
        if measurement.name == self._cpu.name and not self._cpu.is_warming_up:
            self._cpu.begin()
        mark = None if self._timer is None else self._timer.mark()
        measurement.openings[thread] = Opening(self._clock(), mark=mark)

    def _end_unusual(self, name: str, now: int) -> None:
        """Ends a measurement that the fast path does not know as open: perhaps it was started in another stage."""
        thread = get_ident()
        measurement = _open_on(thread, self.of_all_stages(), name)
        if measurement is None:
            about = _TOO_MANY_NAMES if self._names_refused else name
            self._misuse.report(about, _NOT_STARTED.format(shown(name)), consequence=NOT_MEASURED)
            return
        measurement.go_unusual()
        opening = measurement.openings.pop(thread)
        if opening.spoilt:
            return
        if self._before_reading is not None:
            self._before_reading()
            now = self._clock()
        if self._timer is not None and opening.mark is not None:
            self._timer.add(name, (opening.mark, self._timer.mark()))
        if name == self._cpu.name:
            self._cpu.end()
        measurement.begin_ns = opening.begin_ns
        measurement.append(now - opening.begin_ns)

    def _drop_cpu_usage_of(self, measurement: Measurement) -> None:
        if measurement.name == self._cpu.name:
            self._cpu.drop()

    def spoil_open(self, measurements: Iterable[Measurement], last_of_warmup: bool) -> list[str]:
        """Marks this thread's open measurements: their samples are dropped, since their iteration is over.

        Measurements that other threads have open go on, unless warm-up just ended: what began in it does not count.

        Returns:
            The names of this thread's open measurements; empty where warm-up just ended, since to span that is no
            misuse.
        """
        names = []
        for measurement in measurements:
            if not measurement.is_open_on_any:
                continue
            thread = get_ident()
            if measurement.opened_by(thread):
                measurement.spoil(thread)
                self._drop_cpu_usage_of(measurement)
                names.append(measurement.name)
            if last_of_warmup:
                measurement.go_unusual()
                for opening in list(measurement.openings.values()):
                    opening.spoilt = True
        return [] if last_of_warmup else names


def _open_on(thread: int, stages: Iterable[Measurements], name: str) -> Measurement | None:
    if not isinstance(name, str):
        return None
    for measurements in stages:
        measurement = measurements.get(name)
        if measurement is not None and measurement.is_open_on(thread):
            return measurement
    return None
