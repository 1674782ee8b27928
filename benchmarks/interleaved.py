"""Comparing costs in one run: candidates take turns, and each is compared with the others of the same turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median

Costs = Mapping[str, list[float]]
"""What each candidate cost in each repeat."""


def interleaved(candidates: Mapping[str, Callable[[], float]], repeats: int) -> Costs:
    """Measures each candidate once in every repeat, beginning with another one each time.

    Args:
        candidates: What to measure, by name; each returns its cost.
        repeats: How often.
    """
    names = list(candidates)
    found: dict[str, list[float]] = {name: [] for name in names}
    for repeat in range(repeats):
        first = repeat % len(names)
        for name in names[first:] + names[:first]:
            found[name].append(candidates[name]())
    return found


def typical(costs: Costs, name: str) -> float:
    """The median cost of a candidate."""
    return median(costs[name])


def ratio(costs: Costs, name: str, to: str) -> float:
    """The median over the repeats of one candidate's cost to another's."""
    return median(cost / base for cost, base in zip(costs[name], costs[to], strict=True))


def excess(costs: Costs, name: str, over: str) -> float:
    """The median over the repeats of what one candidate costs more than another."""
    return median(cost - base for cost, base in zip(costs[name], costs[over], strict=True))
