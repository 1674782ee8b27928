"""The open ranges of each thread, so that no thread, and no user code, closes a range that it did not open."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import NamedTuple


class OpenRange(NamedTuple):
    """A range that is open, or that its owner never closed.

    Attributes:
        name: Its name.
        thread: The name of the thread that opened it.
        place: Where it was pushed, as `file:line`; None unless the order of ranges is tracked.
        iteration: The iteration it was pushed in, such as `train batch 7`; None outside of one, or if not tracked.
        is_phase: Whether it is a phase of the loop, which the callbacks open and close.
    """

    name: str
    thread: str
    place: str | None = None
    iteration: str | None = None
    is_phase: bool = False

    def __str__(self) -> str:
        where = f", pushed at {self.place}" if self.place else ""
        when = f", in {self.iteration}" if self.iteration else ""
        return f"{self.name!r} (thread {self.thread}{where}{when})"


def one_a_line(ranges: Iterable[OpenRange]) -> str:
    """The ranges, one a line, indented."""
    return "\n".join(f"    {entry}" for entry in ranges) or "    none"


class ThreadStack:
    """One thread's open ranges, outermost first.

    Attributes:
        entries: The name of each; where ranges are tracked, its description.
        floor: How many of them only the callbacks may close: all up to the innermost phase.
        thread: The thread's name.
    """

    __slots__ = ("_phases", "entries", "floor", "thread")

    def __init__(self) -> None:
        self.entries: list[str | OpenRange] = []
        self.floor = 0
        self.thread = threading.current_thread().name
        self._phases: list[int] = []

    def enter_phase(self) -> None:
        """Makes the entry on top a phase."""
        self._phases.append(len(self.entries) - 1)
        self.floor = len(self.entries)

    def leave_phase(self) -> None:
        """Forgets the innermost phase, whose entry was removed: user code may close the ranges below it again."""
        self._phases.pop()
        self.floor = self._phases[-1] + 1 if self._phases else 0

    @property
    def in_phase(self) -> bool:
        """Whether a phase is open."""
        return bool(self._phases)

    def name_of(self, index: int) -> str:
        """The name of the entry at an index."""
        entry = self.entries[index]
        return entry.name if isinstance(entry, OpenRange) else entry

    def describe(self, lowest: int = 0) -> list[OpenRange]:
        """The open ranges from the innermost to the one at index `lowest`. Another thread may ask."""
        entries = self.entries[lowest:]
        described = [
            entry._replace(is_phase=index in self._phases)
            if isinstance(entry, OpenRange)
            else OpenRange(entry, self.thread, is_phase=index in self._phases)
            for index, entry in enumerate(entries, lowest)
        ]
        return described[::-1]


class Stacks(threading.local):
    """The calling thread's stack, as `stack`, and those of all threads in the registry that was handed in.

    Args:
        registry: Gets each thread's stack, by the thread's identifier, when the thread first asks for it. The stack of
            a thread that has ended stays in it until the system gives its identifier to another.
    """

    def __init__(self, registry: dict[int, ThreadStack]) -> None:
        self.stack = ThreadStack()
        registry[threading.get_ident()] = self.stack
