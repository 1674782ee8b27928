from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import NamedTuple

import psutil
import pytest

from lightning_timing import cpu_readings
from lightning_timing.cpu_readings import PsutilReader


class Times(NamedTuple):
    user: float = 0.0
    system: float = 0.0
    children_user: float = 0.0
    children_system: float = 0.0


class Child:
    def __init__(self, outcome: Times | Exception) -> None:
        self.outcome = outcome

    def cpu_times(self) -> Times:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


class WaitedFor:
    """What ended children have left: hands out one value after another, and stays with the last."""

    def __init__(self, *seconds: float) -> None:
        self._seconds = list(seconds)

    def __call__(self) -> float:
        return self._seconds.pop(0) if len(self._seconds) > 1 else self._seconds[0]


ReaderOf = Callable[..., PsutilReader]


@pytest.fixture
def reader_of(monkeypatch: pytest.MonkeyPatch) -> ReaderOf:
    def make(*children: Child, waited_for: WaitedFor | None = None) -> PsutilReader:
        monkeypatch.setattr(psutil.Process, "children", lambda self, recursive: list(children) if recursive else [])
        monkeypatch.setattr(cpu_readings, "_waited_for_s", waited_for or WaitedFor(0.0))
        return PsutilReader()

    return make


def test_living_and_ended_children_are_added_up(reader_of: ReaderOf) -> None:
    reader = reader_of(Child(Times(1.0, 2.0, 4.0, 8.0)), Child(Times(16.0, 32.0)), waited_for=WaitedFor(64.0))
    assert reader().children_s == 127.0


def test_without_children_it_is_zero(reader_of: ReaderOf) -> None:
    assert reader_of()().children_s == 0.0


def test_a_child_that_ends_after_it_was_listed_does_not_raise(reader_of: ReaderOf) -> None:
    reading = reader_of(Child(psutil.NoSuchProcess(1)), Child(Times(3.0)))()
    assert reading.children_s == 3.0
    assert reading.reason is None


def test_a_child_that_is_waited_for_during_the_walk_makes_it_walk_again(reader_of: ReaderOf) -> None:
    assert reader_of(waited_for=WaitedFor(5.0, 9.0, 9.0))().children_s == 9.0


def test_children_that_keep_ending_leave_the_reading_out(reader_of: ReaderOf) -> None:
    reading = reader_of(waited_for=WaitedFor(*map(float, range(6))))()
    assert reading.children_s is None
    assert reading.reason is None


@pytest.mark.parametrize("error", [psutil.AccessDenied(1), PermissionError("no"), IndexError("a field is missing")])
def test_no_permission_is_a_reason_and_the_machine_is_still_read(reader_of: ReaderOf, error: Exception) -> None:
    reading = reader_of(Child(error))()
    assert reading.children_s is None
    assert reading.machine_total_s is not None
    assert reading.reason is not None
    assert repr(error) in reading.reason


class LinuxTimes(NamedTuple):
    user: float
    nice: float
    system: float
    idle: float
    iowait: float
    guest: float
    guest_nice: float


def test_the_machine_is_busy_when_it_neither_idles_nor_waits(
    reader_of: ReaderOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = LinuxTimes(user=30.0, nice=5.0, system=10.0, idle=40.0, iowait=15.0, guest=20.0, guest_nice=2.0)
    monkeypatch.setattr(psutil, "cpu_times", lambda: times)
    reading = reader_of()()
    assert (reading.machine_busy_s, reading.machine_total_s) == (45.0, 100.0)


def test_a_machine_that_cannot_be_read_is_a_reason_and_the_children_still_are(
    reader_of: ReaderOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_error() -> None:
        raise FileNotFoundError("/proc/stat")

    monkeypatch.setattr(psutil, "cpu_times", raise_error)
    reading = reader_of(Child(Times(1.0)))()
    assert reading.children_s == 1.0
    assert reading.machine_busy_s is None
    assert reading.reason is not None
    assert "/proc/stat" in reading.reason


def test_a_real_child_that_ended_is_in_the_next_reading() -> None:
    reader = PsutilReader()
    before = reader()
    script = "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-c", script], check=True)
    after = reader()
    assert before.children_s is not None
    assert after.children_s is not None
    assert after.children_s - before.children_s == pytest.approx(0.3, abs=0.1)
