"""However the ranks of a run are started, the files of all of them lie in rank 0's run folder."""

from __future__ import annotations

import json
import socket
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from rank_launching import PROGRAMS, Finished, run_all, run_program
from records import RunRecord, load_run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


def succeeded(*programs: Finished) -> None:
    for program in programs:
        assert program.returncode == 0, program.output


def only(found: Any) -> Any:
    (one,) = found
    return one


def torchrun_node(node: int, port: int, *program: str) -> list[str]:
    place = ["--nnodes=2", "--nproc-per-node=1", f"--node-rank={node}"]
    rendezvous = ["--master-addr=127.0.0.1", f"--master-port={port}"]
    return [sys.executable, "-m", "torch.distributed.run", *place, *rendezvous, *program]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def check_headers(run: RunRecord, folder: Path, begin_ns: int) -> None:
    """Every rank says which process it is, and where its clock stands."""
    for rank, record in run.ranks.items():
        facts = json.loads((folder / f"rank{rank}.json").read_text())
        header = record.segments[0]
        assert (header.rank, header.world_size, header.device) == (rank, 2, "cpu")
        assert {name: getattr(header, name) for name in facts} == facts
        assert begin_ns < header.unix_ns < time.time_ns()
    offsets = [record.header.unix_ns - record.header.monotonic_ns for record in run.ranks.values()]
    assert abs(offsets[0] - offsets[1]) < 50_000_000  # one machine has one monotonic clock


def check_run(run_dir: Path, folder: Path, cwd: Path, begin_ns: int, calls: list[str]) -> None:
    """What holds whatever started the two ranks of `fit_and_test`."""
    run = load_run(run_dir)
    assert run.problems == ()
    assert list(run.ranks) == [0, 1]
    check_headers(run, folder, begin_ns)
    for record in run.ranks.values():
        assert [header.entry_point for header in record.segments] == calls
        assert {stage: len(series) for stage, series in record.stages.items()}["train"] == 4
        assert record.end is not None
        assert record.end.status == "completed"
    assert run.ranks[0].segments[0].segment == run.ranks[1].segments[0].segment

    assert run.summary is not None
    assert (run.summary.rank, run.summary.world_size, run.summary.status) == (0, 2, "completed")
    assert run.summary.stages["train"].iterations == 4
    assert [segment.entry_point for segment in run.summary.segments] == calls

    # The second callback takes part on rank 1 alone, so that is the one that writes its summary.
    assert sorted(file.name for file in (run_dir / "timing-2").iterdir()) == ["rank1.jsonl", "summary.json"]
    assert json.loads((run_dir / "timing-2" / "summary.json").read_text())["rank"] == 1

    assert sorted(path.name for path in run_dir.iterdir()) == ["timing", "timing-2"]
    assert list(cwd.iterdir()) == []


def test_ddp_by_subprocess(tmp_path: Path) -> None:
    begin_ns = time.time_ns()
    program = run_program("fit_and_test", tmp_path / "cwd", "ddp", str(tmp_path))
    succeeded(program)

    run_dir = only(tmp_path.glob("root-of-process-*"))
    assert run_dir.name.endswith(f"-{json.loads((tmp_path / 'rank0.json').read_text())['pid']}")
    assert program.output.count("root of this process") == 2  # rank 1 would have taken another one
    assert program.output.count(f"Written to {run_dir / 'timing'}\n") == 2  # one rank prints, after each call
    assert "samples/s on rank 0 of 2\n" in program.output
    assert program.output.count("How the ranks compare: ") == 2  # not for the second one, which is on one rank
    # The second callback's lowest rank is 1.
    assert program.output.count(f"Written to {run_dir / 'timing-2'}\n") == 2
    assert "samples/s on rank 1 of 2\n" in program.output
    check_run(run_dir, tmp_path, tmp_path / "cwd", begin_ns, ["fit", "test"])


def test_ddp_by_spawn(tmp_path: Path) -> None:
    """The process that spawns the ranks writes nothing, neither before nor over what they wrote."""
    begin_ns = time.time_ns()
    program = run_program("fit_and_test", tmp_path / "cwd", "ddp_spawn", str(tmp_path))
    succeeded(program)

    run_dir = only(tmp_path.glob("root-of-process-*"))
    check_run(run_dir, tmp_path, tmp_path / "cwd", begin_ns, ["fit"])
    writers = {header.pid for record in load_run(run_dir).ranks.values() for header in record.segments}
    spawning = int(run_dir.name.rpartition("-")[2])
    assert len(writers - {spawning}) == 2


def test_torchrun_with_two_nodes_on_one_machine(tmp_path: Path) -> None:
    begin_ns = time.time_ns()
    port = free_port()
    program = [str(PROGRAMS / "fit_and_test.py"), "ddp", str(tmp_path), "1", "2"]
    nodes = run_all([torchrun_node(node, port, *program) for node in range(2)], tmp_path / "cwd")
    succeeded(*nodes)

    run_dir = only(tmp_path.glob("root-of-process-*"))
    own = f"root of this process: {run_dir}\n"
    assert own in nodes[0].output
    assert own not in nodes[1].output
    assert [json.loads((tmp_path / f"rank{rank}.json").read_text())["local_rank"] for rank in range(2)] == [0, 0]
    check_run(run_dir, tmp_path, tmp_path / "cwd", begin_ns, ["fit", "test"])


PRESET = ("timing=evaluation", "timing.stopwatch.ranks=all", "timing.stopwatch.num_warmup_iters=1")


def run_app(folder: Path, *arguments: str, **environment: str) -> list[str]:
    """Runs the Hydra app, and returns the folders of rank 0's jobs, as its process knows them."""
    succeeded(run_program("hydra_app", folder / "cwd", *arguments, f"said={folder}", **environment))
    return (folder / "jobs-of-rank0.txt").read_text().splitlines()


def records_under(folder: Path) -> list[str]:
    return sorted(str(file.parent.parent) for file in folder.rglob("timing/rank0.jsonl"))


def test_a_hydra_job(tmp_path: Path) -> None:
    job_dir = only(run_app(tmp_path, *PRESET))

    assert records_under(tmp_path) == [job_dir]
    assert {rank: len(record.stages["train"]) for rank, record in load_run(job_dir).ranks.items()} == {0: 3, 1: 3}
    assert [path.name for path in (tmp_path / "cwd").iterdir()] == ["outputs"]


def test_jobs_of_a_hydra_multirun_do_not_mix(tmp_path: Path) -> None:
    """Lightning starts rank 1 with the same command line: it runs the jobs again, in folders of its own."""
    job_dirs = run_app(tmp_path, "-m", *PRESET, "batches=3,5")

    assert job_dirs == sorted(job_dirs)
    assert records_under(tmp_path) == job_dirs
    assert len(list(tmp_path.rglob("rank*.jsonl"))) == 4
    for job_dir, measured in zip(job_dirs, (2, 4), strict=True):
        run = load_run(job_dir)
        assert run.problems == ()
        assert {rank: len(record.stages["train"]) for rank, record in run.ranks.items()} == {0: measured, 1: measured}
    assert [path.name for path in (tmp_path / "cwd").iterdir()] == ["multirun"]


def test_ranks_that_a_hydra_job_spawns_with_a_preset_from_the_environment(tmp_path: Path) -> None:
    """They are no Hydra jobs themselves, so they cannot know the job's folder, but from what they were handed."""
    job_dir = only(run_app(tmp_path, "strategy=ddp_spawn", LIGHTNING_TIMING="evaluation"))

    assert records_under(tmp_path) == [job_dir]
    assert load_run(job_dir).ranks[0].header.world_size == 2
    assert [path.name for path in (tmp_path / "cwd").iterdir()] == ["outputs"]
