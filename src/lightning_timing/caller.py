"""Where in the user's code this package was called, for its messages."""

from __future__ import annotations

import os
import sys

_PACKAGE_DIR = os.path.dirname(os.path.abspath(__file__)) + os.sep


def caller_place() -> str:
    """Returns where this package was called, as `file:line`."""
    file, line = caller()
    return f"{file}:{line}"


def caller() -> tuple[str, int]:
    """Returns the file and the line of the innermost frame outside this package. Costs microseconds."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE_DIR):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno
