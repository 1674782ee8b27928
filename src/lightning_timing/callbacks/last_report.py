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
    from lightning_timing.record import Status, TimingOverhead

_COMMAND: Final = "lightning-timing"


def last_report(
    files: RunFiles,
    figures: Figures,
    overhead: TimingOverhead | None,
    *,
    status: Status,
    world_size: int,
    compares_ranks: bool,
) -> str:
    """Returns the report of a run that has ended, without a newline at its end.

    Args:
        files: Where it is written, if it is.
        figures: The figures of the whole run.
        overhead: What the timing cost, if that is known.
        status: How the call of the Trainer ended.
        world_size: Number of processes in the run.
        compares_ranks: Whether several of them write a record.
    """
    note = contention_note(figures.cpu_usage, os.cpu_count(), world_size)
    lines = [] if status == "completed" else [f"status: {status}"]
    lines += [f"note: {note}"] if note else []
    lines.append(Stopwatch._render(figures, overhead).removesuffix("\n"))
    if files.is_written:
        lines.append(f"Written to {files.folder}")
        report = f"{_command()} report {shlex.quote(str(files.folder))}"
        if compares_ranks:
            lines.append(f"How the ranks compare: {report}")
        lines.append(f"As a page: {report} --html timing.html")
    return "\n".join(lines)


def _command() -> str:
    """Returns this package's command, with its folder where the shell would not find it."""
    return _COMMAND if shutil.which(_COMMAND) else shlex.quote(str(Path(sys.executable).with_name(_COMMAND)))
