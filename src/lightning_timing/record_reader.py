"""Reads a run's record back: the lines of every `rank<N>.jsonl` as arrays, and `summary.json`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from lightning_timing.errors import BadInputError
from lightning_timing.names import listed
from lightning_timing.record import RANK_FILE, SUMMARY_NAME, TIMING_FOLDER, RunSummary, SegmentHeader
from lightning_timing.record_lines import check_numbers, check_version, open_regular
from lightning_timing.record_rank import RankRecord, read_rank, run_beginnings, run_id
from lightning_timing.run_choice import choice_of

MAX_SUMMARY_BYTES: Final = 64 * 2**20

_WHAT_TO_GIVE: Final = f"the folder of a run, the one that holds {TIMING_FOLDER}/rank<N>.jsonl or {SUMMARY_NAME}"

_RANKS_NAMED: Final = 8


def timing_folder(path: Path) -> Path:
    """Finds the folder that holds the record of the run in `path`, which may also be a file of the record.

    Raises:
        BadInputError: There is no record there.
    """
    given = run_folder(path)
    for folder in (given / TIMING_FOLDER, given):
        if _has_record(folder):
            return folder
    if not choice_of(path).path.exists():
        raise BadInputError(f"{path}: no such folder; give {_WHAT_TO_GIVE}")
    raise BadInputError(f"{path}: no record here, as where timing was off; give {_WHAT_TO_GIVE}")


def has_record(path: Path) -> bool:
    """Whether `timing_folder` finds a record."""
    folder = run_folder(path)
    return _has_record(folder / TIMING_FOLDER) or _has_record(folder)


def run_folder(path: Path) -> Path:
    """Returns `path`, or the folder that it lies in if it is a file of a record; `FOLDER` where it is `FOLDER~1`."""
    path = choice_of(path).path
    is_of_record = path.name == SUMMARY_NAME or RANK_FILE.fullmatch(path.name)
    return path.parent if is_of_record and path.is_file() else path


def chosen_run(path: Path) -> str | None:
    """Returns the id of the run that `FOLDER~1` means, the one before the newest; None where that is meant.

    Raises:
        BadInputError: There is no record there, or there are not as many runs in it.
    """
    back = choice_of(path).back
    if not back:
        return None
    folder = timing_folder(path)
    runs = _runs_in(folder)
    if back >= len(runs):
        known = f"holds {len(runs)} runs, the oldest of which is ~{len(runs) - 1}" if len(runs) > 1 else "holds one run"
        raise BadInputError(f"{path}: {folder} {known}")
    return runs[-1 - back]


def _runs_in(folder: Path) -> list[str]:
    """Returns the ids of the runs of all ranks, the oldest first: by the order in a file or, if none has all, by time.

    Of runs that began at the same time the lowest rank's counts as the last.

    Raises:
        BadInputError: A file cannot be read.
    """
    files = [run_beginnings(path) for path in rank_files(folder).values()]
    longest = max(files, key=len, default={})
    begun = {run: unix_ns for file in reversed(files) for run, unix_ns in file.items()}
    return list(longest) if len(longest) == len(begun) else sorted(begun, key=begun.__getitem__)


def _has_record(folder: Path) -> bool:
    return bool(rank_files(folder)) or (folder / SUMMARY_NAME).is_file()


def rank_files(folder: Path) -> dict[int, Path]:
    """Returns the rank files in `folder` by rank, in order; empty where it cannot be listed."""
    try:
        found = {int(match[1]): path for path in folder.iterdir() if (match := RANK_FILE.fullmatch(path.name))}
    except OSError:
        return {}
    return dict(sorted(found.items()))


class ProblemLog:
    """Gathers problems, each with its ranks, so that one shared by a thousand ranks still takes one line."""

    def __init__(self) -> None:
        self._count: dict[str, int] = {}
        self._ranks: dict[str, list[int]] = {}

    def add(self, problem: str, ranks: Iterable[int], count: int = 1) -> None:
        """Notes a problem of `count` ranks, of which `ranks` gives at least the first ones."""
        named = self._ranks.setdefault(problem, [])
        named.extend(islice(ranks, _RANKS_NAMED - len(named)))
        self._count[problem] = self._count.get(problem, 0) + count

    def lines(self) -> tuple[str, ...]:
        """The problems in words, in the order in which they were first met."""
        return tuple(f"{self._name_ranks(problem)}: {problem}" for problem in self._ranks)

    def _name_ranks(self, problem: str) -> str:
        count = self._count[problem]
        return f"rank{'s' if count > 1 else ''} {listed(self._ranks[problem], count)}"


def iter_ranks(folder: Path, problems: ProblemLog, run: str | None = None) -> Iterator[RankRecord]:
    """Reads the rank files of a record one after the other, so that the caller decides what to keep of each.

    Args:
        folder: The folder that holds the files.
        problems: Gets what was odd, complete once the last rank was read.
        run: The id of the run; None for the newest.

    Raises:
        BadInputError: A file is not a valid record.
    """
    files = rank_files(folder)
    runs = [] if run is not None else _runs_in(folder)
    lead: RankRecord | None = None
    named: set[int] = set()
    for rank, path in files.items():
        record = read_rank(path, rank, run)
        if record is None:
            if run is None:
                problems.add("nothing whole was written", [rank])
                named.add(rank)
            continue
        if runs and run_id(record.header.segment) != runs[-1]:
            problems.add("a record of another run is left out", [rank])
            named.add(rank)
            continue
        lead = lead or record
        for problem in (*record.problems, *_left_out(len(runs) - 1)):
            problems.add(problem, [rank])
        named.add(rank)
        yield record
    if lead is not None:
        expected = _expected_ranks(lead.header)
        if (missing := len(expected) - sum(rank in expected for rank in named)) > 0:
            problems.add("no record of this run", (rank for rank in expected if rank not in named), missing)


def _left_out(earlier: int) -> tuple[str, ...]:
    """Says how many earlier runs are left out, and how they are shown."""
    if earlier < 1:
        return ()
    if earlier == 1:
        return ("1 earlier run in the same folder left out: RUN~1 shows it",)
    return (f"{earlier:,} earlier runs in the same folder left out: RUN~1 to RUN~{earlier} show them",)


def _expected_ranks(header: SegmentHeader) -> Collection[int]:
    """The ranks that were to write a record: those chosen, else all of them."""
    chosen = header.settings.get("ranks")
    if not isinstance(chosen, list):
        return range(header.world_size)
    return {rank for rank in chosen if isinstance(rank, int) and 0 <= rank < header.world_size}


def summary_covering(folder: Path, lead: RankRecord | None) -> RunSummary | None:
    """`summary.json` of a record, or None where there is none that covers its rows.

    A run that was killed leaves none, and one that lies there is then of an earlier run, or call of the Trainer.

    Args:
        folder: The folder that holds it.
        lead: The lowest rank's rows; None: there are none, and any summary is valid.

    Raises:
        BadInputError: It is not a summary, or one of another version of the schema.
    """
    summary = read_summary(folder)
    return summary if summary is None or lead is None or _covers(summary, lead) else None


def _covers(summary: RunSummary, lead: RankRecord) -> bool:
    """Whether a summary is of the run in the rows, and was written after the last of them."""
    runs = {run_id(segment.segment) for segment in summary.segments}
    if summary.rank != lead.header.rank or run_id(lead.header.segment) not in runs:
        return False
    return all(
        stage in summary.stages and summary.stages[stage].iterations >= len(series)
        for stage, series in lead.stages.items()
    )


def read_summary(folder: Path) -> RunSummary | None:
    """`summary.json` of a record, or None where there is none.

    Raises:
        BadInputError: It is not a summary, or one of another version of the schema.
    """
    path = folder / SUMMARY_NAME
    if not path.is_symlink() and not path.exists():
        return None
    with open_regular(path) as file:
        data = file.read(MAX_SUMMARY_BYTES + 1)
    if len(data) > MAX_SUMMARY_BYTES:
        raise BadInputError(f"{path}: longer than {MAX_SUMMARY_BYTES >> 20} MiB")
    try:
        check_version(data)
        summary = msgspec.json.decode(data, type=RunSummary)
        check_numbers(summary)
        _check_counts(summary)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadInputError(f"{path}: not a summary: {error}") from error
    return summary


def _check_counts(summary: RunSummary) -> None:
    """Checks the numbers of iterations, by which readers divide, and of samples.

    Raises:
        msgspec.ValidationError: One is below zero.
    """
    stages = summary.stages.values()
    if any(min(stage.iterations, stage.warmup_iterations, stage.samples or 0) < 0 for stage in stages):
        raise msgspec.ValidationError("a negative number of iterations or samples")
