"""Writes the files that a command was asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightning_timing.errors import BadInputError
from lightning_timing.whole_file import write_whole

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


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
