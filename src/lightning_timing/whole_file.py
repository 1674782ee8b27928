"""Files that are written whole: a reader sees the old one or the new one, never a part."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def write_whole(path: Path, chunks: Iterable[bytes]) -> None:
    """Writes a file beside its place and moves it there.

    A symbolic link at `path` is replaced, not followed.

    Args:
        path: The file. Its folder exists.
        chunks: Its content, piece by piece.

    Raises:
        OSError: It cannot be written.
    """
    temporary = path.parent / f".lightning-timing.{os.getpid()}.tmp"
    temporary.unlink(missing_ok=True)  # left by another process of this number, which was killed
    with ExitStack() as cleanup:
        file = cleanup.enter_context(temporary.open("xb"))
        cleanup.callback(temporary.unlink, missing_ok=True)
        file.writelines(chunks)
        file.close()
        temporary.replace(path)
