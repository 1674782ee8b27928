"""Writes the files that a command was asked for."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

from lightning_timing.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def write_whole(path: Path, chunks: Iterable[bytes]) -> None:
    """Writes a file beside its place and moves it there, so that no reader sees a part of it.

    A symbolic link at `path` is replaced, not followed.

    Args:
        path: The file. Its folder exists.
        chunks: Its content, piece by piece.

    Raises:
        BadInputError: It cannot be written.
    """
    temporary = path.parent / f".lightning-timing.{os.getpid()}.tmp"
    with ExitStack() as cleanup:
        try:
            file = cleanup.enter_context(temporary.open("xb"))
            cleanup.callback(temporary.unlink, missing_ok=True)
            file.writelines(chunks)
            file.close()
            temporary.replace(path)
        except OSError as error:
            raise BadInputError(f"{path}: cannot be written: {error.strerror or error}") from error
