"""Ctrl-C in the middle of our own work: it ends the training as it would without us, and what was measured is right."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import pytest
from ledger_records import lightning, lines, rows, summary
from tiny_training import fit_tiny, tiny_loader, tiny_module
from whole_suite import Suite, our_warnings

from lightning_timing import StopwatchCallback
from lightning_timing.callbacks.session import _sessions
from lightning_timing.closed_iterations import MAX_WAITING
from lightning_timing.ledger import Ledger
from lightning_timing.phase_recorder import PhaseRecorder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


pytestmark = pytest.mark.usefixtures("_ctrl_c_raises")


def pressed_at(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, *, at: int, before: bool = True
) -> Callable[[], int]:
    """Has Ctrl-C pressed before or after the given call of a method; returns how often it was called."""
    original, calls = getattr(owner, name), 0

    def method(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        now = calls == at
        if now and before:
            signal.raise_signal(signal.SIGINT)
        returned = original(*args, **kwargs)
        if now and not before:
            signal.raise_signal(signal.SIGINT)
        return returned

    monkeypatch.setattr(owner, name, method)
    return lambda: calls


def fit_until_interrupted(root: Path, callbacks: list[Any], batches: int) -> int:
    """Fits, and returns how many batches were completed."""
    done = 0

    def count(*_: Any) -> None:
        nonlocal done
        done += 1

    module = tiny_module(lightning(), on_train_batch_end=count)
    with our_warnings() as said, pytest.raises(SystemExit) as raised:
        fit_tiny(lightning(), root, module, tiny_loader(batches), callbacks=callbacks)
    assert raised.value.code == 1
    assert isinstance(raised.value.__context__, KeyboardInterrupt)
    assert said == []
    assert not _sessions
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return done


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("method", ["enter", "leave", "close_iteration", "begin_iteration", "count_iteration"])
def test_while_what_was_noted_is_handled(
    method: str, before: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = Suite(monkeypatch)
    owner = PhaseRecorder if "iteration" in method else Ledger
    pressed_at(monkeypatch, owner, method, at=12 if owner is Ledger else 3, before=before)

    batches = 3 * MAX_WAITING
    done = fit_until_interrupted(tmp_path, suite.callbacks[:1], batches)

    assert 0 < done < batches
    assert len(rows(tmp_path)) == summary(tmp_path)["stages"]["train"]["iterations"] == done
    assert summary(tmp_path)["status"] == "interrupted"


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_while_a_callback_begins(which: int, before: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite = Suite(monkeypatch)
    pressed_at(monkeypatch, type(suite.callbacks[which]), "begin", at=1, before=before)

    assert fit_until_interrupted(tmp_path, suite.callbacks, 5) == 0

    assert [end["status"] for end in lines(tmp_path, "end")] == ["interrupted"]
    suite.check_over(windows=which // 2)
    suite.check_next_run_is_clean(tmp_path / "next")


@pytest.mark.parametrize("before", [True, False])
def test_while_a_callback_ends(before: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite = Suite(monkeypatch)
    pressed_at(monkeypatch, StopwatchCallback, "end", at=1, before=before)

    assert fit_until_interrupted(tmp_path, suite.callbacks, 5) == 5

    assert len(rows(tmp_path)) == summary(tmp_path)["stages"]["train"]["iterations"] == 5
    assert summary(tmp_path)["status"] == "completed"
    suite.check_over(windows=1)
    suite.check_next_run_is_clean(tmp_path / "next")


def test_twice_while_a_callback_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is locked in."""
    suite = Suite(monkeypatch)

    def hang(*_: Any) -> None:
        for _press in range(2):
            signal.raise_signal(signal.SIGINT)
        pytest.fail("was not let go")

    monkeypatch.setattr("lightning_timing.callbacks.stopwatch.overhead_of", hang)
    fit_until_interrupted(tmp_path, suite.callbacks, 5)
    suite.check_over(windows=1)
