"""Opens files of the record by path, and only regular ones: a named pipe would block, a device would swallow or flood.

The flags are those that the system has: Windows lacks some, and would translate line ends without one that others lack.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_NEVER_BLOCKS: Final[int] = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_FOLLOWS_NO_LINK: Final[int] = getattr(os, "O_NOFOLLOW", 0)


def open_to_read(path: Path) -> int:
    """Opens a file for reading. Returns its descriptor.

    Raises:
        OSError: It cannot be opened, or is not a regular file.
    """
    return _regular(os.open(path, os.O_RDONLY | _NEVER_BLOCKS))


def open_to_append(path: Path) -> int:
    """Opens a file for reading and for writing at its end, and makes it if need be. Returns its descriptor.

    Raises:
        OSError: It cannot be opened, or is a link or anything else but a regular file.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
    return _regular(os.open(path, flags | _FOLLOWS_NO_LINK | _NEVER_BLOCKS, 0o666))


def _regular(descriptor: int) -> int:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file")
    return descriptor
