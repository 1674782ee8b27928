"""Which of the runs in a folder is meant by a path: the newest, or by `FOLDER~1` the one before it, and so on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

_EARLIER: Final = re.compile(r"(.*)~([0-9]{1,6})", re.DOTALL)


class RunChoice(NamedTuple):
    """A path without the part that says which run is meant.

    Attributes:
        path: The folder, or a file in it.
        back: How many runs before the newest.
    """

    path: Path
    back: int

    def within(self, folder: Path) -> Path:
        """Returns the path of the same choice in another folder."""
        return Path(f"{folder}~{self.back}") if self.back else folder


def choice_of(path: Path) -> RunChoice:
    """Takes a path apart. One that exists as it stands means the newest run in it."""
    match = _EARLIER.fullmatch(str(path))
    if match is None or path.exists():
        return RunChoice(path, 0)
    return RunChoice(Path(match[1] or "."), int(match[2]))
