"""What is written to disk, as frozen dataclasses: the lines of `rank<N>.jsonl` and the whole of `summary.json`.

Field names are the names in the files. What is not known is None (`null`), never 0 or NaN.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from lightning_timing.figures import CpuUsage, StageSummary

SCHEMA_VERSION: Final = 1

TIMING_FOLDER: Final = "timing"
"""The folder of a record in the run dir, unless another name was chosen."""
SUMMARY_NAME: Final = "summary.json"
RANK_FILE: Final = re.compile(r"rank([0-9]{1,9})\.jsonl")
"""The name of a rank's file, as `rank_file_name` makes it."""

Status = Literal["completed", "failed", "interrupted"]
"""How a run ended."""

NOT_ENDED: Final = "killed, or still running"
"""Said of a run whose record has no end, in place of its status."""


def rank_file_name(rank: int) -> str:
    """The name of the file that holds what one rank measured."""
    return f"rank{rank}.jsonl"


@dataclass(frozen=True, kw_only=True)
class SegmentHeader:
    """The first line of a segment of `rank<N>.jsonl`: one call of `fit`, `validate`, `test` or `predict` on one rank.

    It is written again once the Trainer has its loaders; the last header of a segment is the valid one.

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
            parents; None where they were not kept (only the first 10,000 iterations of a stage do).
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
class TimingOverhead:
    """What the timing itself cost.

    Attributes:
        seconds: Its time, in seconds.
        share: That time divided by the time of the measured iterations and of the bookkeeping between them.
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
