"""The order in which measurements are shown: as a tree, in the order of the loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lightning_timing.phases import place_in_loop

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lightning_timing.record import MeasurementSummary


@dataclass(frozen=True)
class TreeNode:
    """A measurement in its place.

    Attributes:
        name: Its name.
        label: Its name under its parent, without the parent's as a prefix: `callbacks/<name>` becomes `<name>`.
        depth: How many measurements enclose it.
        measurement: Its figures.
    """

    name: str
    label: str
    depth: int
    measurement: MeasurementSummary


def tree(measurements: Mapping[str, MeasurementSummary]) -> list[TreeNode]:
    """The measurements in the order of the loop, each followed by its children; the user's own in the order given.

    Parents that are missing, or that go round in a circle in a file from elsewhere, do not lose a measurement.
    """
    children: dict[str | None, list[str]] = {}
    for name, measurement in measurements.items():
        parent = measurement.parent if measurement.parent in measurements else None
        children.setdefault(parent, []).append(name)
    for names in children.values():
        names.sort(key=place_in_loop)
    nodes: dict[str, TreeNode] = {}
    for root in (*children.get(None, ()), *measurements):
        waiting = [(root, 0)]
        while waiting:
            name, depth = waiting.pop()
            if name in nodes:
                continue
            nodes[name] = TreeNode(name, _label(name, measurements[name].parent), depth, measurements[name])
            waiting.extend((child, depth + 1) for child in reversed(children.get(name, ())))
    return list(nodes.values())


def _label(name: str, parent: str | None) -> str:
    return name if parent is None else name.removeprefix(f"{parent}/")
