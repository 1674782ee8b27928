"""Ctrl-C waits where it would leave things half done, and never longer than the user wants."""

from __future__ import annotations

import signal
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from lightning_timing.interrupts import undisturbed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(autouse=True)
def _ctrl_c_raises() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    after = signal.signal(signal.SIGINT, before)
    assert after is signal.default_int_handler


def ctrl_c() -> None:
    signal.raise_signal(signal.SIGINT)


def interrupted(*steps: Callable[[], object]) -> None:
    """Does what is given, one after the other, while Ctrl-C is put off."""
    with undisturbed():
        for step in steps:
            step()


class Counting:
    """A handler that goes on."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, Any]] = []

    def __call__(self, signum: int, frame: Any) -> None:
        self.calls.append((signum, frame))


def test_the_first_waits_for_the_end() -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        interrupted(ctrl_c, partial(done.append, "all"))

    assert done == ["all"]


def test_the_second_does_not() -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        interrupted(ctrl_c, partial(done.append, "first"), ctrl_c, partial(done.append, "second"))

    assert done == ["first"]


def test_without_one_nothing_happens() -> None:
    before = signal.getsignal(signal.SIGINT)
    with undisturbed() as nothing:
        assert signal.getsignal(signal.SIGINT) is not before

    assert nothing is None
    assert signal.getsignal(signal.SIGINT) is before


def test_a_body_that_raises_does_not_lose_it() -> None:
    with pytest.raises(KeyboardInterrupt) as raised:
        interrupted(ctrl_c, lambda: 1 // 0)

    assert isinstance(raised.value.__context__, ZeroDivisionError)


def test_the_user_s_own_handler_is_told_of_each_as_it_came() -> None:
    mine = Counting()
    signal.signal(signal.SIGINT, mine)
    with undisturbed():
        ctrl_c()
        assert mine.calls == []
        ctrl_c()
        assert len(mine.calls) == 1
        ctrl_c()
        assert len(mine.calls) == 2

    assert signal.signal(signal.SIGINT, signal.default_int_handler) is mine
    assert [signum for signum, _ in mine.calls] == [signal.SIGINT] * 3
    assert all(frame is not None for _, frame in mine.calls)


def test_one_in_another_leaves_it_to_the_outer_one() -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        interrupted(partial(interrupted, ctrl_c), partial(done.append, "the rest"))
    assert done == ["the rest"]

    with pytest.raises(KeyboardInterrupt):
        interrupted(partial(interrupted, ctrl_c, ctrl_c, partial(done.append, "after the second")))
    assert done == ["the rest"]


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.SIG_DFL])
def test_where_no_python_code_is_called_it_stays_so(handler: signal.Handlers) -> None:
    signal.signal(signal.SIGINT, handler)
    with undisturbed():
        assert signal.getsignal(signal.SIGINT) is handler

    assert signal.signal(signal.SIGINT, signal.default_int_handler) is handler


def test_on_another_thread_it_does_nothing() -> None:
    seen = []

    def enter() -> None:
        with undisturbed():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]


def test_a_handler_that_is_set_meanwhile_stays() -> None:
    mine, first = Counting(), Counting()
    signal.signal(signal.SIGINT, first)
    with undisturbed():
        ctrl_c()
        signal.signal(signal.SIGINT, mine)

    assert signal.signal(signal.SIGINT, signal.default_int_handler) is mine
    assert (len(first.calls), len(mine.calls)) == (1, 0)


def test_a_handler_of_ours_that_somebody_puts_back_later_delays_nothing() -> None:
    with undisturbed():
        ours = signal.signal(signal.SIGINT, Counting())
    signal.signal(signal.SIGINT, ours)
    with pytest.raises(KeyboardInterrupt):
        ctrl_c()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
