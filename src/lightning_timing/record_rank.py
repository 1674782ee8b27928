"""Reads one rank's file: the newest run in it or an earlier one, its rows as arrays."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lightning_timing.errors import BadInputError
from lightning_timing.phases import ITERATION, STAGES
from lightning_timing.record import IterationRow, Line, OutsideRow, SegmentEnd, SegmentHeader
from lightning_timing.record_lines import CutLine, read_headers, read_lines
from lightning_timing.record_series import SeriesBuilder, StageSeries
from lightning_timing.recorder_settings import RecorderSettings
from lightning_timing.validation import is_whole_number

NO_END: Final = "no end line: the process was killed, or is still running"
"""The problem of a rank whose newest segment does not end."""

_MAX_WORLD_SIZE: Final = 2**31


@dataclass(frozen=True)
class RankRecord:
    """What one rank wrote in one run of its file.

    Attributes:
        path: The file.
        header: The header of the run's newest segment.
        segments: The headers of the run's segments, in order.
        stages: The measured iterations by stage.
        ran: By stage, the segments that have lines of it.
        end: The end of that segment; None where it has none, as the process was killed or still runs.
        problems: What was odd about the file, in words.
    """

    path: Path
    header: SegmentHeader
    segments: tuple[SegmentHeader, ...]
    stages: Mapping[str, StageSeries]
    ran: Mapping[str, Collection[str]]
    end: SegmentEnd | None
    problems: tuple[str, ...]

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the run: of each name those of the last segment that has it."""
        return {name: value for header in self.segments for name, value in header.settings.items()}

    def warmup_of(self, stage: str) -> int:
        """Returns how many iterations of a stage were left out, by the settings of the calls that have lines of it."""
        left_out = 0
        for header in self.segments:
            number = header.settings.get("num_warmup_iters")  # which may be anything in a file from elsewhere
            has_run = header.segment in self.ran.get(stage, ())
            if has_run and isinstance(number, int) and is_whole_number(number, least=0):
                left_out += RecorderSettings(number).warmup_of(stage)
        return left_out


def run_id(segment: str) -> str:
    """The run that a segment, `<run id>-<number of the call>`, belongs to: the same on all of its ranks."""
    return segment.rpartition("-")[0] or segment


def run_beginnings(path: Path) -> dict[str, int]:
    """Returns when each run in a rank's file began, by its id, in nanoseconds since 1970: the oldest first.

    Raises:
        BadInputError: It cannot be read.
    """
    begun: dict[str, int] = {}
    for header in read_headers(path):
        begun.setdefault(run_id(header.segment), header.unix_ns)
    return begun


def read_rank(path: Path, rank: int, run: str | None = None) -> RankRecord | None:
    """Reads a run in a rank's file.

    Args:
        path: The file.
        rank: The rank that its name gives.
        run: The id of the run; None for the newest.

    Returns:
        The record; None where not even a header of the run is whole.

    Raises:
        BadInputError: It is not the record of this rank.
    """
    reading = _RankReading(path, rank, run)
    for number, line in read_lines(path):
        reading.take(number, line)
    return reading.finish()


class _RankReading:
    """The state of reading one file: the run that was asked for or the newest so far, and what was odd."""

    def __init__(self, path: Path, rank: int, run: str | None) -> None:
        self._path = path
        self._rank = rank
        self._run = run
        self._run_ids: dict[str, None] = {}
        self._other_segments: set[str] = set()
        self._segments: dict[str, SegmentHeader] = {}
        self._builders: dict[str, SeriesBuilder] = {}
        self._ran: dict[str, set[str]] = {}
        self._ends: dict[str, SegmentEnd] = {}
        self._problems: dict[str, None] = {}
        self._number = 0

    def take(self, number: int, line: Line | CutLine) -> None:
        self._number = number
        if isinstance(line, IterationRow):
            if self._belongs(line.segment):
                self._take_iteration(line)
        elif isinstance(line, SegmentHeader):
            self._take_header(line)
        elif isinstance(line, CutLine):
            self._note("a line was cut and is left out")
        elif self._belongs(line.segment):
            if isinstance(line, SegmentEnd):
                self._ends[line.segment] = line
            else:
                self._take_outside(line)

    def finish(self) -> RankRecord | None:
        if not self._segments:
            return None
        header = next(reversed(self._segments.values()))
        end = self._ends.get(header.segment)
        if end is None:
            self._note(NO_END)
        return RankRecord(
            path=self._path,
            header=header,
            segments=tuple(self._segments.values()),
            stages={stage: builder.build() for stage, builder in self._builders.items()},
            ran=self._ran,
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
            if self._run is None:
                self._other_segments.update(self._segments)
                self._segments, self._builders, self._ran, self._ends = {}, {}, {}, {}
        if run == (self._run or next(reversed(self._run_ids))):
            self._segments[header.segment] = header
        else:
            self._other_segments.add(header.segment)

    def _take_iteration(self, row: IterationRow) -> None:
        if ITERATION not in row.ns:
            raise self._wrong(f"an iteration without `{ITERATION}` in `ns`")
        if min(row.ns.values()) < 0 or (row.device_ns and min(row.device_ns.values()) < 0):
            raise self._wrong("a negative time")
        if row.samples is not None and row.samples < 0:
            raise self._wrong("a negative number of samples")
        builder = self._builder(row)
        try:
            builder.append(row)
        except OverflowError as error:
            raise self._wrong("a number of more than 64 bits") from error
        except ValueError as error:
            raise self._wrong(str(error)) from error

    def _take_outside(self, row: OutsideRow) -> None:
        if row.ns < 0:
            raise self._wrong("a negative time")
        builder = self._builder(row)
        try:
            builder.append_outside(row)
        except ValueError as error:
            raise self._wrong(str(error)) from error

    def _belongs(self, segment: str) -> bool:
        if segment in self._segments:
            return True
        if not self._run_ids:
            raise self._wrong("no header before it")
        if segment not in self._other_segments:
            self._note("lines of a segment without a header are left out")
        return False

    def _note(self, problem: str) -> None:
        self._problems[problem] = None  # once, however many lines have it

    def _wrong(self, what: str) -> BadInputError:
        return BadInputError(f"{self._path}, line {self._number}: {what}")

    def _builder(self, row: IterationRow | OutsideRow) -> SeriesBuilder:
        if row.stage not in self._builders:
            if row.stage not in STAGES:
                raise self._wrong(f"unknown stage {row.stage!r:.60}")
            self._builders[row.stage], self._ran[row.stage] = SeriesBuilder(), set()
        self._ran[row.stage].add(row.segment)
        return self._builders[row.stage]
