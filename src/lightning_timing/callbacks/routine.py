"""Recognises iterations that have the same edges as an earlier one, and counts them without replaying their edges.

Nearly all iterations of a training have the same edges in the same order. What the machine makes of these does not
depend on their times, so it is learnt once: which phases there are, and between which edges each of them runs.
`docs/architecture.md` shows it with one batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from lightning_timing.alike_iterations import EdgePair, Moments, PhaseEdges
from lightning_timing.callbacks.edges import STRIDE, Edges, one_by_one
from lightning_timing.callbacks.followers import Followers
from lightning_timing.callbacks.phase_machine import PhaseMachine
from lightning_timing.late_recorder import LateRecorder
from lightning_timing.measured_iterations import IterationLabel
from lightning_timing.measurement import Measurement
from lightning_timing.stage_totals import StageTotals

_MAX_KNOWN: Final = 8
"""Routines that are remembered. A training that accumulates gradients has two or three."""

HandleWhole = Callable[[list[int]], None]
"""Handles whole iterations. Where that is edge by edge, it sets the only element of the list to the time of each, which
the recorder's clock then shows."""


class Routine(NamedTuple):
    """The phases that follow from a certain sequence of edges.

    Attributes:
        handles: The handlers of the edges, in order.
        stage: The stage to which the measurements belong.
        label_at: Index of the label among the entries of the edges, counted from the first of them.
        phases: The intervals of the phases, in the order in which they end.
        skipped: Whether the step returned None.
    """

    handles: list[Callable[..., object]]
    stage: StageTotals
    label_at: int
    phases: tuple[PhaseEdges, ...]
    skipped: bool

    def is_of(self, handles: list[Callable[..., object]], stage: StageTotals) -> bool:
        """Whether it is the routine of an iteration with these edges in this stage."""
        return self.handles == handles and self.stage is stage


class _Scribe:
    """Replaces the recorder while an iteration is handled: notes what happens at which edge, and passes it on.

    Attributes:
        edge: Index of the edge that is being handled.
        is_odd: Whether something happened that belongs to no whole iteration.
    """

    def __init__(self, recorder: LateRecorder) -> None:
        self.edge = 0
        self.is_odd = False
        self._recorder = recorder
        self._bounds: list[int] = []
        self._label = IterationLabel()
        self._phases: list[PhaseEdges] = []
        self._open: list[tuple[Measurement, int, list[EdgePair]]] = []
        self._paused: dict[Measurement, list[EdgePair]] = {}
        self._last = 0

    def routine(self, edges: Edges) -> Routine | None:
        """Returns the routine learnt from these edges; None where they are not those of one whole iteration."""
        handles, labels = edges[::STRIDE], edges[2::STRIDE]
        is_whole = self._bounds == [0, len(handles) - 1] and not (self.is_odd or self._open or self._paused)
        label_at = next((at for at, label in enumerate(labels) if label is not None), None)
        if not is_whole or label_at is None:
            return None
        stage = self._recorder.stage
        return Routine(handles, stage, STRIDE * label_at + 2, tuple(self._phases), self._label.skipped)

    def begin_iteration(self) -> None:
        self._bounds.append(self.edge)
        self._recorder.begin_iteration()

    def close_iteration(self, at_last: bool) -> None:
        self._bounds.append(self.edge)
        self.is_odd |= at_last
        self._recorder.close_iteration(at_last)

    def count_iteration(self, label: IterationLabel) -> None:
        self._label = label
        self._recorder.count_iteration(label)

    def enter(self, phase: str, since_last: bool) -> None:
        if not since_last:
            self._pass()
        self._open.append((self._recorder.stage.phases[phase], self._last, []))
        self._recorder.enter(phase, since_last)

    def leave(self, paused: bool) -> None:
        self._pass()
        self._recorder.leave(paused)
        if not self._open:
            self.is_odd = True
            return
        measurement, begin, own = self._open.pop()
        own = self._paused.pop(measurement, []) + own
        if paused:
            self._paused[measurement] = own
        self._phases.append(PhaseEdges(measurement, begin, self.edge, None if paused else tuple(_joined(own))))

    def _pass(self) -> None:
        """Gives the time between the last boundary and this edge to the innermost phase."""
        if self._open and self.edge > self._last:
            self._open[-1][2].append((self._last, self.edge))
        self._last = self.edge

    def begin_stage(self, stage: str) -> None:
        self.is_odd = True
        self._recorder.begin_stage(stage)

    def begin_first_data_wait(self, resumed: bool) -> None:
        self.is_odd = True
        self._recorder.begin_first_data_wait(resumed)

    def end_first_data_wait(self) -> None:
        self.is_odd = True
        self._recorder.end_first_data_wait()

    def drop_iteration(self) -> None:
        self.is_odd = True
        self._recorder.drop_iteration()

    def rest(self) -> None:
        self.is_odd = True
        self._recorder.rest()


class Routines:
    """The routines that are known, the last one learnt first.

    Args:
        machine: Handles the edges.
        followers: Notified of iterations and phases.
        recorder: The only follower.

    Attributes:
        recorder: The only follower, which is notified late.
    """

    def __init__(self, machine: PhaseMachine, followers: Followers, recorder: LateRecorder) -> None:
        self._machine = machine
        self._followers = followers
        self.recorder = recorder
        self._known: deque[Routine] = deque(maxlen=_MAX_KNOWN)

    def recognise(self, edges: Edges, at: int, whole: Mapping[int, int]) -> tuple[int, HandleWhole] | None:
        """Finds out how to handle an iteration, together with those right after it that have the same edges.

        Args:
            edges: The list that holds its edges, among others.
            at: Index at which the iteration begins in the list.
            whole: For each whole iteration in the list, the index at which it begins and the one at which it has ended.

        Returns:
            The index at which the last one of them ends, and the function that handles them; None where the edges are
            to be handled each for itself.
        """
        if not self._machine.is_at_turn or not self.recorder.takes_whole_iterations:
            return None
        end = whole[at]
        handles = edges[at:end:STRIDE]
        routine = next((known for known in self._known if known.is_of(handles, self.recorder.stage)), None)
        if routine is None:
            return end, partial(self._learn, edges[at:end])
        iterations: list[Moments] = []
        labels: list[IterationLabel] = []
        while at in whole and edges[at : whole[at] : STRIDE] == routine.handles:
            iterations.append(edges[at + 1 : whole[at] : STRIDE])
            labels.append(edges[at + routine.label_at])
            at = whole[at]
        return at, partial(self._take, routine, iterations, labels)

    def _take(
        self, routine: Routine, iterations: Sequence[Moments], labels: Sequence[IterationLabel], moment: list[int]
    ) -> None:
        if routine.skipped:
            labels = [label._replace(skipped=True) for label in labels]
        try:
            self.recorder.take_alike(routine.phases, iterations, labels)
        except Exception as error:  # noqa: BLE001  # whatever it is: it must not end the loop that is watched
            self._followers.failed(self.recorder, error)

    def _learn(self, edges: Edges, moment: list[int]) -> None:
        scribe = _Scribe(self.recorder)
        with self._followers.stand_in(self.recorder, scribe):
            for scribe.edge, (handle, moment[0], label) in enumerate(one_by_one(edges)):
                handle() if label is None else handle(label)
        routine = scribe.routine(edges)
        if routine is not None:
            self._known.appendleft(routine)


def _joined(pairs: Sequence[EdgePair]) -> list[EdgePair]:
    """Merges pairs of which one ends at the edge at which the next begins."""
    joined: list[EdgePair] = []
    for since, to in pairs:
        if joined and joined[-1][1] == since:
            joined[-1] = (joined[-1][0], to)
        else:
            joined.append((since, to))
    return joined
