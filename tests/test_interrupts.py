"""Ctrl-C waits where it would leave things half done, and never longer than the user wants."""

from __future__ import annotations

import signal
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from lightning_timing.interrupts import InterruptGuard, undisturbed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(autouse=True)
def _ctrl_c_raises_afterwards_too(_ctrl_c_raises: None) -> Iterator[None]:
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


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


# ---- many contexts ----


@pytest.fixture
def guard() -> Iterator[InterruptGuard]:
    guard = InterruptGuard()
    yield guard
    guard.close()


def within(guard: InterruptGuard, *steps: Callable[[], object]) -> None:
    with guard:
        for step in steps:
            step()


def test_a_guard_puts_the_first_off_in_each_of_its_contexts(guard: InterruptGuard) -> None:
    done: list[int] = []
    for n in range(3):
        with pytest.raises(KeyboardInterrupt):
            within(guard, ctrl_c, partial(done.append, n))
    assert done == [0, 1, 2]


def test_a_guard_that_is_closed_sets_no_handler_any_more() -> None:
    """The edge ends at which the run did, and with it the session that closes the guard."""
    before = signal.getsignal(signal.SIGINT)
    guard = InterruptGuard()
    guard.close()
    with guard:
        pass

    assert signal.getsignal(signal.SIGINT) is before


def test_and_not_the_second(guard: InterruptGuard) -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        within(guard, ctrl_c, partial(done.append, "first"), ctrl_c, partial(done.append, "second"))
    assert done == ["first"]


def test_between_its_contexts_it_is_as_if_it_were_not_there(guard: InterruptGuard) -> None:
    within(guard)
    with pytest.raises(KeyboardInterrupt):
        ctrl_c()
    with pytest.raises(ZeroDivisionError):
        within(guard, lambda: 1 // 0)
    with pytest.raises(KeyboardInterrupt):
        ctrl_c()


def test_a_context_within_another_ends_with_it(guard: InterruptGuard) -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        within(guard, partial(within, guard, ctrl_c), partial(done.append, "the rest"))
    assert done == ["the rest"]


def test_what_its_body_raises_is_not_lost(guard: InterruptGuard) -> None:
    with pytest.raises(KeyboardInterrupt) as raised:
        within(guard, ctrl_c, lambda: 1 // 0)
    assert isinstance(raised.value.__context__, ZeroDivisionError)


def test_closed_it_puts_the_handler_back() -> None:
    guard = InterruptGuard()
    within(guard)
    assert signal.getsignal(signal.SIGINT) is guard
    guard.close()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_guard_that_was_never_entered_changes_nothing() -> None:
    InterruptGuard().close()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.SIG_DFL])
def test_a_guard_does_nothing_where_no_python_code_is_called(guard: InterruptGuard, handler: signal.Handlers) -> None:
    signal.signal(signal.SIGINT, handler)
    within(guard)
    within(guard)
    assert signal.signal(signal.SIGINT, signal.default_int_handler) is handler


def test_a_handler_that_is_set_while_there_is_a_guard_is_told_of_each_once(guard: InterruptGuard) -> None:
    """Though it calls the one that it found, which is the guard's."""
    within(guard)
    found = signal.getsignal(signal.SIGINT)
    calls: list[str] = []

    def mine(signum: int, frame: Any) -> None:
        calls.append("mine")
        found(signum, frame)  # type: ignore[operator,misc]  # it is the guard

    signal.signal(signal.SIGINT, mine)
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        within(guard, ctrl_c, partial(done.append, "all"))
    with pytest.raises(KeyboardInterrupt):
        ctrl_c()
    guard.close()

    assert (done, calls) == (["all"], ["mine", "mine"])
    assert signal.signal(signal.SIGINT, signal.default_int_handler) is mine


def test_one_that_somebody_puts_back_when_it_is_closed_hands_on() -> None:
    guard = InterruptGuard()
    within(guard)
    guard.close()
    signal.signal(signal.SIGINT, guard)
    with pytest.raises(KeyboardInterrupt):
        ctrl_c()
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_a_guard_within_the_time_of_another_hands_on_to_it(guard: InterruptGuard) -> None:
    within(guard)
    inner = InterruptGuard()
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        within(inner, ctrl_c, partial(done.append, "all"))
    inner.close()

    assert done == ["all"]
    assert signal.getsignal(signal.SIGINT) is guard


def test_a_guard_within_an_undisturbed_context_leaves_it_to_that(guard: InterruptGuard) -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        interrupted(partial(within, guard, ctrl_c), partial(done.append, "all"))
    assert done == ["all"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_on_another_thread_a_guard_does_nothing(guard: InterruptGuard) -> None:
    thread = threading.Thread(target=within, args=(guard,))
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_guard_that_is_closed_within_an_undisturbed_context_is_gone_with_that() -> None:
    guard = InterruptGuard()
    within(guard)
    with pytest.raises(KeyboardInterrupt):
        interrupted(guard.close, ctrl_c)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_closed_guards_that_somebody_puts_back_do_not_add_up() -> None:
    """As the Trainer does with the handler that it found, after each run that failed."""
    guard = InterruptGuard()
    for _ in range(2000):
        guard = InterruptGuard()
        within(guard)
        guard.close()
        signal.signal(signal.SIGINT, guard)
    assert guard._previous is signal.default_int_handler

    with pytest.raises(KeyboardInterrupt):
        ctrl_c()
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_the_handler_of_a_guard_that_may_not_stay_is_gone_after_each_context() -> None:
    done: list[str] = []
    guard = InterruptGuard(may_stay=False)
    with pytest.raises(KeyboardInterrupt):
        within(guard, ctrl_c, partial(done.append, "all"))

    assert done == ["all"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
