"""Show the phases in an export of Nsight Systems, stage by stage.

Their number, their time on the host, the time of the GPU work that they launched, how much of that time the GPU was
busy, and the share of it in which it was idle. With --run the figures of the Stopwatch, for the same iterations of the
same run, stand beside them; the exit code is 1 where a median differs by more than 50 us and 2 %. An export is made by
nsys profile --trace=cuda,nvtx --export=sqlite, or from a report by nsys export --type=sqlite.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lightning_timing.cli.one_run import one_run
from lightning_timing.errors import BadInputError
from lightning_timing.nsys_agreement import MIN_SAMPLES, agreements
from lightning_timing.nsys_export import ExportedProcess, read_export
from lightning_timing.reporting.nsys_blocks import nsys_blocks
from lightning_timing.reporting.text import render
from lightning_timing.run_report import RunReport, read_report

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `nsys`."""
    parser.add_argument("export", type=Path, metavar="EXPORT", help="the export, an SQLite file")
    parser.add_argument(
        "--run", type=Path, metavar="RUN", help="the same run's folder, to set the Stopwatch's figures beside"
    )


def run(args: argparse.Namespace) -> int:
    """Prints the table.

    Returns:
        0, or 1 where the Stopwatch disagrees.

    Raises:
        BadInputError: The file is no export, has no ranges, or does not belong to the run, or RUN is a multirun
            folder.
    """
    report = None if args.run is None else read_report(one_run(args.run))
    processes = read_export(args.export)
    compared = None if report is None else _process_of(report, processes)
    rows = {} if report is None or report.lead is None else report.lead.stages
    found = {} if compared is None else agreements(compared, rows)
    if report is not None and not found:
        raise BadInputError(
            f"{args.export}: has no {MIN_SAMPLES} successive iterations, by the index of the batch, that have rows in "
            f"{report.path} too: it is of another training, or of the warm-up"
        )
    recorded_by = None if report is None or report.lead is None else report.lead.header.pid
    blocks = nsys_blocks(processes, compared, found, recorded_by)
    sys.stdout.write(render(blocks, color=sys.stdout.isatty()))
    return 0 if all(agreement.agrees for agreement in found.values()) else 1


def _process_of(report: RunReport, processes: Sequence[ExportedProcess]) -> ExportedProcess:
    """The process that wrote the run's figures: by its number, unless there is no other."""
    if len(processes) == 1:
        return processes[0]
    pids = [process.pid for process in processes]
    pid = None if report.lead is None else report.lead.header.pid
    if pid not in pids:
        raise BadInputError(f"{report.path}: written by process {pid}, and the export has only {pids}")
    return processes[pids.index(pid)]
