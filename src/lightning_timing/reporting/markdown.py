"""Reports as Markdown: GitHub-flavoured tables, every name escaped."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from lightning_timing.reporting.blocks import Block, Heading, Table

if TYPE_CHECKING:
    from collections.abc import Iterable

_SPECIAL: Final = re.compile(r"([\\`*_\[\]<>|~&]|:(?=//))")
_INDENT: Final = "&emsp;"


def render_markdown(blocks: Iterable[Block]) -> str:
    """A report as Markdown, ending in a newline."""
    return "\n\n".join(filter(None, map(_render, blocks))) + "\n"


def _render(block: Block) -> str:
    if isinstance(block, Heading):
        return f"### {_escaped(block.text)}"
    if isinstance(block, Table):
        return _table(block)
    return "\n".join(f"- {_escaped(line)}" for line in block.lines if line)


def _table(table: Table) -> str:
    rows = [
        " | ".join(_escaped(column.header) for column in table.columns),
        " | ".join("---:" if column.is_number else "---" for column in table.columns),
        *(" | ".join(map(_cell, row)) for row in table.rows),
    ]
    return "\n".join(f"| {row} |" for row in rows)


def _cell(text: str) -> str:
    """A cell, its indentation kept: the tree is shown by it."""
    depth = (len(text) - len(text.lstrip(" "))) // 2
    return _INDENT * depth + _escaped(text.lstrip(" "))


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)
