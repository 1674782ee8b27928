"""What is written to disk, as frozen dataclasses: the lines of `rank<N>.jsonl` and the whole of `summary.json`.

Field names are the names in the files. What is not known is None (`null`), never 0 or NaN.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

SCHEMA_VERSION: Final = 1

Status = Literal["completed", "failed", "interrupted"]
"""How a run ended."""

NOT_ENDED: Final = "killed, or still running"
"""Said of a run whose record has no end, in place of its status."""


@dataclass(frozen=True, kw_only=True)
class SegmentHeader:
    """The first line of a segment of `rank<N>.jsonl`: one call of `fit`, `validate`, `test` or `predict` on one rank.

    It is written again when the Trainer has its loaders, which it has not at first; the last one of a segment holds.

    Attributes:
        kind: `header`: tells the kinds of line apart.
        segment: Identifies the segment; every line that belongs to it carries it, so that two runs that append to
            one file can be told apart. `<run id>-<number of the call>`, of which all ranks of a run have the same.
        schema_version: The version of this schema.
        entry_point: The Trainer's method that ran: `fit`, `validate`, `test` or `predict`.
        rank: Global rank of the process.
        local_rank: Rank within the node.
        world_size: Number of processes.
        host: Name of the machine.
        pid: Process id.
        device: The strategy's root device, such as `cpu` or `cuda:0`.
        monotonic_ns: The process's monotonic clock when the segment was opened, in nanoseconds.
        unix_ns: The wall clock at that moment, in nanoseconds since 1970-01-01 UTC.
        environment: Versions and hardware.
        settings: What was chosen: warm-up, device timing, precision, the loaders' workers, Hydra's overrides and so on.
    """

    kind: Literal["header"] = "header"
    segment: str
    schema_version: int
    entry_point: str
    rank: int
    local_rank: int
    world_size: int
    host: str
    pid: int
    device: str
    monotonic_ns: int
    unix_ns: int
    environment: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class IterationRow:
    """A measured iteration: one line of `rank<N>.jsonl`.

    Attributes:
        kind: `iteration`: tells the kinds of line apart.
        segment: The segment it belongs to.
        stage: `train`, `validate`, `test`, `predict` or `sanity_check`.
        epoch: The epoch, from 0.
        batch_idx: The batch's index in its epoch, from 0.
        global_step: The number of optimizer steps taken when the batch started.
        start_ns: The process's monotonic clock at the start of the iteration, in nanoseconds.
        ns: Host time of each measurement in this iteration, in nanoseconds: the sum of its intervals. A measurement
            that did not occur is absent.
        device_ns: Device time of each measurement for which it is known, in nanoseconds; None where there is none.
        samples: The size of the batch; None where it cannot be told.
        intervals: Each interval as (measurement, start, end), in nanoseconds from `start_ns`, nested ones inside their
            parents; None where they were not kept (only the first iterations of a segment keep them).
    """

    kind: Literal["iteration"] = "iteration"
    segment: str
    stage: str
    epoch: int
    batch_idx: int
    global_step: int
    start_ns: int
    ns: Mapping[str, int]
    device_ns: Mapping[str, int] | None = None
    samples: int | None = None
    intervals: list[tuple[str, int, int]] | None = None


@dataclass(frozen=True, kw_only=True)
class OutsideRow:
    """Something measured between iterations, such as an epoch's `first_data_wait`: one line of `rank<N>.jsonl`.

    Attributes:
        kind: `outside`: tells the kinds of line apart.
        segment: The segment it belongs to.
        stage: The stage it belongs to.
        epoch: The epoch, from 0.
        name: The measurement.
        start_ns: The process's monotonic clock at its start, in nanoseconds.
        ns: Its host time, in nanoseconds.
    """

    kind: Literal["outside"] = "outside"
    segment: str
    stage: str
    epoch: int
    name: str
    start_ns: int
    ns: int


@dataclass(frozen=True, kw_only=True)
class SegmentEnd:
    """The last line of a segment. Missing where the process was killed.

    Attributes:
        kind: `end`: tells the kinds of line apart.
        segment: The segment that ends.
        status: How it ended.
        unix_ns: When, on the wall clock, in nanoseconds since 1970-01-01 UTC.
    """

    kind: Literal["end"] = "end"
    segment: str
    status: Status
    unix_ns: int


@dataclass(frozen=True)
class DeviceSummary:
    """Device time of a measurement.

    Attributes:
        count: Intervals with a known device time.
        untimed: Intervals whose device time could not be had (a graph was being captured, the events were dropped).
        total_s: Sum, in seconds.
        mean_s: Mean per timed interval, in seconds.
        p50_s: Median, in seconds.
        p95_s: 95th percentile, in seconds.
    """

    count: int
    untimed: int
    total_s: float | None
    mean_s: float | None
    p50_s: float | None
    p95_s: float | None


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
        share: The same sum divided by the time of those iterations; None where all lie outside.
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
            seconds: above zero the device sets the pace. None where the device was not timed.
    """

    iterations: int
    warmup_iterations: int
    measurements: Mapping[str, MeasurementSummary]
    samples: int | None = None
    skipped_batches: int = 0
    host_ahead_s: float | None = None


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


@dataclass(frozen=True)
class Figures:
    """What a Stopwatch has measured so far.

    Attributes:
        stages: The figures of each stage that has any.
        one_time: One-time measurements in seconds; None for one that is still running.
        cpu_usage: CPU usage of the chosen measurement, or None where none was chosen.
        rank: Global rank of the process.
        world_size: Number of processes, each of which has figures of its own.
    """

    stages: Mapping[str, StageSummary]
    one_time: Mapping[str, float | None]
    cpu_usage: CpuUsage | None
    rank: int = 0
    world_size: int = 1


@dataclass(frozen=True)
class TimingOverhead:
    """What the timing itself cost.

    Attributes:
        seconds: Its time, in seconds.
        share: That time as a share of the measured iterations' time with the bookkeeping between them.
    """

    seconds: float
    share: float


@dataclass(frozen=True)
class SegmentSummary:
    """One call of a Trainer method within the run.

    Attributes:
        segment: Its identifier, as in `rank<N>.jsonl`.
        entry_point: `fit`, `validate`, `test` or `predict`.
        status: How it ended.
        iterations: Iterations measured in it, by stage.
    """

    segment: str
    entry_point: str
    status: Status
    iterations: Mapping[str, int]


@dataclass(frozen=True)
class RunSummary:
    """The whole of `summary.json`.

    Attributes:
        schema_version: The version of this schema.
        status: `completed`, `failed` or `interrupted`: of the last segment.
        environment: Versions and hardware.
        settings: What was chosen.
        rank: Global rank that wrote it.
        world_size: Number of processes.
        stages: The figures of each stage, over all segments of the run.
        cpu_usage: CPU usage of the chosen measurement, or None.
        one_time: One-time measurements in seconds; None for one that is still running.
        verdict: The verdict's name, or None where there is too little to judge by.
        timing_overhead: What the timing itself cost; None where unknown.
        segments: The calls that the run is made of, in order.
    """

    schema_version: int
    status: Status
    environment: Mapping[str, Any]
    settings: Mapping[str, Any]
    rank: int
    world_size: int
    stages: Mapping[str, StageSummary]
    cpu_usage: CpuUsage | None
    one_time: Mapping[str, float | None]
    verdict: str | None
    timing_overhead: TimingOverhead | None
    segments: tuple[SegmentSummary, ...] = ()


Line = SegmentHeader | IterationRow | OutsideRow | SegmentEnd
"""A line of `rank<N>.jsonl`."""
