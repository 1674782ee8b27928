"""The figures of a run, as frozen dataclasses. They are written to `summary.json` as they are.

They are not in `record`, since making dataclasses takes time, and the figures of a Stopwatch need no others.
What is not known is None, never 0 or NaN.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lightning_timing.phases import ITERATION


@dataclass(frozen=True)
class DeviceSummary:
    """Device time of a measurement.

    Attributes:
        count: Intervals with a known device time.
        untimed: Intervals without a device time (a graph was being captured, the events were dropped).
        total_s: Sum, in seconds.
        mean_s: Mean per timed interval, in seconds.
        p50_s: Median, in seconds.
        p95_s: 95th percentile, in seconds.
        overlapped_s: Of a phase, its host time in which the device had work, in seconds, so that the host held nothing
            up. A lower bound: that the device has work is known only from how far the host is ahead of it at the edges
            of phases, less what an idle device may take to begin. None where that is not known.
    """

    count: int
    untimed: int
    total_s: float | None
    mean_s: float | None
    p50_s: float | None
    p95_s: float | None
    overlapped_s: float | None = None


@dataclass(frozen=True)
class MeasurementSummary:
    """The figures of one measurement in one stage. Host time, in seconds, over the intervals after warm-up.

    Attributes:
        parent: The enclosing measurement, or None.
        count: Intervals measured.
        total_s: Sum of the intervals.
        mean_s: Mean per interval.
        per_iteration_s: Sum of the intervals inside the stage's measured iterations, divided by the number of those
            iterations; None where all lie outside.
        std_s: Sample standard deviation of the intervals; None for fewer than two.
        min_s: Shortest interval.
        max_s: Longest interval.
        p50_s: Median interval. Percentiles are exact up to 1,024 intervals, and within 0.4 % beyond.
        p95_s: 95th percentile.
        p99_s: 99th percentile.
        share: Time inside measured iterations, divided by the time of those iterations; None where all lie outside.
        device: Device time, or None where it was not measured.
    """

    parent: str | None
    count: int
    total_s: float | None
    mean_s: float | None
    per_iteration_s: float | None
    std_s: float | None
    min_s: float | None
    max_s: float | None
    p50_s: float | None
    p95_s: float | None
    p99_s: float | None
    share: float | None
    device: DeviceSummary | None = None


@dataclass(frozen=True)
class StageSummary:
    """The figures of one stage.

    Attributes:
        iterations: Iterations measured, warm-up left out.
        warmup_iterations: Iterations that were not counted.
        measurements: The figures by name. One seen only in warm-up has `count` 0 and nulls.
        samples: Samples in the measured iterations; None where batch sizes cannot be told.
        skipped_batches: Batches for which the training step returned None.
        host_ahead_s: Median, over the iterations, of how far the host was ahead of the device at their end, in
            seconds. Where it is next to nothing the device may set the pace all the same, if the host waits for it on
            the way: see `device_busy_share`. None where the device was not timed.
        warmup_s: The time of the iterations that were not counted, in seconds; None where that is not known, as of
            figures made from rows.
    """

    iterations: int
    warmup_iterations: int
    measurements: Mapping[str, MeasurementSummary]
    samples: int | None = None
    skipped_batches: int = 0
    host_ahead_s: float | None = None
    warmup_s: float | None = None

    @property
    def paced_s(self) -> float:
        """The time of the measured iterations by the slower of host and device, in seconds.

        A host that only enqueues is through with them long before the device, until it has to wait.
        """
        iteration = self.measurements.get(ITERATION)
        if iteration is None:
            return 0.0
        device_s = 0.0 if iteration.device is None else iteration.device.mean_s or 0.0
        return max(iteration.total_s or 0.0, device_s * self.iterations)

    @property
    def device_busy_share(self) -> float | None:
        """The share (0 to 1) of the measured iterations' host time in which the device has work, at least.

        None where that is not known.
        """
        iteration = self.measurements.get(ITERATION)
        if iteration is None or not iteration.total_s or iteration.device is None:
            return None
        overlapped_s = iteration.device.overlapped_s
        return None if overlapped_s is None else overlapped_s / iteration.total_s


@dataclass(frozen=True)
class CpuUsage:
    """CPU usage of one measurement, in percent of one core: 100 is one core.

    Attributes:
        measurement: The measurement.
        process_tree_percent: This process and its children (DataLoader workers).
        machine_percent: The whole machine, in percent of all of its cores (0 to 100).
        share_of_allowed: The process tree's use as a share (0 to 1) of the cores that this process may use (affinity,
            cgroup quota).
    """

    measurement: str
    process_tree_percent: float | None
    machine_percent: float | None
    share_of_allowed: float | None

    @property
    def process_tree_cores(self) -> float | None:
        """The same as `process_tree_percent` in cores, which is how a reader is told of it."""
        return None if self.process_tree_percent is None else self.process_tree_percent / 100


@dataclass(frozen=True)
class Figures:
    """What a Stopwatch has measured so far.

    Attributes:
        stages: The figures of each stage that has any.
        one_time: One-time measurements in seconds; None for one that is still running.
        cpu_usage: CPU usage of the chosen measurement, or None where none was chosen.
        rank: Global rank of the process.
        world_size: Number of processes, each of which has figures of its own.
        loader_workers: Number of DataLoader workers, by stage, where it is known.
    """

    stages: Mapping[str, StageSummary]
    one_time: Mapping[str, float | None]
    cpu_usage: CpuUsage | None
    rank: int = 0
    world_size: int = 1
    loader_workers: Mapping[str, int] | None = None
