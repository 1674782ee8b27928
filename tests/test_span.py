"""`span` round blocks, functions, coroutines; what it cannot time it refuses."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import pytest
from known_cost import FakeClock
from whole_suite import Suite

from lightning_timing import MisuseError, NVTXRangeWrapper, Stopwatch, TimingError, span
from lightning_timing.span import Span
from lightning_timing.stopwatch import STOPWATCH

MS = 1_000_000


@pytest.fixture
def clock() -> Iterator[FakeClock]:
    clock = FakeClock(now_ns=0)
    stopwatch = Stopwatch(num_warmup_iters=0, clock=clock)
    yield clock
    stopwatch.reset()


def counts_and_means() -> dict[str, tuple[int, float | None]]:
    Stopwatch().finish_iter()
    measurements = Stopwatch().summary().stages["train"].measurements
    return {name: (m.count, m.mean_s) for name, m in measurements.items()}


def test_a_block_a_function_and_a_coroutine_are_timed(clock: FakeClock) -> None:
    @span("function")
    def add(a: int, *, b: int) -> int:
        clock.advance(2 * MS)
        return a + b

    @span("coroutine")
    async def wait() -> str:
        clock.advance(3 * MS)
        await asyncio.sleep(0)
        return "done"

    with span("block"):
        clock.advance(MS)
    assert add(1, b=2) == 3
    assert asyncio.run(wait()) == "done"

    assert counts_and_means() == {"block": (1, 0.001), "function": (1, 0.002), "coroutine": (1, 0.003)}


def test_what_a_block_raises_passes_through_and_the_span_is_closed(clock: FakeClock) -> None:
    error = KeyError("the user's")

    @span("block")
    def fail() -> None:
        clock.advance(MS)
        raise error

    with pytest.raises(KeyError) as raised:
        fail()

    assert raised.value is error
    assert counts_and_means() == {"block": (1, 0.001)}


def test_a_decorator_made_while_nothing_is_enabled_works_from_then_on(clock: FakeClock) -> None:
    Stopwatch().reset()

    @span("early")
    def work() -> None:
        clock.advance(MS)

    work()
    Stopwatch(num_warmup_iters=0, clock=clock)
    work()

    assert counts_and_means() == {"early": (1, 0.001)}


def test_a_span_without_a_name_is_refused_at_once_and_says_how_to_write_it() -> None:
    def work() -> None:
        """Is never called."""

    async def later() -> None:
        """Neither is this."""

    class Work:
        """Nor is this made."""

    for without_name in (work, later, Work, len):
        with pytest.raises(TimingError, match=rf'not .*{without_name.__name__} itself: write @span\("name"\)'):
            span(without_name)


def test_a_generator_function_is_refused_since_its_call_does_no_work() -> None:
    def numbers() -> Iterator[int]:
        yield 1

    async def later_numbers() -> AsyncIterator[int]:
        yield 1

    for function in (numbers, later_numbers, functools.partial(numbers)):
        with pytest.raises(TimingError, match="inside it"):
            span("numbers")(function)


# ---- switched on and off around it, inside it, and beside it ----


def test_a_span_does_nothing_while_nothing_is_enabled_and_gives_no_value() -> None:
    held = span("held")
    with held as value, span("other") as other:
        assert (value, other) == (None, None)
    with ExitStack() as stack:
        assert stack.enter_context(held) is None
    with pytest.raises(KeyError, match="the user's"), held:
        raise KeyError("the user's")


def test_a_range_is_closed_again_where_the_measurement_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    tool = Suite(monkeypatch).tool
    Stopwatch(num_warmup_iters=0)
    NVTXRangeWrapper().enable()
    with pytest.raises(MisuseError, match="'outer' was started twice"), span("outer"), span("outer"):
        pass
    Stopwatch().disable()
    NVTXRangeWrapper().disable()

    assert tool.events == ["+outer", "+outer", "-outer", "-outer"]


def test_a_range_is_closed_where_its_measurement_was_ended_before(monkeypatch: pytest.MonkeyPatch) -> None:
    tool = Suite(monkeypatch).tool
    Stopwatch(num_warmup_iters=0)
    NVTXRangeWrapper().enable()
    with pytest.raises(MisuseError, match="'block' was ended without having been started"), span("block"):
        Stopwatch().end_meas("block")

    assert tool.events == ["+block", "-block"]
    Stopwatch().disable()
    NVTXRangeWrapper().disable()


def test_a_block_ends_as_it_began_whatever_is_switched_on_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    tool = Suite(monkeypatch).tool
    clock = FakeClock(now_ns=0)
    held = span("held")
    with held:
        Stopwatch(num_warmup_iters=0, clock=clock)
        with held:
            clock.advance(MS)
            NVTXRangeWrapper().enable()
        with held:
            clock.advance(2 * MS)
    assert counts_and_means() == {"held": (2, 0.0015)}
    assert tool.events == ["+held", "-held"]
    NVTXRangeWrapper().disable()
    Stopwatch().reset()


@pytest.mark.parametrize("fails", [False, True])
def test_what_is_switched_off_in_a_block_is_left_alone_at_its_end(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = Suite(monkeypatch).tool
    Stopwatch(num_warmup_iters=0)
    NVTXRangeWrapper().enable()
    with suppress(ZeroDivisionError), span("outer"):
        with span("inner"):
            Stopwatch().disable()
        with pytest.warns(UserWarning, match="left open"):
            NVTXRangeWrapper().disable()
        assert not fails or 1 / 0
    assert tool.events == ["+outer", "+inner", "-inner", "-outer"]
    assert Stopwatch().summary().stages["train"].measurements["inner"].count == 0


@pytest.mark.parametrize("ranges", [False, True])
@pytest.mark.parametrize("stopwatch", [False, True])
def test_a_span_does_what_is_enabled_and_no_more(
    stopwatch: bool, ranges: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = Suite(monkeypatch).tool
    held = span("held")
    for _ in range(2):
        if stopwatch:
            Stopwatch(num_warmup_iters=0)
        if ranges:
            NVTXRangeWrapper().enable()
        with held:
            pass
        if stopwatch:
            assert {name: count for name, (count, _) in counts_and_means().items()} == {"held": 1}
        assert tool.events == (["+held", "-held"] if ranges else [])
        tool.events.clear()
        NVTXRangeWrapper().disable()
        Stopwatch().reset()
        with held:
            pass
        assert tool.events == []
        assert Stopwatch().summary().stages == {}


@pytest.mark.filterwarnings("ignore:.* was ended without having been started")  # switched off and on again inside it
def test_spans_fail_nowhere_while_another_thread_switches_on_and_off() -> None:
    stop = threading.Event()
    does_nothing = Span.__enter__, Span.__exit__

    def enter() -> int:
        entered = 0
        while not stop.is_set():
            with span("mine"):
                entered += 1
        return entered

    with ThreadPoolExecutor(2) as pool:
        entering = [pool.submit(enter) for _ in range(2)]
        try:
            for _ in range(300):
                Stopwatch().enable(num_warmup_iters=0, on_misuse="warn")
                NVTXRangeWrapper().enable()
                Stopwatch().disable()
                NVTXRangeWrapper().disable()
        finally:
            stop.set()
        assert all(each.result(60) for each in entering)
    assert (Span.__enter__, Span.__exit__) == does_nothing


def test_both_may_be_switched_at_once_by_two_threads() -> None:
    def switch(enable: Callable[[], object], disable: Callable[[], object]) -> None:
        for _ in range(300):
            enable()
            disable()
        enable()

    mine, ranges = Stopwatch(), NVTXRangeWrapper()
    with ThreadPoolExecutor(2) as pool:
        switching = [
            pool.submit(switch, lambda: mine.enable(num_warmup_iters=0), mine.disable),
            pool.submit(switch, lambda: ranges.enable(keep_track_of_range_order=True), ranges.disable),
        ]
        for each in switching:
            each.result(60)
    with span("mine"):
        with pytest.warns(UserWarning, match="left open"):
            assert [each.name for each in ranges._close_open_ranges()] == ["mine"]
        assert STOPWATCH._recorder is not None
        assert STOPWATCH._recorder.stage.user_measurements["mine"].is_open_on_any
        ranges.disable()
    mine.reset()


def test_a_handler_that_raises_as_it_is_switched_on_leaves_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    for singleton, enable in (
        (Stopwatch, lambda: Stopwatch().enable()),
        (NVTXRangeWrapper, lambda: NVTXRangeWrapper().enable(keep_track_of_range_order=True)),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(singleton, "_on_switch", staticmethod(interrupted))
            with pytest.raises(KeyboardInterrupt):
                enable()
        assert singleton()._recorder is None
