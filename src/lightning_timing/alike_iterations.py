"""Iterations whose phases lie between the same edges, taken into the figures together.

`docs/architecture.md` shows with one batch where the edges come from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice, repeat
from operator import add, sub
from typing import NamedTuple

from lightning_timing.ledger import Interval
from lightning_timing.measurement import Measurement
from lightning_timing.recording import NOTHING, IterationLabel, MeasuredIteration, UserShare
from lightning_timing.stage_record import StageRecord

Moments = Sequence[int]
"""The times of one iteration's edges, from its beginning to its end, or the times of one edge in several iterations, in
nanoseconds on the clock. Sums and differences are taken over all iterations edge by edge, by C code."""

Stretch = tuple[int, int]
"""The time between two edges, given by their indices in the iteration."""


class Slot(NamedTuple):
    """An interval of a phase.

    Attributes:
        measurement: The measurement of the phase.
        begin: Index of the edge at which it begins.
        end: Index of the edge at which it ends.
        own: The stretches of its own time, without the phases inside it; None where it was paused.
    """

    measurement: Measurement
    begin: int
    end: int
    own: tuple[Stretch, ...] | None

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
        slots: The intervals of the phases in each, in the order in which they end.
        moments: The times of the edges of each iteration.
        labels: The label of each iteration.
        intervals_kept: How many iterations, from the first on, are handed on with the positions of their intervals.
        shares: What the user measured in each iteration; empty where there is nothing in any.
    """

    stage: StageRecord
    slots: tuple[Slot, ...]
    moments: Sequence[Moments]
    labels: Sequence[IterationLabel]
    intervals_kept: int
    shares: Sequence[UserShare] = ()

    def take(self) -> Iterator[MeasuredIteration]:
        """Adds the iterations to the figures of their stage. Returns them in the form in which they are handed on."""
        edges = list(zip(*self.moments, strict=True))
        totals = list(map(sub, edges[-1], edges[0]))
        samples = [(slot.measurement, slot.own_ns(edges)) for slot in self.slots if slot.own is not None]
        claimed = map(sum, zip(*(own_ns for _, own_ns in samples), strict=True)) if samples else repeat(0)
        ns = self.stage.take_alike(self.labels, totals, list(map(sub, totals, claimed)), samples)
        for measurement, taken in chain.from_iterable(share.samples for share in self.shares):
            measurement.distribution.pending.extend(taken)
        return self._handed_on(edges, ns)

    def _handed_on(self, edges: Sequence[Moments], ns: Mapping[str, Sequence[int]]) -> Iterator[MeasuredIteration]:
        stage, begins = self.stage.name, edges[0]
        each = zip(self.labels, begins, zip(*ns.values(), strict=True), self._intervals(edges), strict=False)
        for (label, begin_ns, sums, intervals), share in zip(each, self.shares or repeat(NOTHING), strict=False):
            sums_by_name = dict(zip(ns, sums, strict=True))
            for measurement, taken in share.samples:
                sums_by_name[measurement.name] = sum(taken)
            placed = intervals if intervals is None else share.among(intervals, begin_ns)
            yield MeasuredIteration(stage, label, begin_ns, sums_by_name, placed)

    def _intervals(self, edges: Sequence[Moments]) -> Iterator[list[Interval] | None]:
        """Yields the intervals of each iteration that keeps them, then None without end."""
        begins, kept = edges[0], max(0, self.intervals_kept)
        places = [list(map(sub, moments, begins)) for moments in edges] if kept else edges
        columns = [zip(repeat(slot.measurement.name), places[slot.begin], places[slot.end]) for slot in self.slots]
        rows = map(list, zip(*columns, strict=True)) if columns else repeat([])
        return chain(islice(rows, kept), repeat(None))
