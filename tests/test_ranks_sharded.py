"""Strategies that split the model over the ranks, as far as the machine has the devices for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
import torch.distributed.fsdp
from rank_launching import run_program
from rank_programs.sharded_ranks import BATCHES, WARMUP
from records import load_run

from lightning_timing.phases import BACKWARD, DATA_WAIT, FORWARD, ITERATION, OTHER, PHASES
from lightning_timing.run_report import read_report

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


def fit_on(device: str, tmp_path: Path) -> None:
    program = run_program("sharded_ranks", tmp_path / "cwd", str(tmp_path), device)
    assert program.returncode == 0, program.output
    assert "for the rest of this run" not in program.output  # said of a part of ours that has failed
    assert list((tmp_path / "cwd").iterdir()) == []


def check_rows(run_dir: Path, ranks: int) -> None:
    """Every rank measured every iteration, and its phases add up to it."""
    run = load_run(run_dir)
    assert run.problems == ()
    assert list(run.ranks) == list(range(ranks))
    for record in run.ranks.values():
        series = record.stages["train"]
        assert list(series.batch_idx) == list(range(WARMUP, BATCHES))
        assert {DATA_WAIT, FORWARD, BACKWARD, OTHER} < set(series.ns)
        phases = sum(series.ns[phase] for phase in PHASES if phase in series.ns)
        assert (phases == series.ns[ITERATION]).all()


@pytest.mark.skipif(
    not (hasattr(torch.distributed.fsdp, "fully_shard") or torch.cuda.is_available()),
    reason="PyTorch 2.5 splits models on CUDA alone",
)
def test_model_parallel_on_a_cpu(tmp_path: Path) -> None:
    """Such ranks meet in `forward`: that is where they wait for the one that is slow in loading."""
    fit_on("cpu", tmp_path)
    for run in ("fully_sharded", "tensor_parallel"):
        check_rows(tmp_path / run, ranks=2)
        culprit = read_report(tmp_path / run).ranks["train"].culprit
        assert culprit is not None
        assert (culprit.rank, list(culprit.phases), culprit.waiting_phase) == (1, [DATA_WAIT], FORWARD)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch's FSDP, which FSDPStrategy uses, refuses a CPU")
def test_fsdp_on_gpus(tmp_path: Path) -> None:
    fit_on("cuda", tmp_path)
    ranks = min(2, torch.cuda.device_count())
    check_rows(tmp_path / "fsdp", ranks)
    summary = load_run(tmp_path / "fsdp").summary
    assert summary is not None
    assert (summary.world_size, summary.status) == (ranks, "completed")
