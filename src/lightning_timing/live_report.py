"""The report that a running program prints."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from lightning_timing.failsafe import warn_once

if TYPE_CHECKING:
    from lightning_timing.figures import Figures
    from lightning_timing.record import TimingOverhead


def live_report(figures: Figures, overhead: TimingOverhead | None = None) -> str:
    """Renders figures for this process's terminal, or as plain text where its output is no terminal.

    Where rich is not installed it warns once and returns an empty text: the figures are in `summary.json` all the same.
    """
    try:
        from lightning_timing.reporting.summary_blocks import rank_of, summary_blocks
        from lightning_timing.reporting.text import render
        from lightning_timing.verdict import judge

        verdict = judge(figures.stages, figures.cpu_usage, figures.loader_workers, figures.world_size)
        rank = rank_of(figures.rank, figures.world_size)
        blocks = summary_blocks(figures.stages, figures.one_time, figures.cpu_usage, verdict, overhead, rank)
        return render(blocks, color=getattr(sys.stdout, "isatty", bool)())
    except ImportError as error:
        warn_once(f"the report cannot be printed: {error} (pip install rich)")
        return ""
