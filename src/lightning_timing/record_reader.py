"""Reads a run's record back: the lines of every `rank<N>.jsonl` as arrays, and `summary.json`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from lightning_timing.errors import BadInputError
from lightning_timing.phases import ITERATION, STAGES
from lightning_timing.record import IterationRow, OutsideRow, RunSummary, SegmentEnd, SegmentHeader
from lightning_timing.record_lines import CutLine, check_version, open_regular, read_lines
from lightning_timing.record_series import SeriesBuilder, StageSeries

TIMING_FOLDER: Final = "timing"
SUMMARY_NAME: Final = "summary.json"
MAX_SUMMARY_BYTES: Final = 64 * 2**20

_RANK_FILE: Final = re.compile(r"rank([0-9]{1,9})\.jsonl")
_MAX_WORLD_SIZE: Final = 2**31
_RANKS_NAMED: Final = 8


@dataclass(frozen=True)
class RankRecord:
    """What one rank wrote in the newest run of its file.

    Attributes:
        path: The file.
        header: The header of the newest segment.
        segments: The headers of the run's segments, in order.
        stages: The measured iterations by stage.
        end: The end of the newest segment; None where it has none, as the process was killed or still runs.
        problems: What was odd about the file, in words.
    """

    path: Path
    header: SegmentHeader
    segments: tuple[SegmentHeader, ...]
    stages: Mapping[str, StageSeries]
    end: SegmentEnd | None
    problems: tuple[str, ...]

    def kept_intervals(self) -> Iterator[IterationRow]:
        """The iterations that kept their intervals, read from the file again, one by one.

        Raises:
            BadInputError: The file is no longer what it was.
        """
        segments = {header.segment for header in self.segments}
        for _, row in read_lines(self.path):
            if isinstance(row, IterationRow) and row.intervals is not None and row.segment in segments:
                yield row


@dataclass(frozen=True)
class Run:
    """A run's record.

    Attributes:
        path: The folder that holds the files.
        ranks: What each rank wrote, by rank, in order.
        summary: `summary.json`; None where there is none.
        problems: What was odd or missing, in words, for the reader of a report.
    """

    path: Path
    ranks: Mapping[int, RankRecord]
    summary: RunSummary | None
    problems: tuple[str, ...]


def load_run(path: Path | str) -> Run:
    """Reads all of a run's record.

    Args:
        path: The run's folder, or the `timing` folder in it.

    Raises:
        BadInputError: There is no record, or a file in it is not what it says it is.
    """
    folder = timing_folder(Path(path))
    problems = ProblemLog()
    ranks = {record.header.rank: record for record in iter_ranks(folder, problems)}
    summary = read_summary(folder)
    if not ranks and summary is None:
        raise BadInputError(f"{folder}: the record is empty")
    return Run(folder, ranks, summary, problems.lines())


def run_id(segment: str) -> str:
    """The run that a segment, `<run id>-<number of the call>`, belongs to."""
    return segment.rpartition("-")[0] or segment


def timing_folder(path: Path) -> Path:
    """The folder that holds the record of the run in `path`.

    Raises:
        BadInputError: There is no record there.
    """
    for folder in (path / TIMING_FOLDER, path):
        if _has_record(folder):
            return folder
    raise BadInputError(
        f"{path}: no record here: no {TIMING_FOLDER}/rank<N>.jsonl and no {TIMING_FOLDER}/{SUMMARY_NAME}"
    )


def has_record(path: Path) -> bool:
    """Whether `timing_folder` finds a record."""
    return _has_record(path / TIMING_FOLDER) or _has_record(path)


def _has_record(folder: Path) -> bool:
    return bool(rank_files(folder)) or (folder / SUMMARY_NAME).is_file()


def rank_files(folder: Path) -> dict[int, Path]:
    """The rank files in `folder` by rank, in order. None where it is not a folder that can be listed."""
    try:
        found = {int(match[1]): path for path in folder.iterdir() if (match := _RANK_FILE.fullmatch(path.name))}
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
        count, named = self._count[problem], self._ranks[problem]
        more = f" and {count - len(named):,} more" if count > len(named) else ""
        return f"rank{'s' if count > 1 else ''} {', '.join(map(str, named))}{more}"


def iter_ranks(folder: Path, problems: ProblemLog) -> Iterator[RankRecord]:
    """Reads the rank files of a record one after the other, so that the caller decides what to keep of each.

    Args:
        folder: The folder that holds the files.
        problems: Gets what was odd, complete once the last rank was read.

    Raises:
        BadInputError: A file is not what it says it is.
    """
    lead: SegmentHeader | None = None
    seen: set[int] = set()
    for rank, path in rank_files(folder).items():
        record = read_rank(path, rank)
        if record is None:
            problems.add("nothing whole was written", [rank])
            continue
        for problem in record.problems:
            problems.add(problem, [rank])
        lead = lead or record.header
        seen.add(rank)
        yield record
    if lead is not None:
        _note_missing(lead, seen, problems)


def _note_missing(header: SegmentHeader, seen: set[int], problems: ProblemLog) -> None:
    expected: Collection[int] = range(header.world_size)
    chosen = header.settings.get("ranks")
    if isinstance(chosen, list):
        expected = {rank for rank in chosen if isinstance(rank, int) and 0 <= rank < header.world_size}
    count = len(expected) - sum(rank in expected for rank in seen)
    if count > 0:
        problems.add("no record", (rank for rank in expected if rank not in seen), count)


def read_rank(path: Path, rank: int) -> RankRecord | None:
    """Reads the newest run in a rank's file.

    Args:
        path: The file.
        rank: The rank that its name gives.

    Returns:
        The record; None where not even a header is whole.

    Raises:
        BadInputError: It is not the record of this rank.
    """
    reading = _RankReading(path, rank)
    for number, line in read_lines(path):
        reading.take(number, line)
    return reading.finish()


class _RankReading:
    """The state of reading one file: the newest run so far, and what was odd."""

    def __init__(self, path: Path, rank: int) -> None:
        self._path = path
        self._rank = rank
        self._run_ids: dict[str, None] = {}
        self._other_segments: set[str] = set()
        self._segments: dict[str, SegmentHeader] = {}
        self._builders: dict[str, SeriesBuilder] = {}
        self._ends: dict[str, SegmentEnd] = {}
        self._problems: dict[str, None] = {}
        self._number = 0

    def take(self, number: int, line: SegmentHeader | IterationRow | OutsideRow | SegmentEnd | CutLine) -> None:
        self._number = number
        if isinstance(line, IterationRow):
            if self._belongs(line.segment):
                self._take_iteration(line)
        elif isinstance(line, SegmentHeader):
            self._take_header(line)
        elif isinstance(line, CutLine):
            self._problems["a line was cut and is left out"] = None
        elif self._belongs(line.segment):
            if isinstance(line, SegmentEnd):
                self._ends[line.segment] = line
            else:
                self._builder(line.stage).append_outside(line)

    def finish(self) -> RankRecord | None:
        if not self._segments:
            return None
        header = next(reversed(self._segments.values()))
        end = self._ends.get(header.segment)
        if end is None:
            self._problems["no end line: the process was killed, or is still running"] = None
        if earlier := len(self._run_ids) - 1:
            self._problems[f"{earlier:,} earlier run{'s' if earlier > 1 else ''} in the same file left out"] = None
        return RankRecord(
            path=self._path,
            header=header,
            segments=tuple(self._segments.values()),
            stages={stage: builder.build() for stage, builder in self._builders.items()},
            end=end,
            problems=tuple(self._problems),
        )

    def _take_header(self, header: SegmentHeader) -> None:
        if header.rank != self._rank:
            raise self._wrong(f"the header of rank {header.rank} in the file of rank {self._rank}")
        if not header.rank < header.world_size <= _MAX_WORLD_SIZE:
            raise self._wrong(f"rank {header.rank} of {header.world_size}")
        run = run_id(header.segment)
        if run not in self._run_ids:
            self._run_ids[run] = None
            self._other_segments.update(self._segments)
            self._segments, self._builders, self._ends = {}, {}, {}
        if run == next(reversed(self._run_ids)):
            self._segments[header.segment] = header
        else:
            self._other_segments.add(header.segment)

    def _take_iteration(self, row: IterationRow) -> None:
        if ITERATION not in row.ns:
            raise self._wrong(f"an iteration without `{ITERATION}` in `ns`")
        if min(row.ns.values()) < 0:
            raise self._wrong("a negative time")
        try:
            self._builder(row.stage).append(row)
        except OverflowError as error:
            raise self._wrong("a number of more than 64 bits") from error

    def _belongs(self, segment: str) -> bool:
        if segment in self._segments:
            return True
        if not self._run_ids:
            raise self._wrong("no header before it")
        if segment not in self._other_segments:
            self._problems["lines of a segment without a header are left out"] = None
        return False

    def _wrong(self, what: str) -> BadInputError:
        return BadInputError(f"{self._path}, line {self._number}: {what}")

    def _builder(self, stage: str) -> SeriesBuilder:
        if stage not in self._builders:
            if stage not in STAGES:
                raise self._wrong(f"unknown stage {stage!r:.60}")
            self._builders[stage] = SeriesBuilder()
        return self._builders[stage]


def read_summary(folder: Path) -> RunSummary | None:
    """`summary.json` of a record, or None where there is none.

    Raises:
        BadInputError: It is not a summary, or one of a newer schema.
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
        return msgspec.json.decode(data, type=RunSummary)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadInputError(f"{path}: not a summary: {error}") from error
