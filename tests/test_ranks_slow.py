"""Which rank makes the others wait, and in which phase, told from real runs of ranks that are slow on purpose."""

from __future__ import annotations

import contextlib
import io
import json
from typing import TYPE_CHECKING, Any

import pytest
from rank_launching import run_program
from rank_programs.slow_ranks import BATCHES, LATER, WARMUP

from lightning_timing.cli.main import main
from lightning_timing.phases import (
    BACKWARD,
    BARRIER,
    BATCH_TRANSFER,
    CALLBACKS,
    CHECKPOINT,
    DATA_WAIT,
    FORWARD,
    ITERATION,
    OTHER,
)
from lightning_timing.run_report import read_report

if TYPE_CHECKING:
    from pathlib import Path

    from lightning_timing.rank_comparison import Culprit

pytestmark = [pytest.mark.slow, pytest.mark.alone]

LATER_S = LATER / 1000


def culprit_of(run_dir: Path) -> Culprit | None:
    report = read_report(run_dir)
    assert report.problems == ()
    assert report.ranks["train"].iterations == (BATCHES - WARMUP, BATCHES - WARMUP)
    return report.ranks["train"].culprit


def check_culprit(run_dir: Path, rank: int, phases: list[str], *waiting_phases: str) -> None:
    culprit = culprit_of(run_dir)
    assert culprit is not None, run_dir.name
    assert (culprit.rank, list(culprit.phases)) == (rank, phases), run_dir.name
    assert culprit.waiting_phase in (waiting_phases or [BACKWARD]), run_dir.name
    # What the ranks burn is a lower bound: other work on the machine makes it more.
    assert 0.75 * LATER_S < culprit.excess_s < 2 * LATER_S, run_dir.name
    assert 0.5 * LATER_S < culprit.wait_s < 4 * LATER_S, run_dir.name


@pytest.mark.parametrize("devices", [2, 4])
def test_the_rank_that_the_others_wait_for(devices: int, tmp_path: Path) -> None:
    program = run_program("slow_ranks", tmp_path / "cwd", str(devices), str(tmp_path))
    assert program.returncode == 0, program.output

    last = devices - 1
    assert culprit_of(tmp_path / "none") is None
    check_culprit(tmp_path / "loading", last, [DATA_WAIT])
    check_culprit(tmp_path / "transfer", 0, [BATCH_TRANSFER])
    check_culprit(tmp_path / "forward", last, [FORWARD])
    verdict = read_report(tmp_path / "forward").verdict
    assert verdict is not None
    assert verdict.name == "rank-bound"
    check_culprit(tmp_path / "evenly", 1, [FORWARD, DATA_WAIT])
    # A Lightning that has rank 0 tell the others at each batch that no signal came makes them wait there.
    check_culprit(tmp_path / "callbacks", 0, [CALLBACKS], OTHER, BACKWARD)

    check_culprit(tmp_path / "checkpoint", 0, [CHECKPOINT], BARRIER)

    said = printed("report", str(tmp_path / "loading"), "--stage", "train")
    assert f"train: {devices} ranks, {BATCHES - WARMUP} iterations each" in said
    assert f"Rank {last} holds the others up" in said
    check_trace(tmp_path / "loading", devices)


def printed(*arguments: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as output:
        assert main(list(arguments)) == 0
    return output.getvalue()


def check_trace(run_dir: Path, devices: int) -> None:
    """Each rank is a track, and on the common axis all leave the exchange of gradients in `backward` together."""
    printed("trace", str(run_dir))
    events = json.loads((run_dir / "timing" / "trace.json").read_text())["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert [names[rank].partition(" (")[0] for rank in range(devices)] == [f"rank {rank}" for rank in range(devices)]

    ends = [ends_of(BACKWARD, events, rank) for rank in range(devices)]
    apart_us = [max(together) - min(together) for together in zip(*ends, strict=True)]
    assert len(apart_us) == BATCHES - WARMUP
    assert min(apart_us) < LATER * 1000 / 4  # clocks that were not lined up would keep them apart always
    for rank in range(devices):
        assert sum(event["pid"] == rank and event.get("cat") == ITERATION for event in events) == BATCHES - WARMUP


def ends_of(phase: str, events: list[dict[str, Any]], rank: int) -> list[float]:
    """When a phase ended in each iteration of a rank, in microseconds."""
    return [event["ts"] + event["dur"] for event in events if event["pid"] == rank and event["name"] == phase]
