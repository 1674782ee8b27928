"""Iterations that are complete, but not taken into the figures yet, nor handed on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import RLock
from typing import Final

from lightning_timing.alike_iterations import AlikeIterations
from lightning_timing.ledger import Sample
from lightning_timing.recording import IterationLabel, MeasuredIteration, UserShare
from lightning_timing.stage_record import StageRecord

MAX_WAITING: Final = 64
"""As many iterations are worked off at once."""
MAX_WAIT_NS: Final = 1_000_000_000
"""The longest that one waits, if another ends by then."""

ClosedIteration = tuple[
    StageRecord,
    IterationLabel,
    int,
    int,
    int | None,
    Sequence[Sample],
    UserShare,
    bool,
]
"""Its stage and label; when it began, how long it took and what no phase claimed of it, in nanoseconds, the last None
where there are no phases; the samples of the phases and what the user measured; and whether the positions of intervals
are kept. A plain tuple, for the hot path."""


class ClosedIterations:
    """Works off iterations some at a time: what runs once a batch costs several times what it does in a loop.

    One thread adds them. Another that asks for figures has them worked off too, one of the two at a time.

    Attributes:
        on_iteration: Takes each iteration.
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
        """Takes an iteration that has just been closed."""
        self._waiting.append(closed)
        end_ns = closed[2] + closed[3]
        if len(self._waiting) >= MAX_WAITING or end_ns - self._worked_off_at >= MAX_WAIT_NS:
            self._worked_off_at = end_ns
            self.work_off(wait=False)

    def add_alike(self, iterations: AlikeIterations) -> None:
        """Takes iterations that have waited for each other before, and so do not any more."""
        self._waiting.append(iterations)
        self.work_off(wait=False)

    def work_off_if_stuck(self) -> None:
        """Has all of them taken if none was added since the last call: for another thread to call now and then."""
        last = self._waiting[-1] if self._waiting else None
        if last is not None and last is self._seen:
            self.work_off(wait=False)
        self._seen = last

    @contextmanager
    def worked_off(self) -> Iterator[None]:
        """All of them are taken, and no other thread takes further ones until this is left."""
        with self._working:
            self.work_off()
            yield

    def work_off(self, *, wait: bool = True) -> None:
        """Has all of them taken and handed on.

        Args:
            wait: Wait for another thread that is at it, some microseconds an iteration, instead of leaving it to that.
        """
        if not wait and not self._waiting:
            return
        # Another thread may be at the last one, so none that waits does not mean that all have been taken.
        if not self._working.acquire(blocking=wait):
            return
        try:
            stages = {}
            on_iteration = self.on_iteration
            while self._waiting:
                closed = self._waiting.popleft()
                if isinstance(closed, AlikeIterations):
                    stages[closed.stage.stage] = closed.stage
                    handed_on = closed.take()
                    if on_iteration is not None:
                        for iteration in handed_on:
                            on_iteration(iteration)
                    continue
                stage, label, _, total_ns, other_ns, samples, share, _ = closed
                stages[stage.stage] = stage
                if on_iteration is not None:
                    on_iteration(measure(closed))
                else:
                    stage.take(label, total_ns, other_ns, samples, share.samples)
            for stage in stages.values():
                stage.fold()
        finally:
            self._working.release()


def measure(closed: ClosedIteration) -> MeasuredIteration:
    """Takes an iteration's samples into its stage's figures."""
    stage, label, begin_ns, total_ns, other_ns, samples, share, keeps_intervals = closed
    intervals = None
    if keeps_intervals:
        of_phases = [(phase.name, begin - begin_ns, end - begin_ns) for phase, _, begin, end in samples]
        intervals = share.among(of_phases, begin_ns)
    ns = stage.take(label, total_ns, other_ns, samples, share.samples)
    return MeasuredIteration(stage.stage, label, begin_ns, ns, intervals)
