"""The report that a running program prints."""

from __future__ import annotations

import sys

from lightning_timing.parts import warn_once
from lightning_timing.phases import SANITY_CHECK
from lightning_timing.record import Figures


def live_report(figures: Figures) -> str:
    """Renders figures for this process's terminal, or in plain lines where its output is none.

    The sanity check is left out of what is printed, unless it is all there is.

    Where rich is not installed there is one warning instead of the tables: the figures are in `summary.json` all the
    same.
    """
    try:
        from lightning_timing.reporting.summary import summary_blocks
        from lightning_timing.reporting.text import render
        from lightning_timing.verdict import judge

        stages = {name: stage for name, stage in figures.stages.items() if name != SANITY_CHECK} or figures.stages
        verdict = judge(stages, figures.cpu_usage)
        blocks = summary_blocks(stages, figures.one_time, figures.cpu_usage, verdict)
        return render(blocks, color=getattr(sys.stdout, "isatty", bool)())
    except ImportError as error:
        warn_once(f"the report cannot be printed: {error} (pip install rich)", stacklevel=2)
        return ""
