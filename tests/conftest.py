"""Fixtures for every test."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator

import pytest

from lightning_timing.nvtx_ranges import NVTX_RANGES
from lightning_timing.stopwatch import STOPWATCH


@pytest.fixture(autouse=True)
def _no_preset_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A developer's own LIGHTNING_TIMING would add callbacks to the Trainers of the tests."""
    monkeypatch.delenv("LIGHTNING_TIMING", raising=False)


@pytest.fixture(autouse=True)
def _terminal_of_one_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports fit themselves to the terminal, and the tests read them."""
    monkeypatch.setenv("COLUMNS", "120")


@pytest.fixture
def _wide_terminal(monkeypatch: pytest.MonkeyPatch, _terminal_of_one_width: None) -> None:
    """Every column is shown."""
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture(autouse=True)
def _nothing_leaks() -> Iterator[None]:
    """What a test enables it must leave disabled, or a run of ours must have left it so."""
    yield
    stopwatch_was_enabled, ranges_were_enabled = STOPWATCH.is_enabled, NVTX_RANGES.is_enabled
    STOPWATCH.reset()
    NVTX_RANGES.disable()
    assert not stopwatch_was_enabled, "the test left the Stopwatch enabled"
    assert not ranges_were_enabled, "the test left the NVTXRangeWrapper enabled"


@pytest.fixture
def _ctrl_c_raises() -> Iterator[None]:
    """As in a program that is run by hand. Lightning leaves it ignored after a run that was interrupted."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def _threads_change_all_the_time() -> Iterator[None]:
    """Python hands over to another thread as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)
