"""What the sections of a page are made of: cards, tables and bars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lightning_timing.reporting.markup import Markup, tag
from lightning_timing.reporting.palette import phase_color
from lightning_timing.reporting.tree import MAX_DEPTH_SHOWN
from lightning_timing.reporting.units import printable, seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

NUMBER: Final = "number"
TEXT: Final = "text"
MINOR_NUMBER: Final = "number minor"
MINOR_TEXT: Final = "text minor"
"""Kinds of columns. The minor ones are left out on a narrow page."""

_INDENT_PX: Final = 20
_LONGEST_VALUE: Final = 300


def card(title: str, note: str, *content: str) -> Markup:
    """A box with a title and a line that says what it shows."""
    notes = (tag("p", note, class_="note"),) if note else ()
    return tag("section", tag("h3", title), *notes, *content, class_="card")


def table(columns: Sequence[tuple[str, str]], rows: Iterable[Sequence[str]]) -> Markup:
    """A table.

    Args:
        columns: The title of each column and what it holds: `NUMBER`, `TEXT` or a minor one.
        rows: The cells of each row.
    """
    head = (tag("th", title, class_=kind) for title, kind in columns)
    body = (
        tag("tr", *(tag("td", cell, class_=kind) for cell, (_, kind) in zip(row, columns, strict=True))) for row in rows
    )
    return tag("table", tag("thead", tag("tr", *head)), tag("tbody", *body))


def values_table(values: Mapping[str, str]) -> Markup:
    """A table of names and values, without a head."""
    rows = (
        tag("tr", tag("td", name_of(name)), tag("td", tag("bdi", printable(value, _LONGEST_VALUE))))
        for name, value in values.items()
    )
    return tag("table", tag("tbody", *rows), class_="values")


def name_of(name: str) -> Markup:
    """A name as a reader is to see it, with its direction of writing kept to itself."""
    return tag("bdi", printable(name))


def measurement_name(name: str, label: str, depth: int) -> Markup:
    """The name of a measurement with its colour, indented by its depth."""
    indent = _INDENT_PX * min(depth, MAX_DEPTH_SHOWN)
    swatch = tag("i", class_="swatch", style=f"background:{phase_color(name)}")
    return tag("div", swatch, name_of(label), class_="name", style=f"padding-left:{indent}px")


def stacked_bar(parts: Mapping[str, float], class_: str) -> Markup:
    """Phases side by side, each as wide as its part of the whole, from their times in seconds."""
    whole_s = sum(parts.values())
    pieces = (
        tag(
            "div",
            title=f"{name} {seconds(time_s)}",
            style=f"background:{phase_color(name)};width:{100 * time_s / whole_s:.3f}%",
        )
        for name, time_s in parts.items()
        if time_s > 0
    )
    return tag("div", *pieces, class_=f"bar {class_}")


def meter(share: float, color: str) -> Markup:
    """A bar that is filled by a share from 0 to 1."""
    filled = tag("div", style=f"width:{100 * min(max(share, 0.0), 1.0):.2f}%;background:{color}")
    return tag("div", filled, class_="meter")
