"""Standard output whose reader may have gone away, as in `| head`."""

from __future__ import annotations

import os
import sys


def abandon_stdout() -> None:
    """Points stdout at the null device, so that the interpreter's own flush at exit does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def write_to_whoever_reads(text: str) -> None:
    """Writes a text of which the reader may take as much as it likes: what follows does not depend on it."""
    try:
        sys.stdout.write(text)
    except BrokenPipeError:
        abandon_stdout()
