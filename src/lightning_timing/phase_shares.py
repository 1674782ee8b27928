"""The shares that phases have in the time of a stage's iterations, as verdicts weigh them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lightning_timing.mostly_in import mostly_in
from lightning_timing.phases import BACKWARD, FORWARD, GRAD_CLIP, ITERATION, LR_SCHEDULER, OPTIMIZER_STEP, ZERO_GRAD

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lightning_timing.figures import DeviceSummary, MeasurementSummary

COMPUTE_PHASES: Final = (FORWARD, ZERO_GRAD, BACKWARD, GRAD_CLIP, OPTIMIZER_STEP, LR_SCHEDULER)
"""The model's own work."""


class PhaseShares:
    """Shares (0 to 1) of the host time of a stage's iterations; 0 for a phase that the stage does not have.

    Args:
        measurements: The stage's figures by name.
    """

    def __init__(self, measurements: Mapping[str, MeasurementSummary]) -> None:
        self.measurements = measurements

    def of(self, phase: str) -> float:
        """The share of a phase, all of it."""
        return self.measurements[phase].share or 0.0 if phase in self.measurements else 0.0

    def overlapped(self, phase: str = ITERATION) -> float:
        """The part of a phase in which the device has work, a lower bound; 0 where no device was timed."""
        return self._part(phase, overlapped_s(self.measurements[phase])) if phase in self.measurements else 0.0

    def exposed(self, phase: str) -> float:
        """The rest of a phase, which may hold the device up: all of it where no device was timed."""
        return self.of(phase) - self.overlapped(phase)

    def recurring(self, phase: str) -> float:
        """The part of a phase that is exposed and recurs: see `recurring_s`."""
        if phase not in self.measurements:
            return 0.0
        measurement = self.measurements[phase]
        return self._part(phase, min(recurring_s(measurement), exposed_s(measurement)))

    def of_compute(self) -> float:
        """The model's own work: what is exposed of its phases, and all time in which the device has work."""
        return sum(self.exposed(phase) for phase in COMPUTE_PHASES) + self.overlapped()

    def of_device(self, phase: str) -> float:
        """The share of a phase in the device's time; 0 where that is not known."""
        whole_s = device_s(self.measurements.get(ITERATION))
        return device_s(self.measurements.get(phase)) / whole_s if whole_s else 0.0

    def mostly_in(self, phase: str) -> str | None:
        """The user's measurement in a phase that has most of its time, if one has."""
        totals_s = {name: found.total_s or 0.0 for name, found in self.measurements.items()}
        return mostly_in(phase, totals_s, {name: found.parent for name, found in self.measurements.items()})

    def _part(self, phase: str, part_s: float) -> float:
        total_s = self.measurements[phase].total_s
        return self.of(phase) * part_s / total_s if total_s else 0.0


def recurring_s(measurement: MeasurementSummary) -> float:
    """Returns the time of what recurs: the longest interval counts for no more than all others together.

    So what occurs only once, such as the first epoch's wait, is left out, and of a callback one hook beside many that
    cost little.
    """
    total_s = measurement.total_s or 0.0
    return min(total_s, 2 * (total_s - (measurement.max_s or 0.0)))


def beyond_median_s(times: MeasurementSummary | DeviceSummary) -> float:
    """Returns what intervals take beyond their median, on the host or on the device, in seconds.

    What short ones take less counts against it; on the host the longest counts for no more than all others together.
    """
    median_s = times.p50_s or 0.0
    beyond_s = (times.total_s or 0.0) - times.count * median_s
    longest_s = getattr(times, "max_s", None) or median_s  # not known on the device
    return min(beyond_s, 2 * (beyond_s - (longest_s - median_s)))


def overlapped_s(measurement: MeasurementSummary) -> float:
    """Returns the host time in which the device has work, a lower bound; 0 where no device was timed."""
    return (measurement.device.overlapped_s or 0.0) if measurement.device is not None else 0.0


def exposed_s(measurement: MeasurementSummary) -> float:
    """Returns the host time in which the device may have no work: all of it where no device was timed."""
    return (measurement.total_s or 0.0) - overlapped_s(measurement)


def device_s(measurement: MeasurementSummary | None) -> float:
    """Returns the time on the device; 0 where that is not known."""
    return (measurement.device.total_s or 0.0) if measurement is not None and measurement.device is not None else 0.0
