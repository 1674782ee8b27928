from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lightning_timing.allowed_cpus import affinity_count, allowed_cpus


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def allowed(tmp_path: Path, membership: str, affinity: int = 64) -> float:
    return allowed_cpus(tmp_path, write(tmp_path / "self_cgroup", membership), lambda: affinity)


def test_a_version_2_quota_is_a_fraction_of_a_core(tmp_path: Path) -> None:
    write(tmp_path / "job/cpu.max", "150000 100000\n")
    assert allowed(tmp_path, "0::/job\n") == 1.5


def test_the_tightest_of_nested_version_2_groups_counts(tmp_path: Path) -> None:
    write(tmp_path / "slice/cpu.max", "200000 100000\n")
    write(tmp_path / "slice/job/cpu.max", "800000 100000\n")
    write(tmp_path / "slice/job/task/cpu.max", "max 100000\n")
    assert allowed(tmp_path, "0::/slice/job/task\n") == 2.0


def test_a_container_that_sees_only_its_own_group_as_root(tmp_path: Path) -> None:
    write(tmp_path / "cpu.max", "300000 100000\n")
    assert allowed(tmp_path, "0::/docker/0123abcd\n") == 3.0
    assert allowed(tmp_path, "0::/../../elsewhere\n") == 3.0


def test_max_is_no_quota(tmp_path: Path) -> None:
    write(tmp_path / "job/cpu.max", "max 100000\n")
    assert allowed(tmp_path, "0::/job\n", affinity=6) == 6.0


@pytest.mark.parametrize(("controllers", "mount"), [("cpu", "cpu"), ("cpu,cpuacct", "cpu,cpuacct")])
def test_a_version_1_quota(tmp_path: Path, controllers: str, mount: str) -> None:
    write(tmp_path / mount / "batch/cpu.cfs_quota_us", "-1\n")
    write(tmp_path / mount / "batch/cpu.cfs_period_us", "100000\n")
    write(tmp_path / mount / "batch/job/cpu.cfs_quota_us", "50000\n")
    write(tmp_path / mount / "batch/job/cpu.cfs_period_us", "100000\n")
    assert allowed(tmp_path, f"7:memory:/batch\n4:{controllers}:/batch/job\n0::/\n") == 0.5


def test_version_1_without_a_quota(tmp_path: Path) -> None:
    write(tmp_path / "cpu/cpu.cfs_quota_us", "-1\n")
    write(tmp_path / "cpu/cpu.cfs_period_us", "100000\n")
    assert allowed(tmp_path, "1:cpu:/\n", affinity=4) == 4.0


def test_the_quota_of_another_controller_does_not_count(tmp_path: Path) -> None:
    write(tmp_path / "cpu/cpu.cfs_quota_us", "50000\n")
    write(tmp_path / "cpu/cpu.cfs_period_us", "100000\n")
    assert allowed(tmp_path, "3:cpuset:/\n", affinity=4) == 4.0


@pytest.mark.parametrize("content", ["", "nonsense", "100000", "a b", "100000 0", "-1 100000"])
def test_a_quota_that_cannot_be_read_is_none(tmp_path: Path, content: str) -> None:
    write(tmp_path / "job/cpu.max", content)
    assert allowed(tmp_path, "0::/job\nnonsense\n\n", affinity=2) == 2.0


def test_without_control_groups_the_affinity_counts(tmp_path: Path) -> None:
    assert allowed_cpus(tmp_path, tmp_path / "missing", lambda: 3) == 3.0


def test_the_affinity_is_tighter_than_the_quota(tmp_path: Path) -> None:
    write(tmp_path / "job/cpu.max", "400000 100000\n")
    assert allowed(tmp_path, "0::/job\n", affinity=2) == 2.0


def test_a_system_without_affinity_has_all_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 12)
    assert affinity_count() == 12


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no CPU affinity")
def test_a_process_tied_to_one_core_counts_one() -> None:
    script = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from lightning_timing.allowed_cpus import affinity_count; print(affinity_count())"
    )
    completed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert completed.stdout == "1\n"


@pytest.mark.skipif(affinity_count() < 2, reason="needs two cores")
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no CPU affinity")
def test_threads_tied_to_a_core_each_count_together() -> None:
    script = """
import os, threading
first, second = sorted(os.sched_getaffinity(0))[:2]
tied, done = threading.Event(), threading.Event()
def tie_and_wait():
    os.sched_setaffinity(0, {second})
    tied.set()
    done.wait()
thread = threading.Thread(target=tie_and_wait)
thread.start()
tied.wait()
os.sched_setaffinity(0, {first})
from lightning_timing.allowed_cpus import affinity_count
print(affinity_count())
done.set()
"""
    completed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert completed.stdout == "2\n"
