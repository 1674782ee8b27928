"""The order in which measurements are shown: as a tree, in the order of the loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from lightning_timing.phases import ITERATION, is_phase, place_in_loop
from lightning_timing.reporting.units import printable

if TYPE_CHECKING:
    from collections.abc import Mapping


_INDENT: Final = "  "
MAX_DEPTH_SHOWN: Final = 12
"""Measurements that lie deeper are indented no further."""


class _HasParent(Protocol):
    @property
    def parent(self) -> str | None: ...


_Figures = TypeVar("_Figures", bound=_HasParent)


@dataclass(frozen=True)
class TreeNode(Generic[_Figures]):
    """A measurement with its place in the tree.

    Attributes:
        name: Its name.
        label: Its name under its parent, without the parent's as a prefix: `callbacks/<name>` becomes `<name>` there.
        depth: How many measurements enclose it.
        measurement: Its figures.
    """

    name: str
    label: str
    depth: int
    measurement: _Figures

    @property
    def indented(self) -> str:
        """The label, made printable and indented by the depth."""
        return _INDENT * min(self.depth, MAX_DEPTH_SHOWN) + printable(self.label)


def tree(measurements: Mapping[str, _Figures]) -> list[TreeNode[_Figures]]:
    """The measurements in the order of the loop, each followed by its children; the user's own in the order given.

    One of the user's that lies in no phase stands beside the iteration, since the phases below that add up to it. No
    measurement is lost where parents are missing, or enclose each other in a file from elsewhere.
    """
    children: dict[str | None, list[str]] = {}
    for name, measurement in measurements.items():
        parent = measurement.parent if measurement.parent in measurements else None
        if parent == ITERATION and not is_phase(name):
            parent = None
        children.setdefault(parent, []).append(name)
    for names in children.values():
        names.sort(key=place_in_loop)
    nodes: dict[str, TreeNode[_Figures]] = {}
    for root in (*children.get(None, ()), *measurements):
        waiting = [(root, 0)]
        while waiting:
            name, depth = waiting.pop()
            if name in nodes:
                continue
            label = name.removeprefix(f"{measurements[name].parent}/") if depth else name
            nodes[name] = TreeNode(name, label, depth, measurements[name])
            waiting.extend((child, depth + 1) for child in reversed(children.get(name, ())))
    return list(nodes.values())
