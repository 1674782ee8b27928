"""What a report of a large record costs: time and memory of `lightning-timing report` on made-up records.

    python -m benchmarks.big_record [--iterations 1000000] [--ranks 1024] [--rank-iterations 1000] [--markdown]

A long run on one rank, and a short run on many ranks: rows of 10 measurements, the first 10,000 of a rank with their
intervals, no summary, so that every figure comes from the rows. The targets are for a machine of 2 cores.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from benchmarks.tables import print_table
from lightning_timing.phases import ITERATION, OTHER
from lightning_timing.record import SCHEMA_VERSION, IterationRow, SegmentEnd, SegmentHeader

KEPT_INTERVALS: Final = 10_000
TYPICAL_US: Final = {
    "data_wait": 300,
    "batch_transfer": 200,
    "forward": 4000,
    "zero_grad": 50,
    "backward": 6000,
    "optimizer_step": 900,
    "callbacks": 80,
    "callbacks/ModelCheckpoint": 80,
}
"""What each measurement takes, about, in microseconds; with `iteration` and `other` there are 10."""
REPORT: Final = "import sys; from lightning_timing.cli.main import main; sys.exit(main())"


class Cost(NamedTuple):
    """What a report took.

    Attributes:
        wall_s: Seconds from start to end of the process.
        cpu_s: Seconds of CPU time.
        peak_mb: The most memory that it held, in MiB.
    """

    wall_s: float
    cpu_s: float
    peak_mb: float


def lines(rank: int, world_size: int, iterations: int) -> Iterator[bytes]:
    """The encoded lines of one rank's record."""
    encode = msgspec.json.Encoder().encode
    segment = "big-0"
    yield encode(
        SegmentHeader(
            segment=segment,
            schema_version=SCHEMA_VERSION,
            entry_point="fit",
            rank=rank,
            local_rank=rank % 8,
            world_size=world_size,
            host=f"node{rank // 8}",
            pid=1000 + rank,
            device=f"cuda:{rank % 8}",
            monotonic_ns=0,
            unix_ns=0,
        )
    )
    numbers = random.Random(rank)
    start_ns = 0
    for batch_idx in range(iterations):
        row = _row(segment, batch_idx, start_ns, numbers.randrange(900, 1100))
        start_ns += row.ns[ITERATION]
        yield encode(row)
    yield encode(SegmentEnd(segment=segment, status="completed", unix_ns=start_ns))


def _row(segment: str, batch_idx: int, start_ns: int, ns_per_us: int) -> IterationRow:
    ns = {name: us * ns_per_us for name, us in TYPICAL_US.items()}
    claimed = sum(ns.values()) - ns["callbacks"]
    intervals = None
    if batch_idx < KEPT_INTERVALS:
        intervals, end = [], 0
        for name, length in ns.items():
            intervals.append((name, end, end + length))
            end += length
    return IterationRow(
        segment=segment,
        stage="train",
        epoch=0,
        batch_idx=batch_idx,
        global_step=batch_idx,
        start_ns=start_ns,
        ns={ITERATION: claimed + 1000, **ns, OTHER: 1000},
        samples=32,
        intervals=intervals,
    )


def write_record(folder: Path, ranks: int, iterations: int) -> int:
    """Writes a record of `ranks` ranks. Returns its size in bytes."""
    (folder / "timing").mkdir(parents=True)
    written = 0
    for rank in range(ranks):
        with (folder / "timing" / f"rank{rank}.jsonl").open("wb") as file:
            for line in lines(rank, ranks, iterations):
                written += file.write(line + b"\n")
    return written


def report_cost(folder: Path) -> Cost:
    """Runs `lightning-timing report` on a record in a process of its own."""
    begin = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", REPORT, "report", str(folder)], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall_s = time.perf_counter() - begin
    if status:
        raise RuntimeError(f"the report failed: {os.waitstatus_to_exitcode(status)}")
    return Cost(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def main() -> None:
    """Writes the records, reports them and prints what that took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=1_000_000, help="of the long run")
    parser.add_argument("--ranks", type=int, default=1024, help="of the wide run")
    parser.add_argument("--rank-iterations", type=int, default=1000, help="of each of its ranks")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    args = parser.parse_args()
    rows = []
    for ranks, iterations, target in (
        (1, args.iterations, "10 s, 500 MB"),
        (args.ranks, args.rank_iterations, "60 s, 1 GB"),
    ):
        with tempfile.TemporaryDirectory() as folder:
            size = write_record(Path(folder) / "run", ranks, iterations)
            cost = report_cost(Path(folder) / "run")
        rows.append(
            (
                f"{ranks:,} x {iterations:,}",
                f"{size / 2**20:.0f} MiB",
                f"{cost.wall_s:.1f} s",
                f"{cost.cpu_s:.1f} s",
                f"{cost.peak_mb:.0f} MiB",
                target,
            )
        )
    columns = ("ranks x iterations", "record", "report takes", "CPU time", "peak memory", "target")
    print_table("Report of a large record", columns, rows, markdown=args.markdown)


if __name__ == "__main__":
    main()
