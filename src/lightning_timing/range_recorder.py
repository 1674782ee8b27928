"""Writes the ranges of an enabled NVTXRangeWrapper to a sink, and lets each thread close only its own."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING, Final

from lightning_timing.caller import caller_place
from lightning_timing.compiling import compiling_probe
from lightning_timing.errors import MisuseError, RangeMismatchError
from lightning_timing.failsafe import warn_of_run
from lightning_timing.range_attributes import PreparedRanges
from lightning_timing.range_stack import OpenRange, Stacks, ThreadStack, one_a_line

if TYPE_CHECKING:
    from lightning_timing.nvtx_domain import RangeSink

MAX_LEFT_OPEN: Final = 100
"""Ranges left open that are kept for the report: one that is left open in every iteration must not be a leak."""

_LEFT_OPEN: Final = "left open"


class RangeRecorder:
    """Pushes and pops ranges for every thread of the process.

    Args:
        sink: Takes the ranges.
        tracked: Whether to note where each range is pushed, and to raise where something is out of order; otherwise
            what is out of order is ignored, with one warning.
        sync_on_push: Called before a range is opened.
        sync_on_pop: Called before a range is closed.
    """

    def __init__(
        self,
        sink: RangeSink,
        tracked: bool,
        sync_on_push: Callable[[], None] | None = None,
        sync_on_pop: Callable[[], None] | None = None,
    ) -> None:
        self._sink = sink
        self._push = sink.push
        self._pop = sink.pop
        self._tracked = tracked
        self._sync_on_push = sync_on_push
        self._sync_on_pop = sync_on_pop
        self._is_compiling = compiling_probe()
        self._by_thread: dict[int, ThreadStack] = {}
        self._local = Stacks(self._by_thread)
        self._left_open: list[OpenRange] = []
        self._warned: set[str] = set()
        self._outside = self._prepared_for(None)
        self._by_stage: dict[str, PreparedRanges] = {}
        self._prepared = self._outside
        self._stage: str | None = None
        self._batch_idx = 0

    def push(self, name: str) -> None:
        """Opens a range on the calling thread.

        Raises:
            MisuseError: If ranges are tracked and the name cannot be used.
        """
        if self._is_compiling():
            return
        ranges = self._prepared
        try:
            prepared = ranges[name]
        except TypeError:  # not hashable, so not a str
            prepared = ranges.__missing__(name)
        if ranges.set_payload is not None:
            ranges.set_payload(prepared, self._batch_idx)
        if self._sync_on_push is not None:
            self._sync_on_push()
        self._local.stack.entries.append(self._track(name) if self._tracked else name)
        self._push(prepared)

    def pop(self, expected_name: str | None) -> None:
        """Closes the calling thread's innermost range, unless that is a phase.

        Raises:
            RangeMismatchError: If ranges are tracked, and there is none to close or it has another name.
        """
        if self._is_compiling():
            return
        stack = self._local.stack
        if len(stack.entries) == stack.floor:
            self._refuse_pop(stack, expected_name)
            return
        if self._tracked and expected_name is not None and stack.name_of(-1) != expected_name:
            raise RangeMismatchError(_mismatch(stack, expected_name))
        self._close(stack)

    def push_phase(self, phase: str, stage: str, batch_idx: int) -> None:
        """Opens a phase on the calling thread."""
        self._batch_idx = batch_idx
        if stage != self._stage:
            self._enter_stage(stage)
        self.push(phase)
        self._local.stack.enter_phase()

    def pop_phase(self) -> None:
        """Closes the calling thread's innermost phase, and first what was left open inside it."""
        stack = self._local.stack
        if not stack.in_phase:
            return
        self._close_down_to(stack, stack.floor)
        self._close(stack)
        stack.leave_phase()
        if not stack.in_phase:
            self._leave_stage()

    def unwind(self, name: str) -> None:
        """Closes the calling thread's ranges down to the innermost one of this name, if it is open and no phase."""
        if self._is_compiling():
            return
        stack = self._local.stack
        for index in range(len(stack.entries) - 1, stack.floor - 1, -1):
            if stack.name_of(index) == name:
                self._close_down_to(stack, index + 1)
                self._close(stack)
                return

    def open_ranges(self) -> list[OpenRange]:
        """The ranges that are open on any thread, each thread's innermost first."""
        return [entry for stack in list(self._by_thread.values()) for entry in stack.describe()]

    def close_all(self, quietly: bool = False) -> list[OpenRange]:
        """Closes the calling thread's ranges, innermost first.

        Args:
            quietly: Do not warn of those that were left open, since the user is not to blame.

        Returns:
            The ranges, phases aside, that user code left open so far: on this thread, closed now or at the end of a
            phase; on other threads, still open, since only the thread that opened a range can close it.
        """
        if quietly:
            self._warned.add(_LEFT_OPEN)
        stack = self._local.stack
        while stack.in_phase:
            self.pop_phase()
        self._close_down_to(stack, 0)
        elsewhere = [entry for entry in self.open_ranges() if not entry.is_phase]
        left_open, self._left_open = self._left_open, []
        return left_open + elsewhere

    def forget_open(self) -> None:
        """Forgets the ranges that are open, without closing them."""
        self._by_thread = {}
        self._local = Stacks(self._by_thread)
        self._leave_stage()

    def _close(self, stack: ThreadStack) -> None:
        if self._sync_on_pop is not None:
            self._sync_on_pop()
        self._pop()
        stack.entries.pop()

    def _track(self, name: str) -> OpenRange:
        iteration = f"{self._stage} batch {self._batch_idx}" if self._stage is not None else None
        return OpenRange(name, self._local.stack.thread, caller_place(), iteration)

    def _close_down_to(self, stack: ThreadStack, height: int) -> None:
        """Closes what user code left open, innermost first, until `height` entries are left."""
        if len(stack.entries) == height:
            return
        left_open = stack.describe(lowest=height)
        self._left_open += left_open[: MAX_LEFT_OPEN - len(self._left_open)]
        for _ in left_open:
            self._close(stack)
        self._warn(_LEFT_OPEN, f"ranges left open have been closed with what encloses them:\n{one_a_line(left_open)}")

    def _enter_stage(self, stage: str) -> None:
        self._stage = stage
        if stage not in self._by_stage:
            self._by_stage[stage] = self._prepared_for(stage)
        self._prepared = self._by_stage[stage]

    def _leave_stage(self) -> None:
        self._stage = None
        self._prepared = self._outside

    def _prepared_for(self, stage: str | None) -> PreparedRanges:
        return PreparedRanges(self._sink, stage, self._on_bad_name)

    def _on_bad_name(self, reason: str, substitute: str) -> None:
        message = f"range_push at {caller_place()}: {reason}"
        if self._tracked:
            raise MisuseError(message)
        self._warn(reason, f"{message}; the range is recorded as {substitute}")

    def _refuse_pop(self, stack: ThreadStack, expected_name: str | None) -> None:
        elsewhere = chain.from_iterable(
            other.describe(lowest=other.floor) for other in list(self._by_thread.values()) if other is not stack
        )
        message = (
            f"range_pop({'' if expected_name is None else repr(expected_name)}) at {caller_place()}: thread "
            f"{stack.thread} has no range open that it could close. A range is closed by the thread that opened it, "
            f"and a phase by the callbacks.\nOpen on this thread:\n{one_a_line(stack.describe())}\n"
            f"Open on other threads:\n{one_a_line(elsewhere)}"
        )
        if self._tracked:
            raise RangeMismatchError(message)
        self._warn("pop", f"{message}\nIt is ignored, and so are further ones without a word.")

    def _warn(self, kind: str, message: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            warn_of_run(message)


def _mismatch(stack: ThreadStack, expected_name: str) -> str:
    return (
        f"range_pop({expected_name!r}) at {caller_place()}: the innermost range is {stack.name_of(-1)!r}, not "
        f"{expected_name!r}.\nOpen on thread {stack.thread}, innermost first:\n{one_a_line(stack.describe())}"
    )
