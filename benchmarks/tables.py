"""Tables for the terminal and for the README."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

MIN_WIDTH = 120
"""Columns of text, also where the output goes to a file."""


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, markdown: bool) -> None:
    """Prints a table; the first column is text, the others are numbers."""
    if markdown:
        print(f"\n**{title}**\n")
        for cells in (columns, ["---", *["---:"] * (len(columns) - 1)], *rows):
            print("| " + " | ".join(cells) + " |")
        return
    table = Table(title=title, title_justify="left")
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index else "left", no_wrap=not index)
    for cells in rows:
        table.add_row(*cells)
    console = Console()
    console.width = max(console.width, MIN_WIDTH)
    console.print(table)
