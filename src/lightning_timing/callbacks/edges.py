"""How the edges of a batch are noted, and lie in a list until they are handled.

An edge is three entries of the list, one after the other: what to call, the moment that it is about, and what to call
that with, which is None for nothing. A tuple for each would cost more to make, to take apart, and as garbage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import repeat
from types import BuiltinFunctionType
from typing import Any, Final

from lightning_timing.clocks import Clock

Edges = list[Any]
"""Edges, `STRIDE` entries each, so that `[begin::STRIDE]` are what to call, and `[begin + 1 :: STRIDE]` the moments."""

STRIDE: Final = 3
"""How many entries are one edge."""


def one_by_one(edges: Edges) -> Iterator[tuple[Callable[..., object], int, Any]]:
    """The three entries of each edge."""
    return zip(edges[::STRIDE], edges[1::STRIDE], edges[2::STRIDE], strict=True)


def noting(edges: Edges, handle: Callable[..., object], clock: Clock) -> Callable[[], object] | None:
    """Makes what does `edges.extend((handle, clock(), None))` when it is called, without a frame of Python.

    An iterator of such triples, each of which is handed to `extend`: to ask it for the next one is to note an edge.

    Args:
        edges: The list.
        handle: What the edge calls.
        clock: Monotonic, in nanoseconds.

    Returns:
        What to call; None where the clock is Python code, whose failures somebody has to catch.
    """
    if not isinstance(clock, BuiltinFunctionType):
        return None
    endless = iter(clock, None)
    return map(edges.extend, zip(repeat(handle), endless, repeat(None), strict=False)).__next__
