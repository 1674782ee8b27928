"""Show where the time of a run's iterations goes.

The measurements of each stage as a tree, CPU usage, one-time measurements, a verdict with its evidence and the next
thing to try, and how the ranks compare. Given a Hydra multirun folder: its jobs side by side, best first.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lightning_timing.cli.one_run import one_run
from lightning_timing.cli.output import rendered, write_output
from lightning_timing.errors import BadInputError
from lightning_timing.multirun import find_jobs, read_multirun
from lightning_timing.phases import STAGES
from lightning_timing.record_reader import has_record
from lightning_timing.reporting.json_reports import multirun_json, run_json
from lightning_timing.reporting.multirun_blocks import multirun_blocks
from lightning_timing.reporting.run_blocks import run_blocks
from lightning_timing.run_report import RunReport, read_report

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `report`."""
    parser.add_argument(
        "run",
        type=Path,
        metavar="RUN",
        help="the run's folder, the timing folder in it (FOLDER~1: the run before the newest there), or a Hydra "
        "multirun folder",
    )
    parser.add_argument("--stage", choices=STAGES, help="show this stage only")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON, for other programs")
    form.add_argument("--markdown", action="store_true", help="print Markdown")
    form.add_argument("--html", type=Path, metavar="FILE", help="write a page with charts, which works offline")


def run(args: argparse.Namespace) -> int:
    """Prints the report, or writes it as a page.

    Raises:
        BadInputError: There is no record, it is not valid, or the page cannot be written.
    """
    jobs = [] if has_record(args.run) else find_jobs(args.run)
    if len(jobs) > 1 or (jobs and not has_record(jobs[0])):
        if args.html is not None:
            raise BadInputError(f"{args.run}: several runs below it; --html takes one of them, such as {jobs[0]}")
        multirun = read_multirun(args.run, jobs, args.stage)
        blocks = multirun_blocks(multirun)
        sys.stdout.write(multirun_json(multirun) if args.json else rendered(blocks, as_markdown=args.markdown))
        return 0
    report = _only_stage(read_report(one_run(args.run)), args.stage)
    if args.html is not None:
        from lightning_timing.reporting.html import render_html  # brings plotly

        write_output(args.html, [render_html(report).encode()])
        print(args.html)
        return 0
    sys.stdout.write(run_json(report) if args.json else rendered(run_blocks(report), as_markdown=args.markdown))
    return 0


def _only_stage(report: RunReport, stage: str | None) -> RunReport:
    if stage is None:
        return report
    if stage not in report.stages:
        raise BadInputError(f"{report.path}: no stage {stage!r}; there is {', '.join(report.stages) or 'none'}")
    return report.of_stage(stage)
