"""Where the measurements of one iteration lie on a time axis, and on which of a rank's tracks each one fits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from lightning_timing.phases import ITERATION, OTHER, PHASES, whole_of

MAX_LANES: Final = 8
"""Tracks of a rank for intervals that overlap without nesting, as those of several threads do."""


class Slot(NamedTuple):
    """An interval of a measurement, in nanoseconds from the start of its iteration.

    Attributes:
        name: The measurement.
        start: Where it starts.
        end: Where it ends.
        is_approximate: Whether only its length was measured, and its position follows from the order of the loop.
        is_beside: Whether it belongs on a further track, where it pushes no iteration and no phase aside: it lies
            between iterations, or its position is assumed and it does not fit inside what it ran in.
    """

    name: str
    start: int
    end: int
    is_approximate: bool = False
    is_beside: bool = False


class Nesting:
    """Which measurement lies in which, in one stage.

    Args:
        parents: The enclosing measurement of each one, as in a summary; phases need not be there.
    """

    def __init__(self, parents: Mapping[str, str]) -> None:
        self._parents = parents
        self._places: dict[str, tuple[int, int]] = {}

    def parent(self, name: str) -> str | None:
        """The measurement that encloses `name`; None where there is none, or none is known."""
        if name in PHASES:
            return ITERATION
        return whole_of(name) or self._parents.get(name)

    def place(self, name: str) -> tuple[int, int]:
        """Sorts parents before their children, and phases in the order of the loop."""
        if name not in self._places:
            order = PHASES.index(name) if name in PHASES else len(PHASES)
            self._places[name] = (self._depth(name), order)
        return self._places[name]

    def _depth(self, name: str) -> int:
        above = set[str]()
        parent = self.parent(name)
        while parent is not None and parent not in above:  # a foreign summary may have a measurement in itself
            above.add(parent)
            parent = self.parent(parent)
        return len(above)

    def lay_out(self, ns: Mapping[str, int], known: Mapping[str, Slot]) -> list[Slot]:
        """Places measurements of which only the sums are known: one after the other, each inside its parent.

        Args:
            ns: Their lengths, in nanoseconds.
            known: Those that have a position already, as parents.

        Returns:
            A slot each. One that does not fit into what is left of its parent, as when several threads ran it, starts
            with its parent; one without a parent starts with the iteration. Both lie beside.
        """
        placed = dict(known)
        free = {name: slot.start for name, slot in known.items()}
        slots = []
        for name in sorted(ns, key=self.place):
            slot = Slot(name, 0, ns[name], is_approximate=True, is_beside=True)
            parent = placed.get(self.parent(name) or "")
            if parent is not None:
                start = free[parent.name]
                fits = start + ns[name] <= parent.end
                start = start if fits else parent.start
                slot = Slot(name, start, start + ns[name], True, parent.is_beside or not fits)
                free[parent.name] = slot.end if fits else free[parent.name]
            placed[name] = slot
            free[name] = slot.start
            slots.append(slot)
        return slots


def host_slots(ns: Mapping[str, int], intervals: Iterable[tuple[str, int, int]] | None, nesting: Nesting) -> list[Slot]:
    """The slots of one iteration, itself first: measured ones where they were kept, the others laid out.

    `other` gets none: it is the part of the iteration that no phase covers.
    """
    whole = Slot(ITERATION, 0, ns[ITERATION])
    exact = [Slot(name, start, end) for name, start, end in intervals or ()]
    exact.reverse()  # they come in the order of their ends; of two that coincide the outer one is to come first
    known = {slot.name: slot for slot in sorted(exact, key=lambda slot: -slot.start)} | {ITERATION: whole}
    drawn = {OTHER, *known, *map(nesting.parent, known)}  # `callbacks` is drawn by its parts
    assumed = nesting.lay_out({name: ns[name] for name in ns if name not in drawn}, known)
    if intervals is not None:
        assumed = [slot._replace(is_beside=True) for slot in assumed]
    return [whole, *exact, *assumed]


class Lane:
    """A track on which intervals lie side by side or inside each other, and never cross. They come sorted by start."""

    def __init__(self) -> None:
        self._open: list[tuple[str, int]] = []
        self._latest_start: int | None = None

    def take(self, name: str, start: int, end: int, within: str | None = None) -> bool:
        """Adds an interval, unless it would cross another one or lies before the last one.

        Args:
            name: The measurement.
            start: Where it starts.
            end: Where it ends.
            within: The only measurement that it may lie directly inside; None for any.

        Returns:
            Whether it was added.
        """
        if self._latest_start is not None and start < self._latest_start:
            return False
        enclosing = next((interval for interval in reversed(self._open) if interval[1] > start), None)
        if enclosing is not None and (end > enclosing[1] or within not in (None, enclosing[0])):
            return False
        while self._open and self._open[-1][1] <= start:
            self._open.pop()
        self._open.append((name, end))
        self._latest_start = start
        return True


class Lanes:
    """The tracks of one rank."""

    def __init__(self) -> None:
        self._lanes = [Lane() for _ in range(MAX_LANES)]

    def take(self, slot: Slot, origin: int = 0, within: str | None = None) -> int | None:
        """Adds a slot to the first track that it fits on. One with `is_beside` never goes on the first track of all.

        Args:
            slot: The slot; each call's starts at or after the last one's, or needs a further track.
            origin: Where its iteration starts.
            within: The only measurement that it may lie directly inside; None for any.

        Returns:
            The number of the track; None where it fits on none.
        """
        start, end = origin + slot.start, origin + slot.end
        tracks = range(slot.is_beside, MAX_LANES)
        return next((track for track in tracks if self._lanes[track].take(slot.name, start, end, within)), None)
