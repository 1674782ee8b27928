"""What a run prints at its end: the report, where it is written, and how to see it as a page."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lightning_timing.contention import contention_note
from lightning_timing.stopwatch import Stopwatch

if TYPE_CHECKING:
    from lightning_timing.callbacks.run_files import RunFiles
    from lightning_timing.figures import Figures
    from lightning_timing.record import TimingOverhead

_COMMAND: Final = "lightning-timing"


def last_report(files: RunFiles, figures: Figures, overhead: TimingOverhead | None, world_size: int) -> str:
    """Returns the report of a run that has ended, without a newline at its end.

    Args:
        files: Where it is written, if it is.
        figures: The figures of the whole run.
        overhead: What the timing cost, if that is known.
        world_size: Number of processes in the run.
    """
    note = contention_note(figures.cpu_usage, os.cpu_count(), world_size)
    lines = [f"note: {note}"] if note else []
    lines.append(Stopwatch._render(figures, overhead).removesuffix("\n"))
    if files.is_written:
        lines.append(f"Written to {files.folder}")
        lines.append(f"As a page: {_command()} report {shlex.quote(str(files.folder))} --html timing.html")
    return "\n".join(lines)


def _command() -> str:
    """Returns this package's command, with its folder where the shell would not find it."""
    return _COMMAND if shutil.which(_COMMAND) else shlex.quote(str(Path(sys.executable).with_name(_COMMAND)))
