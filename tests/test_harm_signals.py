"""What a handler of the user's raises, wherever it is called, reaches the user: a deadline ends the training."""

from __future__ import annotations

import signal
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from ledger_records import lightning
from tiny_training import fit_tiny, tiny_loader, tiny_module
from whole_suite import FakeRuntime, our_warnings

from lightning_timing import CUDAProfilerCallback, Stopwatch, StopwatchCallback
from lightning_timing.alike_iterations import AlikeIterations
from lightning_timing.callbacks.phase_machine import PhaseMachine
from lightning_timing.callbacks.run_files import RunFiles
from lightning_timing.failsafe import Failsafe
from lightning_timing.interrupts import InterruptGuard, raised_by_handler
from lightning_timing.ledger import Ledger
from lightning_timing.phase_recorder import PhaseRecorder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


class DeadlineError(Exception):
    """The time that the user gave is over."""


def give_up(*_: object) -> None:
    raise DeadlineError


class Deadline:
    def __call__(self, *_: object) -> None:
        raise DeadlineError

    def method(self, *_: object) -> None:
        raise DeadlineError


@pytest.fixture(autouse=True)
def _deadline(_ctrl_c_raises: None) -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, give_up)
    yield
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(
    ("owner", "method"),
    [
        (AlikeIterations, "take"),
        (PhaseMachine, "batch_started"),
        (Ledger, "enter"),
        (PhaseRecorder, "begin_iteration"),
        (PhaseRecorder, "count_iteration"),
        (RunFiles, "write_iteration"),
    ],
)
def test_a_deadline_ends_the_training(
    owner: type, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original: Callable[..., Any] = getattr(owner, method)
    calls = 0

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            signal.raise_signal(signal.SIGALRM)
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, method, interrupted)
    loader = tiny_loader(300)
    with our_warnings() as said, pytest.raises(DeadlineError):
        fit_tiny(lightning(), tmp_path, tiny_module(lightning()), loader, callbacks=[StopwatchCallback()])
    assert said == []


def test_and_a_plain_loop() -> None:
    stopwatch = Stopwatch()
    pending = [signal.SIGALRM]

    def clock() -> int:
        if pending and stopwatch.is_enabled:
            signal.raise_signal(pending.pop())
        return 0

    stopwatch.enable(clock=clock)
    try:
        with pytest.raises(DeadlineError):
            stopwatch.start_meas("step")
        assert stopwatch.is_enabled
    finally:
        stopwatch.reset()


def give_up_once(signum: int, frame: object) -> None:
    signal.signal(signum, signal.SIG_DFL)
    raise DeadlineError


HANDLERS = [give_up, give_up_once, Deadline(), Deadline().method, partial(give_up, "given before")]


@pytest.mark.parametrize("handler", HANDLERS)
def test_it_is_known_by_the_handler_whatever_kind_of_callable_that_is(handler: Callable[..., None]) -> None:
    signal.signal(signal.SIGALRM, handler)
    with pytest.raises(DeadlineError) as raised, Failsafe("a part", strict=False):
        signal.raise_signal(signal.SIGALRM)
    assert raised_by_handler(raised.value)


def test_what_is_raised_otherwise_is_a_failure_as_before() -> None:
    failsafe = Failsafe("a part", strict=False)
    with pytest.warns(UserWarning, match="a part is off"), failsafe:
        raise DeadlineError
    assert failsafe.is_off


def nothing_in_particular(*_: Any, **__: Any) -> None:
    """A hook that the Trainer calls before it notes the handlers that it finds."""


@pytest.mark.parametrize("hooks", [{}, {"setup": nothing_in_particular}], ids=["plain", "with-a-setup"])
@pytest.mark.parametrize("fails", [False, True])
def test_no_handler_is_left_after_a_run_that_is_followed_at_once(
    fails: bool, hooks: dict[str, Any], tmp_path: Path
) -> None:
    before = signal.getsignal(signal.SIGINT)
    ours = [StopwatchCallback(), CUDAProfilerCallback(start_step=10**6, runtime=FakeRuntime())]
    during: list[Any] = []

    def look(*args: Any) -> None:
        during.append(signal.getsignal(signal.SIGINT))
        if fails and args[-1]:
            raise ZeroDivisionError

    module = tiny_module(lightning(), on_train_batch_end=look, **hooks)
    with our_warnings(), pytest.raises(ZeroDivisionError) if fails else nullcontext():
        fit_tiny(lightning(), tmp_path, module, tiny_loader(3), callbacks=ours)

    assert isinstance(during[-1], InterruptGuard)
    assert signal.getsignal(signal.SIGINT) is before
