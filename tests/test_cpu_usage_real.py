"""The CPU meter on real work, each time against the system's own account of the same span.

How many cores a busy machine leaves to a test is not in the test's hands; what it got, the system knows.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from lightning_timing.allowed_cpus import affinity_count
from lightning_timing.cpu_usage import CpuUsageMeter

pytestmark = pytest.mark.alone
needs_two_cores = pytest.mark.skipif(affinity_count() < 2, reason="needs two cores")


class Span:
    """What the system says was used between two moments, in percent of one core."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._thread = time.thread_time()
        self._tree = sum(os.times()[:4])

    def close(self) -> None:
        wall = time.perf_counter() - self._start
        self.thread_percent = 100 * (time.thread_time() - self._thread) / wall
        self.tree_percent = 100 * (sum(os.times()[:4]) - self._tree) / wall


@pytest.fixture
def two_threads() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(threads)


def multiply(seconds: float) -> None:
    matrix = torch.ones(700, 700)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        matrix @ matrix


@needs_two_cores
@pytest.mark.usefixtures("two_threads")
def test_two_threads_that_multiply_use_about_two_cores() -> None:
    meters = [CpuUsageMeter("multiply"), CpuUsageMeter("multiply too")]
    for meter in meters:
        meter.start()
    multiply(0.2)
    span = Span()
    for meter in meters:
        meter.begin()
    multiply(1.0)
    for meter in meters:
        meter.end()
    span.close()
    for meter in meters:
        meter.stop()
        usage = meter.result()
        assert usage.process_tree_percent == pytest.approx(span.tree_percent, rel=0.1)
        assert usage.process_tree_percent == pytest.approx(2 * span.thread_percent, rel=0.3)
        assert usage.process_tree_percent <= 210
        assert usage.machine_percent is not None
        assert 0.9 * span.tree_percent / (os.cpu_count() or 1) <= usage.machine_percent <= 100


class BusySamples(Dataset[int]):
    """Each sample takes 20 ms of CPU time to make."""

    def __len__(self) -> int:
        return 120

    def __getitem__(self, index: int) -> int:
        end = time.process_time() + 0.02
        while time.process_time() < end:
            pass
        return index


@needs_two_cores
def test_busy_loader_workers_are_included_although_they_end_before_the_last_sample() -> None:
    meter = CpuUsageMeter("iteration")
    meter.start()
    multiply(0.1)
    span = Span()
    meter.begin()
    seen = sum(len(batch) for batch in DataLoader(BusySamples(), batch_size=4, num_workers=2))
    meter.end()
    span.close()
    meter.stop()
    assert seen == 120
    assert meter.result().process_tree_percent == pytest.approx(span.tree_percent, rel=0.15)
    assert span.tree_percent > 3 * span.thread_percent


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no CPU affinity")
def test_a_process_tied_to_one_core_is_judged_by_that_core() -> None:
    script = """
import json, os, time
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from lightning_timing.cpu_usage import CpuUsageMeter
meter = CpuUsageMeter("spin")
meter.start()
while time.process_time() < 0.2: pass
begin, used = time.perf_counter(), time.process_time()
meter.begin()
while time.perf_counter() < begin + 1.0: pass
meter.end()
truth = 100 * (time.process_time() - used) / (time.perf_counter() - begin)
meter.stop()
usage = meter.result()
print(json.dumps([truth, usage.process_tree_percent, usage.share_of_allowed]))
"""
    completed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    truth, percent, share = json.loads(completed.stdout)
    assert percent == pytest.approx(truth, rel=0.05)
    assert 0 < percent <= 102
    assert share == pytest.approx(percent / 100)
