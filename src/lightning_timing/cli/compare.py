"""Show whether one run, or one set of runs, is faster than another.

The mean iteration before and after, and which phases have most of its change. For every stage and measurement: the
median before and after, its change with a 95 % interval, and a verdict: "faster" or "slower" where the whole interval
is on one side of zero, else "no difference shown"; "too few" or "too uneven to compare" where that cannot be told, and
"occurs more often" or "less often" where its median would not tell what it comes to. The interval allows for iterations
that are correlated, but it cannot know from one run a side how much runs differ: give three or more to learn that. What
lies between iterations, such as the wait for an epoch's first batch, is in no iteration: where it matters, a line below
the mean iteration includes it. Of twenty measurements that did not change, about one may differ by chance. The sanity
check, a few iterations that nobody waits for, is compared only where --stage asks for it.
"""

from __future__ import annotations

import argparse
import math
import sys
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lightning_timing.cli.one_run import one_run
from lightning_timing.cli.output import rendered
from lightning_timing.cli.stdout import write_to_whoever_reads
from lightning_timing.errors import BadInputError
from lightning_timing.gate import check_threshold
from lightning_timing.names import listed
from lightning_timing.phases import ITERATION, SANITY_CHECK, STAGES
from lightning_timing.reporting.comparison_blocks import comparison_blocks
from lightning_timing.reporting.json_reports import comparison_json
from lightning_timing.reporting.units import printable
from lightning_timing.run_comparison import compare_runs
from lightning_timing.run_times import RunTimes, read_times

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lightning_timing.comparison import Absence, Comparison
    from lightning_timing.gate import Gate

_NAMES_SHOWN: Final = 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `compare`."""
    parser.add_argument(
        "runs",
        type=Path,
        nargs="*",
        metavar="RUN",
        help="the folders of the run before and the run after; FOLDER~1 is the run before the newest in a folder",
    )
    parser.add_argument("--before", type=Path, nargs="+", default=[], metavar="RUN", help="several runs before")
    parser.add_argument("--after", type=Path, nargs="+", default=[], metavar="RUN", help="several runs after")
    parser.add_argument("--stage", choices=STAGES, help="compare this stage only")
    parser.add_argument(
        "--measurement",
        action="append",
        default=[],
        metavar="NAME",
        help="compare this measurement only, by its name or as the report shows it, such as forward/net (repeatable)",
    )
    parser.add_argument(
        "--fail-above",
        type=_percentage,
        metavar="PERCENT",
        help=f"exit 1 where the whole interval lies above this, such as 5%%, for `{ITERATION}` in any stage shown, or "
        "for the measurements named",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON, for other programs")
    form.add_argument("--markdown", action="store_true", help="print Markdown")


def run(args: argparse.Namespace) -> int:
    """Prints the comparison; returns 1 where the threshold was crossed, else 0.

    Raises:
        BadInputError: The runs are not two or two sets, a record is not valid, or what was asked for was
            not measured; or, after it was printed, it has nothing to hold against the threshold, or no longer has what
            was to be held against it.
    """
    before, after = _sides(args)
    comparison = _of_stages(compare_runs(_read(before), _read(after)), args.stage)
    chosen = [found for given in args.measurement for found in _meant(given, comparison, args.stage)]
    comparison = comparison.of_measurements(chosen)
    names = {name for _, name in chosen} or {ITERATION}
    gate = None if args.fail_above is None else check_threshold(comparison, args.fail_above, names)
    blocks = comparison_blocks(comparison, gate)
    text = comparison_json(comparison, gate) if args.json else rendered(blocks, as_markdown=args.markdown)
    if gate is None:
        sys.stdout.write(text)
    else:  # whose answer is the exit code
        write_to_whoever_reads(text)
    if gate is not None and not gate.has_judged:
        raise BadInputError(f"--fail-above has nothing to judge: {_why_nothing(gate)}")
    if gate is not None and gate.is_crossed:
        return 1
    if gate is not None and gate.lost:
        lost = listed([_named(absence) for absence in gate.lost[:_NAMES_SHOWN]], len(gate.lost))
        raise BadInputError(
            f"--fail-above cannot judge what was measured only before: {lost}; --stage or --measurement leaves it out"
        )
    return 0


def _named(absence: Absence) -> str:
    return f"{printable(absence.measurement or 'all')} of {absence.stage}"


def _why_nothing(gate: Gate) -> str:
    reasons = dict.fromkeys(
        f"{printable(change.measurement)} in {change.stage}: {change.reason or change.verdict}"
        for change in gate.medians.not_judged
    )
    return "; ".join(reasons) or "not measured both before and after"


def _percentage(text: str) -> float:
    try:
        value = float(text.strip().removesuffix("%"))
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"a percentage such as 5%, not {text!r}")
    return value / 100


def _sides(args: argparse.Namespace) -> tuple[list[Path], list[Path]]:
    if args.before and args.after and not args.runs:
        return args.before, args.after
    if len(args.runs) == 2 and not (args.before or args.after):
        return args.runs[:1], args.runs[1:]
    raise BadInputError("give two runs, or --before RUN... --after RUN...")


def _read(paths: Iterable[Path]) -> list[RunTimes]:
    """Reads the runs of a side; one that is named twice is still one run."""
    runs = map(read_times, map(one_run, paths))
    return list({(run.folder, run.run): run for run in runs}.values())


def _of_stages(comparison: Comparison, stage: str | None) -> Comparison:
    of_stages = comparison.of_stages([stage] if stage else [each for each in STAGES if each != SANITY_CHECK])
    if not of_stages.items:
        raise BadInputError(f"nothing was measured {_where(stage)}")
    return of_stages


def _where(stage: str | None) -> str:
    return f"in {stage or f'any stage but {SANITY_CHECK}'} on either side"


def _meant(given: str, comparison: Comparison, stage: str | None) -> list[tuple[str, str]]:
    """Returns the measurement of this name in each stage that has it; else what the report's tree shows by it.

    Such as `forward/net`, in the stages in which `net` is in `forward`.
    """
    measured = [
        (item.stage, item.measurement, item.parent) for item in comparison.items if item.measurement is not None
    ]
    meant = [(of_stage, name) for of_stage, name, _ in measured if name == given] or list(_at(given, measured))
    if not meant:
        names = list(dict.fromkeys(name for _, name, _ in measured))
        likeliest = dict.fromkeys((*get_close_matches(given, names), *names))
        known = listed(list(likeliest)[:_NAMES_SHOWN], len(likeliest))
        raise BadInputError(f"no measurement {given!r} {_where(stage)}; there is {known or 'none'}")
    return meant


def _at(given: str, measured: Iterable[tuple[str, str, str | None]]) -> Iterator[tuple[str, str]]:
    """Yields the stages and measurements that have this path at the end of theirs."""
    parents: dict[str, dict[str, str | None]] = {}
    for stage, name, parent in measured:
        parents.setdefault(stage, {})[name] = parent
    for stage, of_stage in parents.items():
        yield from ((stage, name) for name in of_stage if f"/{_path(name, of_stage)}".endswith(f"/{given}"))


def _path(name: str, parents: Mapping[str, str | None]) -> str:
    """Returns a measurement's name with those that enclose it in front, unless they are part of it already."""
    path, parent = name, parents.get(name)
    above = {name}
    while parent is not None and parent not in above:  # files from elsewhere may have them in a circle
        above.add(parent)
        path = path if path.startswith(f"{parent}/") else f"{parent}/{path}"
        parent = parents.get(parent)
    return path
