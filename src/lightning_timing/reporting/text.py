"""Reports as text for a terminal or a log: with colours and lines in the one, plain characters in the other."""

from __future__ import annotations

import io
import shutil
import sys
from typing import TYPE_CHECKING, Final

from lightning_timing.reporting.blocks import Block, Heading, Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rich.table import Table as RichTable

_DEFAULT_WIDTH: Final = 120
_MIN_WIDTH: Final = 40
_GAP: Final = "  "
_WIDER: Final = "a wider terminal"

WIDER_OR_OPTIONS: Final = f"{_WIDER}, --markdown or --json"
"""Says how to see the columns that were left out, for a command that has these options."""


def render(blocks: Iterable[Block], *, width: int | None = None, color: bool = False, all_columns: str = _WIDER) -> str:
    """A report as text, ending in a newline.

    Args:
        blocks: The report.
        width: Characters a line; None for the terminal's or the notebook's width, or 120 where there is none.
        color: For a terminal: colours and line-drawing characters. Else plain text.
        all_columns: Says how to see all columns; shown below a table that leaves some out.

    Raises:
        ImportError: rich is not installed.
    """
    from rich.console import Console
    from rich.text import Text

    console = Console(
        file=io.StringIO(),
        width=max(width or _own_width(), _MIN_WIDTH),
        force_terminal=color,
        force_jupyter=False,  # it would show an empty output in the cell for a text that is captured
        color_system="auto" if color else None,  # none where TERM says that it would be shown as characters
        legacy_windows=False,
        highlight=False,
    )
    with console.capture() as capture:
        for number, block in enumerate(blocks):
            if isinstance(block, Heading):
                console.print(Text(("\n" if number else "") + block.text, style="bold"))
            elif isinstance(block, Table):
                kept = _fitting_columns(block, console.width - 2 * len(_GAP))
                console.print(_rich_table(block, kept, with_lines=color and _shows_lines()))
                if left_out := [column.header for n, column in enumerate(block.columns) if n not in kept]:
                    note = f"columns left out at {console.width} characters: {', '.join(left_out)}"
                    console.print(Text(f"{note} ({all_columns} shows them)"))
            else:
                console.print(*map(Text, block.lines), sep="\n")
    return "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines())


def _own_width() -> int:
    """Returns how many characters fit in a line where this process prints."""
    from rich.console import Console

    console = Console()
    # In a notebook RichProgressBar hands on what is printed to rich, which folds at its own width whatever is wider.
    return console.width if console.is_jupyter else shutil.get_terminal_size((_DEFAULT_WIDTH, 24)).columns


def _shows_lines() -> bool:
    """Whether the characters that draw lines can be printed."""
    return (getattr(sys.stdout, "encoding", None) or "utf-8").lower().startswith("utf")


def _fitting_columns(table: Table, width: int) -> dict[int, int]:
    """Returns the columns that fit side by side, and how wide they are, of which those of text may fold.

    The least important are left out, but the first and one more stay.
    """
    from rich.cells import cell_len

    widths = [
        max(map(cell_len, (column.header, *(row[number] for row in table.rows))))
        for number, column in enumerate(table.columns)
    ]
    for number, column in enumerate(table.columns):
        if not column.is_number:
            widths[number] = min(widths[number], width // 3)  # long names may fold
    kept = list(range(len(table.columns)))
    while len(kept) > 2 and sum(widths[number] + len(_GAP) for number in kept) > width:
        kept.remove(min(kept[1:], key=lambda number: table.columns[number].importance))
    return {number: widths[number] for number in kept}


def _rich_table(table: Table, widths: Mapping[int, int], with_lines: bool) -> RichTable:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    rich_table = RichTable(box=box.SIMPLE_HEAD if with_lines else None, pad_edge=False, padding=(0, len(_GAP), 0, 0))
    for number, width in widths.items():
        column = table.columns[number]
        if column.is_number:
            # With its width given rich does not measure each cell once more, a quarter of what it takes.
            rich_table.add_column(column.header, justify="right", no_wrap=True, overflow="fold", width=width)
        else:
            rich_table.add_column(column.header, overflow="fold")
    for row in table.rows:
        rich_table.add_row(*(Text(row[number]) for number in widths))
    return rich_table
