"""Iterations whose phases lie between the same edges, taken into the figures together."""

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
"""Those of the edges of one iteration, from its beginning to its end, in nanoseconds on the clock; or those of one edge
in several iterations. What is done to all of them is done by C code, an edge at a time."""

Stretch = tuple[int, int]
"""From one edge to another, by their places in the iteration."""


class Slot(NamedTuple):
    """An interval of a phase.

    Attributes:
        measurement: The phase's.
        begin: The edge at which it begins.
        end: The edge at which it ends.
        own: The stretches that are its own, without the phases inside it; None where it was paused.
    """

    measurement: Measurement
    begin: int
    end: int
    own: tuple[Stretch, ...] | None

    def own_ns(self, edges: Sequence[Moments]) -> list[int]:
        """Its own time in each iteration, in nanoseconds.

        Args:
            edges: Of each edge its moments in all iterations.
        """
        (since, to), *others = self.own or ((0, 0),)
        own = list(map(sub, edges[to], edges[since]))
        for since, to in others:
            own = list(map(add, own, map(sub, edges[to], edges[since])))
        return own


class AlikeIterations(NamedTuple):
    """Some iterations of a stage, one after the other.

    Attributes:
        stage: The stage.
        slots: The intervals of the phases in each, in the order in which they end.
        moments: Of each iteration.
        labels: What each is known by.
        intervals_kept: How many of them, the first ones, are handed on with the positions of their intervals.
        shares: What the user measured in each; empty where that is nothing in all of them.
    """

    stage: StageRecord
    slots: tuple[Slot, ...]
    moments: Sequence[Moments]
    labels: Sequence[IterationLabel]
    intervals_kept: int
    shares: Sequence[UserShare] = ()

    def take(self) -> Iterator[MeasuredIteration]:
        """Takes them into the stage's figures. Returns what is to be handed on of each."""
        edges = list(zip(*self.moments, strict=True))
        totals = list(map(sub, edges[-1], edges[0]))
        samples = [(slot.measurement, slot.own_ns(edges)) for slot in self.slots if slot.own is not None]
        claimed = map(sum, zip(*(own_ns for _, own_ns in samples), strict=True)) if samples else repeat(0)
        ns = self.stage.take_alike(self.labels, totals, list(map(sub, totals, claimed)), samples)
        for measurement, taken in chain.from_iterable(share.samples for share in self.shares):
            measurement.distribution.pending.extend(taken)
        return self._handed_on(edges, ns)

    def _handed_on(self, edges: Sequence[Moments], ns: Mapping[str, Sequence[int]]) -> Iterator[MeasuredIteration]:
        stage, begins = self.stage.stage, edges[0]
        each = zip(self.labels, begins, zip(*ns.values(), strict=True), self._intervals(edges), strict=False)
        for (label, begin_ns, sums, intervals), share in zip(each, self.shares or repeat(NOTHING), strict=False):
            sums_by_name = dict(zip(ns, sums, strict=True))
            for measurement, taken in share.samples:
                sums_by_name[measurement.name] = sum(taken)
            placed = intervals if intervals is None else share.among(intervals, begin_ns)
            yield MeasuredIteration(stage, label, begin_ns, sums_by_name, placed)

    def _intervals(self, edges: Sequence[Moments]) -> Iterator[list[Interval] | None]:
        """Those of each iteration, then None for ever."""
        begins, kept = edges[0], max(0, self.intervals_kept)
        places = [list(map(sub, moments, begins)) for moments in edges] if kept else edges
        columns = [zip(repeat(slot.measurement.name), places[slot.begin], places[slot.end]) for slot in self.slots]
        rows = map(list, zip(*columns, strict=True)) if columns else repeat([])
        return chain(islice(rows, kept), repeat(None))
