"""The figures of one stage as they grow: its measurements, its iterations, its warm-up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import add
from typing import TYPE_CHECKING, Any

from lightning_timing.distribution import EXACT_INTERVALS, Distribution
from lightning_timing.ledger import PhaseTime
from lightning_timing.measured_iterations import IterationLabel
from lightning_timing.measurement import Measurement, UserTimes
from lightning_timing.phases import BETWEEN, ITERATION, OTHER, place_in_loop, whole_of

if TYPE_CHECKING:
    from lightning_timing.device_timer import DeviceTimes


class StageTotals:
    """Measurements and iterations of one stage, added up as the run goes on. What is written to disk is in `record`.

    Attributes:
        name: Its name.
        warmup_left: Iterations that are still to be left out.
        warmup_iterations: Iterations left out so far.
        warmup_ns: The time they took, in nanoseconds.
        iterations: Iterations measured.
        iterations_taken: Those already in the figures; the attributes below cover these alone.
        iterations_ns: The time they took, in nanoseconds.
        samples: The sizes of their batches, added up; None once one could not be told.
        skipped_batches: Batches for which the step returned None.
        host_ahead: How far the host was ahead of the device at the ends of iterations.
        user_measurements: The user's, by name.
        phases: The callbacks' own, inside iterations, by phase.
        between: The same phases while no iteration is open.
    """

    def __init__(self, name: str, warmup_iterations: int) -> None:
        self.name = name
        self.warmup_left = warmup_iterations
        self.warmup_iterations = 0
        self.warmup_ns = 0
        self.iterations = 0
        self.iterations_taken = 0
        self.iterations_ns = 0
        self.samples: int | None = 0
        self.skipped_batches = 0
        self.host_ahead = Distribution()
        self.user_measurements: dict[str, Measurement] = {}
        self.phases: dict[str, Measurement] = _Phases(parent=ITERATION, inside=True)
        self.between: dict[str, Measurement] = _Phases(BETWEEN, inside=False)

    @property
    def was_used(self) -> bool:
        """Whether anything happened in the stage."""
        return bool(self.iterations or self.warmup_iterations or self.user_measurements or self.between)

    @property
    def phases_passed(self) -> int:
        """How many intervals of phases the iterations had: those of a whole, such as `callbacks`, are its parts'."""
        wholes = {whole.name for phase in self.phases.values() for whole in phase.counted_in[1:]}
        no_intervals = {ITERATION, OTHER, *wholes}
        return sum(phase.inside_count for name, phase in self.phases.items() if name not in no_intervals)

    def all_measurements(self) -> Iterator[Measurement]:
        """Every measurement, in the order of the loop: phases, the user's, then what lies between iterations."""
        yield from sorted(self.phases.values(), key=lambda m: (place_in_loop(m.name), m.name))
        yield from list(self.user_measurements.values())
        yield from list(self.between.values())

    def user_measurements_at(self, moment_ns: int | None = None) -> list[Measurement]:
        """Returns the user's measurements; with `moment_ns`, only those that existed at that moment on the clock.

        Another thread may make a measurement while iterations that ended earlier are still to be counted.
        """
        measurements = list(self.user_measurements.values())  # or while this is copied
        return [m for m in measurements if moment_ns is None or m.known_since_ns <= moment_ns]

    def leave_out(self, users: Iterable[Measurement], iteration_ns: int) -> bool:
        """Forgets the iteration that is complete if it belongs to the warm-up. Returns whether it does.

        Args:
            users: The user's measurements that may have samples in it.
            iteration_ns: How long it took, in nanoseconds.
        """
        if self.warmup_left <= 0:
            return False
        self.warmup_left -= 1
        self.warmup_iterations += 1
        self.warmup_ns += iteration_ns
        self.drop_current(users)
        return True

    def take(
        self,
        label: IterationLabel,
        iteration_ns: int,
        other_ns: int | None,
        of_phases: Sequence[PhaseTime],
        of_users: Sequence[UserTimes],
    ) -> dict[str, int]:
        """Adds a counted iteration to the figures.

        Args:
            label: Its label.
            iteration_ns: How long it took, in nanoseconds.
            other_ns: What no phase claimed of it, in nanoseconds; None where there are no phases.
            of_phases: The times of the phases.
            of_users: The times of the user's measurements.

        Returns:
            The sum of each measurement's samples in it, in nanoseconds.
        """
        self.iterations_taken += 1
        self.iterations_ns += iteration_ns
        self.samples = None if self.samples is None or label.samples is None else self.samples + label.samples
        self.skipped_batches += label.skipped
        ns_by_name = {} if other_ns is None else {ITERATION: iteration_ns, OTHER: other_ns}
        for phase, ns in ns_by_name.items():
            self.phases[phase].distribution.pending.append(ns)
        for measurement, own_ns, _, _ in of_phases:
            if own_ns is None:
                continue
            for counted in measurement.counted_in:
                name = counted.name
                ns_by_name[name] = ns_by_name[name] + own_ns if name in ns_by_name else own_ns
                counted.distribution.pending.append(own_ns)
        for measurement, taken in of_users:
            ns_by_name[measurement.name] = sum(taken)
            measurement.distribution.pending.extend(taken)
        return ns_by_name

    def take_alike(
        self,
        labels: Sequence[IterationLabel],
        iterations_ns: Sequence[int],
        others_ns: Sequence[int],
        of_phases: Sequence[tuple[Measurement, Sequence[int]]],
    ) -> dict[str, Sequence[int]]:
        """Adds several counted iterations to the figures. Each has one sample for each entry of `of_phases`.

        Args:
            labels: The label of each.
            iterations_ns: How long each took, in nanoseconds.
            others_ns: What no phase claimed of each, in nanoseconds.
            of_phases: Measurements of phases, each with its times in the iterations. A measurement may recur.

        Returns:
            The sum of each measurement's samples in each iteration, in nanoseconds.
        """
        self.iterations_taken += len(labels)
        self.iterations_ns += sum(iterations_ns)
        sizes = [label.samples for label in labels]
        self.samples = None if self.samples is None or None in sizes else sum(filter(None, sizes), self.samples)
        self.skipped_batches += sum(label.skipped for label in labels)
        ns_by_name: dict[str, Sequence[int]] = {}
        whole_and_other = (self.phases[ITERATION], iterations_ns), (self.phases[OTHER], others_ns)
        for measurement, ns in (*whole_and_other, *of_phases):
            for counted in measurement.counted_in:
                known = ns_by_name.get(counted.name)
                ns_by_name[counted.name] = ns if known is None else list(map(add, known, ns))
                counted.distribution.pending.extend(ns)
        return ns_by_name

    def fold(self) -> None:
        """Folds samples into their distributions, to bound the memory. To be called after every few iterations.

        All measurements get full at the same iteration, so one call folds only some of them: a little more than an
        eighth, which is enough where up to 64 iterations with one sample each come between two calls. One that has
        twice as many samples as it should is folded in any case.
        """
        left = 1 + len(self.phases) // 8 + len(self.user_measurements) // 8
        for measurements in (self.phases, self.user_measurements):
            for measurement in list(measurements.values()):  # another thread may add one meanwhile
                distribution = measurement.distribution
                if left > 0 or len(distribution.pending) > 2 * EXACT_INTERVALS:
                    left -= distribution.fold_if_full()

    def take_user_times_outside(self, until_ns: int | None = None) -> list[UserTimes]:
        """Counts what the user measured while no iteration was open, unless it was in warm-up.

        Args:
            until_ns: Count only measurements that existed at this moment on the clock; None: all.

        Returns:
            The samples, in nanoseconds.
        """
        taken = [m for m in self.user_measurements_at(until_ns) if m.current]
        if self.warmup_left > 0:
            for measurement in taken:
                measurement.take_current()
            return []
        return [(measurement, _count_outside(measurement)) for measurement in taken]

    def take_device_times(self, times: DeviceTimes[Any], *, of_iteration: bool) -> None:
        """Counts device times, which are known once the device has reached the end of what was timed.

        Args:
            times: The device times.
            of_iteration: Whether they are those of an iteration, or of what lay between two.
        """
        for name in {*times.samples_ns, *times.untimed}:
            measurement = self.phases.get(name) or self.user_measurements.get(name)
            if measurement is not None:
                measurement.device = measurement.device or Distribution()
                measurement.device.pending.extend(times.samples_ns.get(name, ()))
                measurement.device.fold_if_full()
                measurement.device_untimed += times.untimed.get(name, 0)
                if name in times.overlapped_ns:
                    overlapped_ns = (measurement.device_overlapped_ns or 0) + times.overlapped_ns[name]
                    measurement.device_overlapped_ns = overlapped_ns
        if of_iteration and times.ahead_ns is not None:
            self.host_ahead.pending.append(times.ahead_ns)
            self.host_ahead.fold_if_full()

    def drop_current(self, users: Iterable[Measurement]) -> None:
        """Forgets the samples of an iteration that does not count.

        Args:
            users: The user's measurements that may have samples in it.
        """
        for phase in list(self.phases.values()):
            phase.carried = 0
        for measurement in users:
            measurement.take_current()


def _count_outside(measurement: Measurement) -> list[int]:
    taken = measurement.take_current()
    measurement.outside_count += len(taken)
    measurement.outside_ns += sum(taken)
    measurement.distribution.pending.extend(taken)  # and not folded here, as another thread may be folding it
    return taken


class _Phases(dict[str, Measurement]):
    """The measurements of phases, each made when it is first looked up. With a part, its whole is made as well.

    Args:
        group: What their names begin with.
        parent: The name of what encloses all of them.
        inside: Whether they lie inside the iterations.
    """

    def __init__(self, group: str = "", parent: str | None = None, *, inside: bool) -> None:
        super().__init__()
        self._group = group
        self._parent = parent
        self._inside = inside

    def __missing__(self, phase: str) -> Measurement:
        whole_phase = whole_of(phase)
        whole = None if whole_phase is None else self[whole_phase]
        parent = self._parent if whole is None else whole.name
        made = Measurement(self._group + phase, None if phase == parent else parent, inside=self._inside)
        if whole is not None:
            made.counted_in += whole.counted_in
        self[phase] = made
        return made
