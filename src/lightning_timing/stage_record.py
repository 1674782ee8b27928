"""The figures of one stage as they grow: its measurements, its iterations, its warm-up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from lightning_timing.distribution import EXACT_INTERVALS, Distribution
from lightning_timing.measurement import Measurement
from lightning_timing.phases import ITERATION, place_in_loop
from lightning_timing.record import StageSummary

BETWEEN_ITERATIONS: Final = "between_iterations"
"""Prefix of the phases that occur while no iteration is open, such as a checkpoint at the end of an epoch."""


class StageRecord:
    """Measurements and iterations of one stage.

    Attributes:
        stage: Its name.
        warmup_left: Iterations that are still to be left out.
        warmup_iterations: Iterations left out so far.
        iterations: Iterations measured.
        iterations_ns: The time they took, in nanoseconds.
        samples: Samples in them; None once a batch's size could not be told.
        skipped_batches: Batches for which the step returned None.
        host_ahead: How far the host was ahead of the device at the ends of iterations.
        measurements: The user's, by name.
        phases: The callbacks' own, inside iterations, by phase.
        between: The same phases while no iteration is open.
    """

    def __init__(self, stage: str, warmup_iterations: int) -> None:
        self.stage = stage
        self.warmup_left = warmup_iterations
        self.warmup_iterations = 0
        self.iterations = 0
        self.iterations_ns = 0
        self.samples: int | None = 0
        self.skipped_batches = 0
        self.host_ahead = Distribution()
        self.measurements: dict[str, Measurement] = {}
        self.phases: dict[str, Measurement] = {}
        self.between: dict[str, Measurement] = {}

    @property
    def was_used(self) -> bool:
        """Whether anything happened in the stage."""
        return bool(self.iterations or self.warmup_iterations or self.measurements or self.between)

    def phase(self, name: str) -> Measurement:
        """The measurement of a phase inside an iteration, made on its first use."""
        measurement = self.phases.get(name)
        if measurement is None:
            parent = None if name == ITERATION else ITERATION
            measurement = self.phases[name] = self._grouped(name, name, parent, self.phase)
        return measurement

    def between_iterations(self, name: str) -> Measurement:
        """The measurement of a phase while no iteration is open, made on its first use."""
        measurement = self.between.get(name)
        if measurement is None:
            full_name = f"{BETWEEN_ITERATIONS}/{name}"
            measurement = self.between[name] = self._grouped(name, full_name, None, self.between_iterations)
            measurement.inside = False
        return measurement

    def _grouped(self, name: str, full_name: str, parent: str | None, get: Callable[[str], Measurement]) -> Measurement:
        """Makes a measurement; that of a part, such as `callbacks/X`, hands its samples to the whole as well."""
        group, _, part = name.partition("/")
        if not part:
            return Measurement(full_name, parent)
        whole = get(group)
        measurement = Measurement(full_name, whole.name)
        measurement.whole = whole
        own, also = measurement.current.append, whole.current.append

        def append(ns: int) -> None:
            own(ns)
            also(ns)

        measurement.append = append
        return measurement

    def all_measurements(self) -> Iterator[Measurement]:
        """Every measurement, in the order of the loop: phases, the user's, then what lies between iterations."""
        yield from sorted(self.phases.values(), key=lambda m: (place_in_loop(m.name), m.name))
        yield from tuple(self.measurements.values())
        yield from tuple(self.between.values())

    def take(self, iteration_ns: int, samples: int | None, skipped: bool) -> dict[str, int] | None:
        """Counts an iteration, or leaves it out while warm-up lasts.

        Args:
            iteration_ns: How long it took, in nanoseconds.
            samples: The size of its batch, or None.
            skipped: Whether its step returned None.

        Returns:
            The sum of each measurement's samples in it, in nanoseconds; None in warm-up.
        """
        if self.warmup_left > 0:
            self.warmup_left -= 1
            self.warmup_iterations += 1
            self.drop_current()
            return None
        ns_by_name = {}
        may_fold = True
        for measurements in (self.phases, self.measurements):
            for measurement in tuple(measurements.values()):  # another thread may add one meanwhile
                current = measurement.current
                if not current:
                    continue
                pending = measurement.distribution.pending
                if len(current) == 1:
                    ns = current.pop()
                    pending.append(ns)
                else:
                    taken = measurement.take_current()
                    ns = sum(taken)
                    pending.extend(taken)
                ns_by_name[measurement.name] = ns
                if may_fold and len(pending) > EXACT_INTERVALS:
                    # At most one an iteration, so that no iteration pays for all of them.
                    may_fold = not measurement.distribution.fold_if_full()
        self.iterations += 1
        self.iterations_ns += iteration_ns
        self.samples = None if self.samples is None or samples is None else self.samples + samples
        self.skipped_batches += skipped
        return ns_by_name

    def take_between(self) -> None:
        """Counts the phases between iterations, warm-up or not."""
        for measurement in self.between.values():
            if measurement.current:
                _count(measurement)

    def take_users_outside(self) -> list[tuple[Measurement, list[int]]]:
        """Counts what the user measured while no iteration was open. Returns the samples, in nanoseconds."""
        taken = [m for m in tuple(self.measurements.values()) if m.current]
        if self.warmup_left > 0:
            for measurement in taken:
                measurement.take_current()
            return []
        for measurement in taken:
            measurement.inside = False
        return [(measurement, _count(measurement)) for measurement in taken]

    def take_device_times(
        self, samples_ns: Mapping[str, list[int]], untimed: Mapping[str, int], ahead_ns: int | None
    ) -> None:
        """Counts an iteration's device times, which come when the device has got to them.

        Args:
            samples_ns: The device time of each timed interval, by measurement.
            untimed: Intervals without one, by measurement.
            ahead_ns: How far the host was ahead at the iteration's end, or None.
        """
        for name in {*samples_ns, *untimed}:
            measurement = self.phases.get(name) or self.measurements.get(name)
            if measurement is not None:
                measurement.device = measurement.device or Distribution()
                measurement.device.pending.extend(samples_ns.get(name, ()))
                measurement.device.fold_if_full()
                measurement.device_untimed += untimed.get(name, 0)
        if ahead_ns is not None:
            self.host_ahead.pending.append(ahead_ns)
            self.host_ahead.fold_if_full()

    def drop_current(self) -> None:
        """Forgets the samples of an iteration that does not count."""
        for measurements in (self.phases, self.measurements):
            for measurement in tuple(measurements.values()):
                measurement.take_current()
                measurement.carried = 0

    def summary(self) -> StageSummary:
        """The stage's figures."""
        summaries = {m.name: m.summary(self.iterations, self.iterations_ns) for m in self.all_measurements()}
        ahead = self.host_ahead.percentiles_ns(50)
        return StageSummary(
            iterations=self.iterations,
            warmup_iterations=self.warmup_iterations,
            measurements=summaries,
            samples=self.samples if self.iterations else None,
            skipped_batches=self.skipped_batches,
            host_ahead_s=None if ahead is None else ahead[0] / 1e9,
        )


def _count(measurement: Measurement) -> list[int]:
    taken = measurement.take_current()
    measurement.distribution.pending.extend(taken)
    measurement.distribution.fold_if_full()
    return taken
