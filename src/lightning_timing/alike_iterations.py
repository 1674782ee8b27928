"""Iterations whose phases lie between the same edges, taken into the figures together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from lightning_timing.measurement import Measurement
from lightning_timing.recording import IterationLabel, MeasuredIteration
from lightning_timing.stage_record import StageRecord

Moments = Sequence[int]
"""Those of the edges of one iteration, from its beginning to its end, in nanoseconds on the clock."""

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

    def own_ns(self, iterations: Sequence[Moments]) -> list[int]:
        """Its own time in each iteration, in nanoseconds."""
        (since, to), *others = self.own or ((0, 0),)
        own = [moments[to] - moments[since] for moments in iterations]
        for since, to in others:
            own = [ns + moments[to] - moments[since] for ns, moments in zip(own, iterations, strict=True)]
        return own


class AlikeIterations(NamedTuple):
    """Some iterations of a stage, one after the other.

    Attributes:
        stage: The stage.
        slots: The intervals of the phases in each, in the order in which they end.
        moments: Of each iteration.
        labels: What each is known by.
        intervals_kept: How many of them, the first ones, are handed on with the positions of their intervals.
    """

    stage: StageRecord
    slots: tuple[Slot, ...]
    moments: Sequence[Moments]
    labels: Sequence[IterationLabel]
    intervals_kept: int

    def take(self) -> Iterator[MeasuredIteration]:
        """Takes them into the stage's figures. Returns what is to be handed on of each."""
        totals = [moments[-1] - moments[0] for moments in self.moments]
        samples = [(slot.measurement, slot.own_ns(self.moments)) for slot in self.slots if slot.own is not None]
        claimed = map(sum, zip(*(own_ns for _, own_ns in samples), strict=True)) if samples else [0] * len(totals)
        others = [total - inside for total, inside in zip(totals, claimed, strict=True)]
        ns = self.stage.take_alike(self.labels, totals, others, samples)
        return self._rows(ns)

    def _rows(self, ns: Mapping[str, Sequence[int]]) -> Iterator[MeasuredIteration]:
        places = [(slot.measurement.name, slot.begin, slot.end) for slot in self.slots]
        for n, moments in enumerate(self.moments):
            begin_ns = moments[0]
            intervals = None
            if n < self.intervals_kept:
                intervals = [(name, moments[begin] - begin_ns, moments[end] - begin_ns) for name, begin, end in places]
            sums = {name: each[n] for name, each in ns.items()}
            yield MeasuredIteration(self.stage.stage, self.labels[n], begin_ns, sums, intervals)
