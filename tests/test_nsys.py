"""Ranges that arrive: programs under the real Nsight Systems, read back from its export."""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from nvtx_recording import TOOLS, built

from lightning_timing.cli.main import main
from lightning_timing.nsys_agreement import agreements
from lightning_timing.nsys_export import ExportedProcess, read_export
from lightning_timing.phases import DATA_WAIT, FIRST_DATA_WAIT, FORWARD, ITERATION, TRAIN
from lightning_timing.profiling_check import check_profiling
from lightning_timing.run_report import read_report

EXAMPLE = Path(__file__).parents[1] / "examples" / "train.py"
ONCE_AN_ITERATION = (ITERATION, "batch_transfer", FORWARD, "zero_grad", "backward", "grad_clip", "optimizer_step")
ATTEMPTS = 3
NSYS_FAILED_TO_START = ("End of file", "Connection reset by peer", "Local Endpoint is not available")
"""What nsys says when it lost the agent that it starts by itself, before the program began."""
WINDOW = ("--capture-range=nvtx", "--nvtx-capture=capture@lightning_timing", "--capture-range-end=stop")

pytestmark = pytest.mark.nsys


@pytest.fixture(autouse=True)
def nsys() -> str:
    """Where nsys is. Skips the test where it is not installed, but not in CI."""
    path = shutil.which("nsys")
    if path is None:
        assert "CI" not in os.environ, "nsys must be installed in CI"
        # A developer may do without it; CI, which installs it, may not.
        pytest.skip("Nsight Systems is not installed")
    return path


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Sessions of nsys that start or end at the same moment break each other's connection, one in thirty or so."""
    with open(Path(tempfile.gettempdir()) / "lightning_timing_tests_nsys.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def profile(folder: Path, *program: str | Path, options: tuple[str, ...] = (), shim: bool = True) -> str:
    """Runs a Python program under nsys, which writes `profile.sqlite`; returns what the program printed.

    Args:
        folder: The working directory.
        *program: The script and its arguments.
        options: More options of nsys.
        shim: Whether to help an nsys over that refuses the domain, as old ones do.
    """
    command = ["nsys", "profile", "--trace=nvtx", "--sample=none", "--cpuctxsw=none", "--export=sqlite"]
    command += ["--force-overwrite=true", "--output=profile", *options, sys.executable]
    if shim:
        command += [str(TOOLS / "nsys_shim_run.py"), str(built("nsys_shim.c"))]
    for _ in range(ATTEMPTS):
        with one_at_a_time():
            finished = subprocess.run(
                [*command, *map(str, program)],
                cwd=folder,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=300,
                check=False,
            )
        if finished.returncode == 0 or not any(failure in finished.stdout for failure in NSYS_FAILED_TO_START):
            break
    assert finished.returncode == 0, finished.stdout
    return finished.stdout


def write(folder: Path, name: str, code: str) -> Path:
    path = folder / name
    path.write_text(dedent(code), encoding="utf-8")
    return path


def train_example(folder: Path, batches: int, *overrides: str, options: tuple[str, ...] = ()) -> None:
    """Runs the example under nsys, with the run's folder `run`."""
    profile(
        folder,
        EXAMPLE,
        "task=digits",
        "timing=profiling",
        "task.max_epochs=1",
        "task.data.num_workers=0",
        "trainer.enable_progress_bar=false",
        f"+trainer.limit_train_batches={batches}",
        "+trainer.num_sanity_val_steps=0",
        f"hydra.run.dir={folder}/run",
        *overrides,
        options=options,
    )


def exported(folder: Path) -> ExportedProcess:
    (process,) = read_export(folder / "profile.sqlite")
    return process


def select(folder: Path, query: str) -> list[tuple[Any, ...]]:
    """Rows of the export, in which `{name}` stands for a range's name."""
    name = "coalesce(text, (SELECT value FROM StringIds WHERE id = textId))"
    with closing(sqlite3.connect(folder / "profile.sqlite")) as connection:
        return connection.execute(query.format(name=name)).fetchall()


@pytest.mark.alone
def test_a_profiled_example_has_a_range_a_phase_and_the_stopwatch_agrees(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Many batches, because the medians of few move when other load on the machine falls between two clock readings.
    train_example(tmp_path, 200, "task.data.views_per_epoch=9")
    process = exported(tmp_path)
    train = process.stages[TRAIN]

    assert {name: len(train[name]) for name in ONCE_AN_ITERATION} == dict.fromkeys(ONCE_AN_ITERATION, 200)
    assert (len(train[DATA_WAIT]), len(train[FIRST_DATA_WAIT])) == (199, 2)  # it starts, and has its first batch
    report = read_report(tmp_path / "run")
    assert report.stages[TRAIN].iterations == 190
    assert report.lead is not None
    rows = report.lead.stages
    found = {name: agreement for (stage, name), agreement in agreements(process, rows).items() if stage == TRAIN}
    assert {*ONCE_AN_ITERATION, DATA_WAIT} <= set(found)
    assert {name: agreement for name, agreement in found.items() if not agreement.agrees} == {}

    assert main(["nsys", str(tmp_path / "profile.sqlite"), "--run", str(tmp_path / "run")]) in (0, 1)
    assert "train: 200 iterations" in capsys.readouterr().out


def test_the_capture_range_holds_the_windows_iterations_and_no_other(tmp_path: Path) -> None:
    window = ("timing.cuda_profiler.start_step=5", "timing.cuda_profiler.num_steps=7")
    train_example(tmp_path, 30, *window, options=WINDOW)

    iterations = select(tmp_path, f"SELECT int64Value FROM NVTX_EVENTS WHERE {{name}} = '{ITERATION}' ORDER BY start")
    assert [batch_idx for (batch_idx,) in iterations] == [5, 6, 7, 8, 9, 10, 11]
    process = exported(tmp_path)
    assert process.left_open == 0
    assert set(process.stages) == {TRAIN, None}
    assert [len(process.stages[TRAIN][name]) for name in (DATA_WAIT, *ONCE_AN_ITERATION)] == [7] * 8
    report = read_report(tmp_path / "run")
    assert (report.status, report.stages[TRAIN].iterations) == ("completed", 20)


def test_a_run_that_an_exception_ends_has_closed_its_ranges(tmp_path: Path) -> None:
    program = write(
        tmp_path,
        "program.py",
        """
        import torch
        from lightning.pytorch import Trainer
        from lightning.pytorch.demos.boring_classes import BoringModel
        from lightning_timing import NVTXCallback, span
        from lightning_timing.nvtx_ranges import start_process_range

        class Failing(BoringModel):
            def training_step(self, batch, batch_idx):
                with span("mine"):
                    if batch_idx == 3:
                        raise RuntimeError("the user's own")
                    return super().training_step(batch, batch_idx)

        options = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, accelerator="cpu")
        try:
            Trainer(callbacks=[NVTXCallback()], num_sanity_val_steps=0, **options).fit(Failing())
        except RuntimeError as error:
            assert str(error) == "the user's own"
        end = start_process_range("afterwards")
        end()
        """,
    )
    profile(tmp_path, program)

    (afterwards,) = select(tmp_path, "SELECT start FROM NVTX_EVENTS WHERE {name} = 'afterwards'")
    ends = select(tmp_path, "SELECT {name}, end FROM NVTX_EVENTS WHERE eventType = 59 ORDER BY end")
    assert [name for name, _ in ends[-3:]] == ["mine", FORWARD, ITERATION]
    assert all(end is not None and end <= afterwards[0] for _, end in ends)
    assert len(exported(tmp_path).stages[TRAIN]["mine"]) == 4


def test_processes_that_one_profile_holds_are_told_apart(tmp_path: Path) -> None:
    child = write(
        tmp_path,
        "child.py",
        """
        import os
        from lightning_timing import NVTXRangeWrapper
        ranges = NVTXRangeWrapper(keep_track_of_range_order=True)
        ranges._push_phase("iteration", "validate", 0)
        ranges._pop_phase()
        print("child", os.getpid())
        """,
    )
    parent = write(
        tmp_path,
        "parent.py",
        """
        import os, subprocess, sys
        from lightning_timing import NVTXRangeWrapper
        ranges = NVTXRangeWrapper(keep_track_of_range_order=True)
        ranges._push_phase("iteration", "train", 0)
        print("parent", os.getpid(), flush=True)
        subprocess.run([sys.executable, *sys.argv[1:]], check=True)
        ranges._pop_phase()
        """,
    )
    output = profile(tmp_path, parent, TOOLS / "nsys_shim_run.py", built("nsys_shim.c"), child)

    pids = dict(line.split() for line in output.splitlines() if line.startswith(("parent ", "child ")))
    stages = {process.pid: set(process.stages) for process in read_export(tmp_path / "profile.sqlite")}
    assert stages == {int(pids["parent"]): {"train"}, int(pids["child"]): {"validate"}}


def test_the_check_says_what_then_comes_true(tmp_path: Path) -> None:
    program = write(
        tmp_path,
        "program.py",
        """
        from lightning_timing import NVTXRangeWrapper
        ranges = NVTXRangeWrapper()
        ranges.enable()
        ranges.range_push("mine")
        ranges.range_pop()
        """,
    )
    found = check_profiling()
    output = profile(tmp_path, program, shim=False)
    arrived = select(tmp_path, "SELECT count(*) FROM NVTX_EVENTS WHERE {name} = 'mine'") == [(1,)]

    assert found.arrive is not None
    assert (found.arrive or found.by_torch) is arrived
    assert ("refuses the NVTX domain" in output) is not found.arrive
    assert (f"nvtx {found.nvtx}, by which no range would arrive" in output) is not found.arrive
    assert main(["nsys", str(tmp_path / "profile.sqlite")]) == (0 if found.arrive else 2)
