"""Write a run as a trace file, to be opened in Perfetto (ui.perfetto.dev) or at chrome://tracing.

Every rank is a process track, all on one time axis; phases lie nested in numbered iterations. Iterations that did not
keep the position of each interval are laid out in the order of the loop and marked "approximate".
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from lightning_timing.cli.one_run import one_run
from lightning_timing.cli.output import write_output
from lightning_timing.errors import BadInputError
from lightning_timing.record_reader import (
    ProblemLog,
    chosen_run,
    iter_ranks,
    run_folder,
    summary_covering,
    timing_folder,
)
from lightning_timing.reporting.trace import TraceSource, trace_json
from lightning_timing.run_choice import choice_of

if TYPE_CHECKING:
    import argparse

TRACE_NAME: Final = "trace.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `trace`."""
    parser.add_argument(
        "run",
        type=Path,
        metavar="RUN",
        help="the run's folder, or the timing folder in it; FOLDER~1 is the run before the newest in a folder",
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help=f"where to write it (default: RUN/timing/{TRACE_NAME})"
    )


def run(args: argparse.Namespace) -> int:
    """Writes the trace and says where.

    Raises:
        BadInputError: There is no record of any rank, or the file cannot be written.
    """
    run = one_run(args.run)
    folder = timing_folder(run)
    problems = ProblemLog()
    sources: list[TraceSource] = []
    summary = None
    for record in iter_ranks(folder, problems, chosen_run(run)):
        if not sources:
            summary = summary_covering(folder, record)
        sources.append(TraceSource.of(record))
    if not sources:
        raise BadInputError(f"{folder}: no rank<N>.jsonl with anything in it, so there is nothing to draw")
    output = args.output or _default_output(folder, run)
    write_output(output, trace_json(sources, summary))
    for problem in problems.lines():
        print(f"note: {problem}")
    print(output)
    return 0


def _default_output(folder: Path, run: Path) -> Path:
    if not folder.resolve().is_relative_to(run_folder(run).resolve()):
        raise BadInputError(f"{folder}: a link that leads out of {run}; say with -o where to write")
    stem, suffix = TRACE_NAME.split(".")
    return Path(f"{choice_of(run).within(folder / stem)}.{suffix}")
