"""Iterations that are complete, but not taken into the figures yet, nor handed on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import RLock
from typing import Final

from lightning_timing.alike_iterations import AlikeIterations
from lightning_timing.ledger import PhaseTime
from lightning_timing.measured_iterations import IterationLabel, MeasuredByUser, MeasuredIteration
from lightning_timing.stage_totals import StageTotals

MAX_WAITING: Final = 64
"""When this many iterations wait, all of them are worked off."""
MAX_WAIT_NS: Final = 1_000_000_000
"""This many nanoseconds after the last time, the next iteration that ends has all that wait worked off. `Trail` handles
its edges after the same time."""

ClosedIteration = tuple[
    StageTotals,
    IterationLabel,
    int,
    int,
    int | None,
    Sequence[PhaseTime],
    MeasuredByUser,
    bool,
]
"""A closed iteration, as a plain tuple for the hot path: its stage; its label; when it began; how long it took; the
time that no phase claimed, None where there are no phases; the times of the phases; what the user measured; and
whether the positions of intervals are kept. Times are in nanoseconds."""


class ClosedIterations:
    """Adds iterations to the figures several at a time: code that runs once a batch costs several times as much.

    One thread adds iterations. Another thread that asks for figures works them off too; a lock keeps the two apart.

    Attributes:
        on_iteration: Called with each iteration that was added to the figures, unless it is None.
    """

    def __init__(self) -> None:
        self.on_iteration: Callable[[MeasuredIteration], None] | None = None
        self._waiting: deque[ClosedIteration | AlikeIterations] = deque()
        self._worked_off_at = 0
        self._seen: ClosedIteration | AlikeIterations | None = None
        self._working = RLock()  # a signal's handler may ask for figures amid the work

    @property
    def room(self) -> int:
        """How many more can be added until all are worked off."""
        return max(1, MAX_WAITING - len(self._waiting))

    def add(self, closed: ClosedIteration) -> None:
        """Queues an iteration that has just been closed, and works off if that is due."""
        self._waiting.append(closed)
        end_ns = closed[2] + closed[3]
        if len(self._waiting) >= MAX_WAITING or end_ns - self._worked_off_at >= MAX_WAIT_NS:
            self._worked_off_at = end_ns
            self.work_off(wait=False)

    def add_alike(self, iterations: AlikeIterations) -> None:
        """Queues iterations that were gathered elsewhere, and works off at once, since they have waited already."""
        self._waiting.append(iterations)
        self.work_off(wait=False)

    def work_off_if_stuck(self) -> None:
        """Works off all iterations if none was added since the last call. Another thread calls this now and then."""
        last = self._waiting[-1] if self._waiting else None
        if last is not None and last is self._seen:
            self.work_off(wait=False)
        self._seen = last

    @contextmanager
    def worked_off(self) -> Iterator[None]:
        """Works off all iterations, and keeps other threads from working off while the context is open."""
        with self._working:
            self.work_off()
            yield

    def fold(self, stage: StageTotals) -> None:
        """Folds samples of a stage that are in no iteration, unless another thread is working off, and folds them."""
        if self._working.acquire(blocking=False):
            try:
                stage.fold()
            finally:
                self._working.release()

    def work_off(self, *, wait: bool = True) -> None:
        """Adds all waiting iterations to the figures, and hands them on.

        Args:
            wait: Whether to wait for another thread that is working off, some microseconds an iteration. False: leave
                the work to that thread.
        """
        if not wait and not self._waiting:
            return
        # An empty queue does not mean that all are in the figures: another thread may be working on the last one.
        if not self._working.acquire(blocking=wait):
            return
        try:
            stages = {}
            on_iteration = self.on_iteration
            while self._waiting:
                closed = self._waiting.popleft()
                if isinstance(closed, AlikeIterations):
                    stages[closed.stage.name] = closed.stage
                    handed_on = closed.take()
                    if on_iteration is not None:
                        for iteration in handed_on:
                            on_iteration(iteration)
                    continue
                stage, label, _, total_ns, other_ns, of_phases, by_user, _ = closed
                stages[stage.name] = stage
                if on_iteration is not None:
                    on_iteration(measure(closed))
                else:
                    stage.take(label, total_ns, other_ns, of_phases, by_user.times)
            for stage in stages.values():
                stage.fold()
        finally:
            self._working.release()


def measure(closed: ClosedIteration) -> MeasuredIteration:
    """Adds an iteration to the figures of its stage. Returns it in the form in which it is handed on."""
    stage, label, begin_ns, total_ns, other_ns, of_phases, by_user, keeps_intervals = closed
    intervals = None
    if keeps_intervals:
        placed = [(phase.name, begin - begin_ns, end - begin_ns) for phase, _, begin, end in of_phases]
        intervals = by_user.among(placed, begin_ns)
    ns = stage.take(label, total_ns, other_ns, of_phases, by_user.times)
    return MeasuredIteration(stage.name, label, begin_ns, ns, intervals)
