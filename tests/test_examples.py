"""The examples, run as a user runs them."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
from nvtx_recording import attached, read_recording
from programs import output_of

EXAMPLES = Path(__file__).parents[1] / "examples"
TASKS = ["digits", "gpt", "detection"]
PRESETS = ["training", "evaluation", "profiling", "debug"]
FEW_STEPS = ["trainer.max_steps=3", "task.data.num_workers=0", "+trainer.limit_val_batches=1"]


def run_example(script: str, *arguments: str, folder: Path, **environment: str) -> str:
    """Runs an example in a folder of its own, and returns what it printed."""
    surroundings = {
        "OMP_NUM_THREADS": "1",  # the other tests want the rest of the machine
        "COLUMNS": "120",  # pytest-xdist says 80, where the report leaves columns out
    }
    return output_of(
        subprocess.run(
            [sys.executable, str(EXAMPLES / script), *arguments],
            cwd=folder,
            env={**os.environ, **surroundings, **environment},
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
    )


def read_summary(run_dir: Path) -> dict[str, Any]:
    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    text = (run_dir / "timing" / "summary.json").read_text(encoding="utf-8")
    summary: dict[str, Any] = json.loads(text, parse_constant=refuse)
    return summary


def logged_losses(run_dir: Path) -> list[float]:
    with (run_dir / "metrics" / "metrics.csv").open(newline="", encoding="utf-8") as file:
        return [float(row["train_loss"]) for row in csv.DictReader(file) if row["train_loss"]]


def overrides_of(job: Path) -> dict[str, str]:
    """The overrides that a job of a sweep ran with; Hydra keeps them as a list in YAML."""
    lines = (job / ".hydra" / "overrides.yaml").read_text(encoding="utf-8").splitlines()
    return dict(line.removeprefix("- ").split("=", 1) for line in lines)


@pytest.mark.parametrize(
    ("task", "steps", "measurements"),
    [
        ("digits", 120, {}),
        ("gpt", 50, {"blocks": "forward", "attention": "blocks"}),
        (
            "detection",
            120,
            dict.fromkeys(["matcher_cost", "matcher_assignment", "loss_classes", "loss_boxes"], "forward"),
        ),
    ],
)
def test_a_task_learns_and_says_where_its_time_went(
    task: str, steps: int, measurements: dict[str, str], tmp_path: Path
) -> None:
    printed = run_example(
        "train.py",
        f"task={task}",
        "timing=evaluation",
        f"trainer.max_steps={steps}",
        "trainer.log_every_n_steps=1",
        "hydra.run.dir=run",
        folder=tmp_path,
    )
    losses = logged_losses(tmp_path / "run")
    assert len(losses) == steps
    assert mean(losses[-10:]) < 0.8 * mean(losses[:10])

    summary = read_summary(tmp_path / "run")
    train = summary["stages"]["train"]
    assert (summary["status"], train["iterations"], train["warmup_iterations"]) == ("completed", steps - 10, 10)
    assert {name: train["measurements"][name]["parent"] for name in measurements} == measurements
    assert f"train: {steps - 10} iterations" in printed
    assert f"Written to {tmp_path / 'run' / 'timing'}" in printed


def test_every_task_runs_with_every_preset(tmp_path: Path) -> None:
    run_example(
        "train.py",
        "-m",
        f"task={','.join(TASKS)}",
        f"timing={','.join(PRESETS)}",
        *FEW_STEPS,
        "timing.stopwatch.num_warmup_iters=1",
        "hydra.sweep.dir=sweep",
        folder=tmp_path,
    )
    jobs = {(o["task"], o["timing"]): job for job in (tmp_path / "sweep").glob("[0-9]*") if (o := overrides_of(job))}
    assert set(jobs) == {(task, preset) for task in TASKS for preset in PRESETS}
    for (_, preset), job in jobs.items():
        assert (job / "metrics" / "checkpoints" / "epoch=0-step=3.ckpt").exists()
        assert (job / "timing").is_dir() == (preset != "training")
        if preset != "training":
            summary = read_summary(job)
            assert (summary["status"], summary["stages"]["train"]["iterations"]) == ("completed", 2)


def test_a_sweep_writes_a_record_for_each_value(tmp_path: Path) -> None:
    run_example(
        "train.py",
        "-m",
        "task.optimizer.lr=1e-2,1e-3",
        *FEW_STEPS,
        "timing.stopwatch.num_warmup_iters=0",
        "hydra.sweep.dir=sweep",
        folder=tmp_path,
    )
    jobs = sorted((tmp_path / "sweep").glob("[0-9]*"))
    assert [float(overrides_of(job)["task.optimizer.lr"]) for job in jobs] == [1e-2, 1e-3]
    assert [read_summary(job)["stages"]["train"]["iterations"] for job in jobs] == [3, 3]


def test_the_ranges_of_user_code_reach_a_tool(tmp_path: Path) -> None:
    file = tmp_path / "nvtx.jsonl"
    run_example("train.py", "task=detection", "timing=profiling", *FEW_STEPS, folder=tmp_path, **attached(file))
    recording = read_recording(file)
    assert recording.is_balanced
    trained = [path for path in recording.paths if path.endswith("forward/matcher_assignment")]
    assert len(trained) >= 3  # one in every step, and those of validation
    assert any(path.endswith("forward/postprocess") for path in recording.paths)


def test_the_plain_loop_prints_what_it_measured(tmp_path: Path) -> None:
    printed = run_example("plain_loop.py", folder=tmp_path)
    losses = [float(line.split("loss ")[1].split(",")[0]) for line in printed.splitlines() if "loss " in line]
    assert losses[-1] < 0.8 * losses[0]
    rows = {words[0]: words[-1] for line in printed.splitlines() if (words := line.split())}
    # 4 epochs of 29 batches, the first 10 of them warm-up; the first iteration that has an `accuracy` is one of those.
    assert (rows["step"], rows["forward_backward"], rows["accuracy"]) == ("106", "212", "11")
    assert "load_data" in rows
    assert "CPU during step" in printed


def test_the_minimal_example_prints_a_report(tmp_path: Path) -> None:
    printed = run_example("minimal.py", folder=tmp_path)
    assert "train: 161 iterations (10 of warm-up not counted)" in printed  # 3 epochs of 57 batches
    assert read_summary(tmp_path / "lightning_logs" / "version_0")["status"] == "completed"
