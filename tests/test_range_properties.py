"""Any order of calls, on any threads, against a simple model: every range closes once, by whoever opened it."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from fake_sink import FakeTool
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from lightning_timing.range_recorder import RangeRecorder

if TYPE_CHECKING:
    from collections.abc import Callable

NAMES = st.sampled_from(["a", "b", "c"])
THREADS = st.integers(0, 1)


class RangeStackMachine(RuleBasedStateMachine):
    """One recorder, two threads, and what should be open on each. In the model a phase is a name in capitals."""

    def __init__(self) -> None:
        super().__init__()
        self.tool = FakeTool()
        self.recorder = RangeRecorder(self.tool.sink, tracked=False)
        self.threads = [ThreadPoolExecutor(1, thread_name_prefix=f"worker{number}") for number in range(2)]
        self.model: list[list[str]] = [[], []]
        self.pushes = 0

    def teardown(self) -> None:
        for number in range(2):
            self.on(number, self.recorder.close_all)
        for thread in self.threads:
            thread.shutdown()
        closed = [event for event in self.tool.events if event.startswith("-")]
        assert len(closed) == self.pushes
        assert self.recorder.open_ranges() == []
        assert self.tool.bare_pops == 0

    def on(self, thread: int, call: Callable[[], object]) -> None:
        def quietly() -> None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                call()

        self.threads[thread].submit(quietly).result()

    @rule(thread=THREADS, name=NAMES)
    def push(self, thread: int, name: str) -> None:
        self.on(thread, lambda: self.recorder.push(name))
        self.model[thread].append(name)
        self.pushes += 1

    @rule(thread=THREADS, expected=st.none() | NAMES)
    def pop(self, thread: int, expected: str | None) -> None:
        self.on(thread, lambda: self.recorder.pop(expected))
        stack = self.model[thread]
        if stack and stack[-1].islower():
            stack.pop()

    @rule(thread=THREADS, name=NAMES, batch_idx=st.integers(0, 9))
    def push_phase(self, thread: int, name: str, batch_idx: int) -> None:
        self.on(thread, lambda: self.recorder.push_phase(name.upper(), "train", batch_idx))
        self.model[thread].append(name.upper())
        self.pushes += 1

    @rule(thread=THREADS)
    def pop_phase(self, thread: int) -> None:
        self.on(thread, self.recorder.pop_phase)
        stack = self.model[thread]
        if any(name.isupper() for name in stack):
            while stack.pop().islower():
                pass

    @rule(thread=THREADS, name=NAMES)
    def unwind(self, thread: int, name: str) -> None:
        self.on(thread, lambda: self.recorder.unwind(name))
        stack = self.model[thread]
        phase = max((index for index, other in enumerate(stack) if other.isupper()), default=-1)
        if name in stack[phase + 1 :]:
            while stack.pop() != name:
                pass

    @invariant()
    def what_is_open_is_what_the_model_says(self) -> None:
        seen = [stack for name, stack in sorted(self.tool.by_thread.items()) if stack]
        assert seen == [stack for stack in self.model if stack]
        assert self.tool.bare_pops == 0
        described = sorted((entry.name, entry.is_phase) for entry in self.recorder.open_ranges())
        assert described == sorted((name, name.isupper()) for stack in self.model for name in stack)


TestRangeStack = RangeStackMachine.TestCase
TestRangeStack.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
