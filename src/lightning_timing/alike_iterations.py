"""Iterations whose phases lie between the same edges, taken into the figures together.

`docs/architecture.md` shows with one batch where the edges come from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice, repeat
from operator import add, sub
from typing import NamedTuple

from lightning_timing.ledger import Interval
from lightning_timing.measured_iterations import NOTHING, IterationLabel, MeasuredByUser, MeasuredIteration
from lightning_timing.measurement import Measurement
from lightning_timing.stage_totals import StageTotals

Moments = Sequence[int]
"""The times of one iteration's edges, from its beginning to its end, or the times of one edge in several iterations, in
nanoseconds on the clock. Sums and differences are taken over all iterations edge by edge, by C code."""

EdgePair = tuple[int, int]
"""The indices of two edges of an iteration, which stand for the time between them."""


class PhaseEdges(NamedTuple):
    """Between which edges of its iteration an interval of a phase lies.

    Attributes:
        measurement: The measurement of the phase.
        begin: Index of the edge at which it begins.
        end: Index of the edge at which it ends.
        own: The pairs of edges between which its own time lies, without the phases inside it; None where it was paused.
    """

    measurement: Measurement
    begin: int
    end: int
    own: tuple[EdgePair, ...] | None

    def own_ns(self, edges: Sequence[Moments]) -> list[int]:
        """Returns the own time of the interval in each iteration, in nanoseconds.

        Args:
            edges: The times of each edge in all iterations.
        """
        (since, to), *others = self.own or ((0, 0),)
        own = list(map(sub, edges[to], edges[since]))
        for since, to in others:
            own = list(map(add, own, map(sub, edges[to], edges[since])))
        return own


class AlikeIterations(NamedTuple):
    """Successive iterations of a stage whose phases lie between the same edges.

    Attributes:
        stage: The stage.
        phases: The intervals of the phases in each, in the order in which they end.
        moments: The times of the edges of each iteration.
        labels: The label of each iteration.
        intervals_kept: How many iterations, from the first on, are handed on with the positions of their intervals.
        by_user: What the user measured in each iteration; empty where there is nothing in any.
    """

    stage: StageTotals
    phases: tuple[PhaseEdges, ...]
    moments: Sequence[Moments]
    labels: Sequence[IterationLabel]
    intervals_kept: int
    by_user: Sequence[MeasuredByUser] = ()

    def take(self) -> Iterator[MeasuredIteration]:
        """Adds the iterations to the figures of their stage. Returns them in the form in which they are handed on."""
        edges = list(zip(*self.moments, strict=True))
        totals = list(map(sub, edges[-1], edges[0]))
        of_phases = [(phase.measurement, phase.own_ns(edges)) for phase in self.phases if phase.own is not None]
        claimed = map(sum, zip(*(own_ns for _, own_ns in of_phases), strict=True)) if of_phases else repeat(0)
        ns = self.stage.take_alike(self.labels, totals, list(map(sub, totals, claimed)), of_phases)
        for measurement, taken in chain.from_iterable(measured.times for measured in self.by_user):
            measurement.distribution.pending.extend(taken)
        return self._handed_on(edges, ns)

    def _handed_on(self, edges: Sequence[Moments], ns: Mapping[str, Sequence[int]]) -> Iterator[MeasuredIteration]:
        stage, begins = self.stage.name, edges[0]
        each = zip(self.labels, begins, zip(*ns.values(), strict=True), self._intervals(edges), strict=False)
        for (label, begin_ns, sums, intervals), by_user in zip(each, self.by_user or repeat(NOTHING), strict=False):
            sums_by_name = dict(zip(ns, sums, strict=True))
            for measurement, taken in by_user.times:
                sums_by_name[measurement.name] = sum(taken)
            placed = intervals if intervals is None else by_user.among(intervals, begin_ns)
            yield MeasuredIteration(stage, label, begin_ns, sums_by_name, placed)

    def _intervals(self, edges: Sequence[Moments]) -> Iterator[list[Interval] | None]:
        """Yields the intervals of each iteration that keeps them, then None without end."""
        begins, kept = edges[0], max(0, self.intervals_kept)
        places = [list(map(sub, moments, begins)) for moments in edges] if kept else edges
        columns = [zip(repeat(phase.measurement.name), places[phase.begin], places[phase.end]) for phase in self.phases]
        rows = map(list, zip(*columns, strict=True)) if columns else repeat([])
        return chain(islice(rows, kept), repeat(None))
