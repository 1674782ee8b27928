"""Records made from plain numbers, for tests of what reads them: no training, no clock."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from lightning_timing.figures import MeasurementSummary, StageSummary
from lightning_timing.phases import CALLBACKS, ITERATION, OTHER, PHASES
from lightning_timing.record import (
    SCHEMA_VERSION,
    IterationRow,
    Line,
    OutsideRow,
    RunSummary,
    SegmentEnd,
    SegmentHeader,
    SegmentSummary,
)
from lightning_timing.record_reader import ProblemLog, iter_ranks, read_summary, timing_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lightning_timing.record_rank import RankRecord

SEGMENT = "run-0"
MS = 1_000_000
"""Nanoseconds in a millisecond."""


def header(**changes: Any) -> SegmentHeader:
    """A header of one rank on a CPU; `changes` replace fields."""
    fields: dict[str, Any] = {
        "segment": SEGMENT,
        "schema_version": SCHEMA_VERSION,
        "entry_point": "fit",
        "rank": 0,
        "local_rank": 0,
        "world_size": 1,
        "host": "node-a",
        "pid": 4242,
        "device": "cpu",
        "monotonic_ns": 1_000_000_000,
        "unix_ns": 1_700_000_000_000_000_000,
        "environment": {"torch": "2.13.0", "lightning": "2.6.6", "python": "3.11.7"},
        "settings": {"num_warmup_iters": 10, "do_cuda_sync": False},
    }
    return SegmentHeader(**{**fields, **changes})


def phases(other: int = 0, **phase_ns: int) -> dict[str, int]:
    """The `ns` of a row whose phases last `phase_ns`, with `other` and the `iteration` that they add up to."""
    named = {**phase_ns, OTHER: other}
    return {ITERATION: sum(named.values()), **named}


def row(batch_idx: int, ns: Mapping[str, int], *, start_ns: int, **changes: Any) -> IterationRow:
    """A training iteration of epoch 0; `changes` replace fields."""
    fields: dict[str, Any] = {
        "segment": SEGMENT,
        "stage": "train",
        "epoch": 0,
        "batch_idx": batch_idx,
        "global_step": batch_idx,
        "start_ns": start_ns,
        "ns": dict(ns),
        "samples": 32,
    }
    return IterationRow(**{**fields, **changes})


def rows(many_ns: Sequence[Mapping[str, int]], *, start_ns: int = 2_000_000_000, **changes: Any) -> list[IterationRow]:
    """Iterations that follow each other without a gap."""
    made = []
    for batch_idx, ns in enumerate(many_ns):
        made.append(row(batch_idx, ns, start_ns=start_ns, **changes))
        start_ns += ns[ITERATION]
    return made


def outside(name: str, ns: int, *, start_ns: int, **changes: Any) -> OutsideRow:
    """Something measured between iterations of epoch 0; `changes` replace fields."""
    fields: dict[str, Any] = {"segment": SEGMENT, "stage": "train", "epoch": 0}
    return OutsideRow(**{**fields, "name": name, "ns": ns, "start_ns": start_ns, **changes})


def end(**changes: Any) -> SegmentEnd:
    """The end of a completed segment; `changes` replace fields."""
    fields: dict[str, Any] = {"segment": SEGMENT, "status": "completed", "unix_ns": 1_700_000_100_000_000_000}
    return SegmentEnd(**{**fields, **changes})


def summary_of(lines: Iterable[Line], *, parents: Mapping[str, str] | None = None, **changes: Any) -> RunSummary:
    """The summary that belongs to `lines`, one interval a row for each measurement.

    Args:
        lines: The lines of one rank.
        parents: The enclosing measurement of each one that is no phase.
        changes: Replace fields of the summary.
    """
    lines = list(lines)
    found = [line for line in lines if isinstance(line, IterationRow)]
    stages = {
        stage: _stage([r for r in found if r.stage == stage], parents or {}) for stage in {r.stage for r in found}
    }
    fields: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "status": "completed",
        "environment": {"torch": "2.13.0", "lightning": "2.6.6", "python": "3.11.7"},
        "settings": {"num_warmup_iters": 10, "do_cuda_sync": False},
        "rank": 0,
        "world_size": 1,
        "stages": stages,
        "cpu_usage": None,
        "one_time": {},
        "verdict": None,
        "timing_overhead": None,
        "segments": (SegmentSummary(SEGMENT, "fit", "completed", {name: s.iterations for name, s in stages.items()}),),
    }
    return RunSummary(**{**fields, **changes})


def _stage(found: Sequence[IterationRow], parents: Mapping[str, str]) -> StageSummary:
    iteration_ns = sum(r.ns[ITERATION] for r in found)
    by_name: dict[str, list[int]] = {}
    for r in found:
        for name, ns in r.ns.items():
            by_name.setdefault(name, []).append(ns)
    return StageSummary(
        iterations=len(found),
        warmup_iterations=10,
        measurements={
            name: _measurement(values, len(found), iteration_ns, parents.get(name, _parent(name)))
            for name, values in by_name.items()
        },
        samples=sum(r.samples or 0 for r in found),
    )


def _parent(name: str) -> str | None:
    if name.startswith(f"{CALLBACKS}/"):
        return CALLBACKS
    return ITERATION if name in PHASES else None


def _measurement(values: Sequence[int], iterations: int, iteration_ns: int, parent: str | None) -> MeasurementSummary:
    seconds = np.asarray(values) / 1e9
    p50, p95, p99 = (float(np.percentile(seconds, q)) for q in (50, 95, 99))
    total = float(seconds.sum())
    return MeasurementSummary(
        parent=parent,
        count=len(values),
        total_s=total,
        mean_s=float(seconds.mean()),
        per_iteration_s=total / iterations,
        std_s=float(seconds.std(ddof=1)) if len(values) > 1 else None,
        min_s=float(seconds.min()),
        max_s=float(seconds.max()),
        p50_s=p50,
        p95_s=p95,
        p99_s=p99,
        share=total * 1e9 / iteration_ns if iteration_ns else None,
    )


def write_lines(run_dir: Path, lines: Iterable[Line], *, rank: int = 0) -> Path:
    """Writes `timing/rank<N>.jsonl` under `run_dir`, which it makes, and returns `run_dir`."""
    folder = run_dir / "timing"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"rank{rank}.jsonl").write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    return run_dir


def write_summary(run_dir: Path, summary: RunSummary) -> Path:
    """Writes `timing/summary.json` under `run_dir`, which it makes, and returns `run_dir`."""
    folder = run_dir / "timing"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "summary.json").write_bytes(msgspec.json.encode(summary))
    return run_dir


@dataclass(frozen=True)
class RunRecord:
    """A run's record: its folder, what each rank wrote, the summary if there is one, and what was odd, in words."""

    path: Path
    ranks: Mapping[int, RankRecord]
    summary: RunSummary | None
    problems: tuple[str, ...]


def load_run(path: Path | str) -> RunRecord:
    """Reads all of a run's record at once, which commands do rank by rank."""
    folder = timing_folder(Path(path))
    problems = ProblemLog()
    ranks = {record.header.rank: record for record in iter_ranks(folder, problems)}
    return RunRecord(folder, ranks, read_summary(folder), problems.lines())
