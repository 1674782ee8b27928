"""`span` round blocks, functions, coroutines; what it cannot time it refuses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from known_cost import FakeClock

from lightning_timing import Stopwatch, TimingError, span

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

    for function in (numbers, later_numbers):
        with pytest.raises(TimingError, match="inside it"):
            span("numbers")(function)
