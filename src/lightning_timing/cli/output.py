"""The form in which a command was asked for its output, and the files that it writes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from lightning_timing.errors import BadInputError
from lightning_timing.reporting.markdown import render_markdown
from lightning_timing.reporting.text import WIDER_OR_OPTIONS, render
from lightning_timing.whole_file import write_whole

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from lightning_timing.reporting.blocks import Block


def rendered(blocks: Iterable[Block], *, as_markdown: bool) -> str:
    """A report as Markdown, or as text for standard output, of a command that has `--markdown` and `--json`."""
    if as_markdown:
        return render_markdown(blocks)
    return render(blocks, color=sys.stdout.isatty(), all_columns=WIDER_OR_OPTIONS)


def write_output(path: Path, chunks: Iterable[bytes]) -> None:
    """Writes a file, whole.

    Args:
        path: The file. Its folder exists.
        chunks: Its content, piece by piece.

    Raises:
        BadInputError: It cannot be written.
    """
    try:
        write_whole(path, chunks)
    except OSError as error:
        raise BadInputError(f"{path}: cannot be written: {error.strerror or error}") from error
