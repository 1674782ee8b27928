"""What a report is made of, before it is text or Markdown: headings, lines and tables."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Heading:
    """The title of what follows."""

    text: str


@dataclass(frozen=True)
class Lines:
    """Lines of text, each its own."""

    lines: tuple[str, ...]


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        header: Its title.
        is_number: Set to the right.
        importance: Where not all columns fit, the least important go first.
    """

    header: str
    is_number: bool = True
    importance: int = 1


@dataclass(frozen=True)
class Table:
    """A table; every row has a cell for each column."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]


Block = Heading | Lines | Table
