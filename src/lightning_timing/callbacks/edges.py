"""The list in which the edges of a batch are noted until they are handled.

An edge is three successive entries of the list: the function to call, the time of the edge, and the function's
argument, None for no argument. A tuple for each edge would cost more to make, to unpack and to free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import repeat
from types import BuiltinFunctionType
from typing import Any, Final

from lightning_timing.clocks import Clock

Edges = list[Any]
"""Edges, `STRIDE` entries each, so that `[begin::STRIDE]` are the functions, and `[begin + 1 :: STRIDE]` the times."""

STRIDE: Final = 3
"""Entries of one edge."""


def one_by_one(edges: Edges) -> Iterator[tuple[Callable[..., object], int, Any]]:
    """Yields the three entries of each edge."""
    return zip(edges[::STRIDE], edges[1::STRIDE], edges[2::STRIDE], strict=True)


def noting(edges: Edges, handle: Callable[..., object], clock: Clock) -> Callable[[], object] | None:
    """Makes a function that does `edges.extend((handle, clock(), None))`, but without a Python frame.

    It is the `__next__` of an iterator that hands such triples to `extend`: asking for the next one notes an edge.

    Args:
        edges: The list.
        handle: What the edge calls.
        clock: Monotonic, in nanoseconds.

    Returns:
        The function; None where the clock is Python code, whose failures have to be caught.
    """
    if not isinstance(clock, BuiltinFunctionType):
        return None
    endless = iter(clock, None)
    return map(edges.extend, zip(repeat(handle), endless, repeat(None), strict=False)).__next__
