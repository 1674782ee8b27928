"""A run as trace-event JSON, which Perfetto and Chrome's tracing page open: a process a rank, its iterations nested.

Iterations that kept their intervals are drawn as they were. Of the others only the sums are known: their measurements
lie in the order of the loop and carry `"approximate": true`. The time of an iteration that no phase covers is `other`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightning_timing.errors import BadInputError
from lightning_timing.phases import ITERATION, OTHER, PHASES, TRAIN
from lightning_timing.record import IterationRow, OutsideRow, RunSummary, SegmentHeader
from lightning_timing.record_lines import read_lines
from lightning_timing.reporting.trace_layout import MAX_LANES, Lane, Lanes, Nesting, Slot, host_slots

if TYPE_CHECKING:
    from lightning_timing.record_rank import RankRecord

DEVICE_TRACK: Final = MAX_LANES
"""The thread number of a rank's device track; its host tracks have those below."""

Event = dict[str, Any]


@dataclass(frozen=True)
class TraceSource:
    """What is kept of a rank's record in order to read its lines once more.

    Attributes:
        path: The rank's file.
        header: The header of the newest segment.
        offset_ns: The wall clock less the monotonic clock, in nanoseconds, by segment.
        opened_ns: When the first segment was opened, on the wall clock, in nanoseconds since 1970-01-01 UTC.
        parents: The enclosing measurement of each one that was seen inside another, by stage.
    """

    path: Path
    header: SegmentHeader
    offset_ns: Mapping[str, int]
    opened_ns: int
    parents: Mapping[str, Mapping[str, str]]

    @classmethod
    def of(cls, record: RankRecord) -> TraceSource:
        """The source that a record was read from."""
        # The first pairing of a process holds for all of its segments: its monotonic clock runs through, while the wall
        # clock may have been set back between two of them.
        by_process: dict[tuple[str, int], int] = {}
        offset_ns = {
            header.segment: by_process.setdefault((header.host, header.pid), header.unix_ns - header.monotonic_ns)
            for header in record.segments
        }
        parents = {stage: series.parents for stage, series in record.stages.items()}
        return cls(record.path, record.header, offset_ns, record.segments[0].unix_ns, parents)


def trace_json(sources: Sequence[TraceSource], summary: RunSummary | None) -> Iterator[bytes]:
    """The trace of a run, piece by piece, in memory that does not grow with the run.

    Args:
        sources: The ranks to draw, at least one, on one time axis through their clock pairings. It starts where the
            first of them was opened.
        summary: Tells which measurement lies in which, where no interval shows it.

    Raises:
        BadInputError: A file is no longer what it was, or holds an interval of negative length.
    """
    origin_ns = min(source.opened_ns for source in sources)
    stages = {} if summary is None else summary.stages
    parents = {
        stage: {name: figures.parent for name, figures in found.measurements.items() if figures.parent is not None}
        for stage, found in stages.items()
    }
    encode = msgspec.json.Encoder().encode
    separator = b"\n"
    yield b'{"displayTimeUnit":"ms","traceEvents":['
    for source in sources:
        for events in _RankTrace(source, origin_ns, parents).events():
            for event in events:
                yield separator + encode(event)
                separator = b",\n"
    yield b"\n]}\n"


class _RankTrace:
    """The events of one rank, line by line."""

    def __init__(self, source: TraceSource, origin_ns: int, parents: Mapping[str, Mapping[str, str]]) -> None:
        self._source = source
        self._rank = source.header.rank
        self._origin_ns = origin_ns
        self._parents = parents
        self._nestings: dict[str, Nesting] = {}
        self._numbers = Counter[str]()
        self._lanes = Lanes()
        self._device_lane = Lane()
        self._device_free_ns = 0
        self._named_tracks = set[int]()

    def events(self) -> Iterator[list[Event]]:
        """The events of each line, in the order of the file, and before them the names of tracks that they open."""
        yield self._process()
        for is_outside, rows in groupby(self._rows(), key=lambda found: isinstance(found[2], OutsideRow)):
            # What lies between two iterations is written by name.
            for number, start, row in sorted(rows, key=itemgetter(1)) if is_outside else rows:
                try:
                    events = self._outside(row, start) if isinstance(row, OutsideRow) else self._iteration(row, start)
                except ValueError as error:
                    raise BadInputError(f"{self._source.path}, line {number}: {error}") from error
                yield self._new_tracks(events) + events

    def _rows(self) -> Iterator[tuple[int, int, IterationRow | OutsideRow]]:
        """The rows to be drawn, each with the number of its line and its start from the origin, in nanoseconds."""
        offsets = self._source.offset_ns
        for number, line in read_lines(self._source.path):
            if isinstance(line, IterationRow | OutsideRow) and line.segment in offsets:
                yield number, line.start_ns + offsets[line.segment] - self._origin_ns, line

    def _process(self) -> list[Event]:
        header = self._source.header
        label = f"rank {self._rank} ({header.device}, {header.host}, process {header.pid})"
        return [
            self._metadata("process_name", name=label),
            self._metadata("process_sort_index", sort_index=self._rank),
        ]

    def _iteration(self, row: IterationRow, start: int) -> list[Event]:
        nesting = self._nesting(row.stage)
        not_drawn: list[str] = []
        args = {
            "stage": row.stage,
            "epoch": row.epoch,
            "batch_idx": row.batch_idx,
            "global_step": row.global_step,
            "samples": row.samples,
            "not_drawn": not_drawn,  # what found no track, such as the sum of many threads
        }
        events = []
        label = self._next_label(row.stage)
        for slot in _sorted(host_slots(row.ns, row.intervals, nesting)):
            within = (nesting.parent(slot.name) or "") if slot.is_approximate else None
            lane = self._lanes.take(slot, start, within)
            if lane is None:
                not_drawn.append(slot.name)
            elif slot.name == ITERATION:
                events.append(self._complete(label, "iteration", lane, slot, start, args))
            else:
                events.append(self._measurement(slot, lane, start))
        if row.device_ns is not None:
            events += self._device(row.device_ns, nesting, start)
        return events

    def _nesting(self, stage: str) -> Nesting:
        if stage not in self._nestings:
            self._nestings[stage] = Nesting({**self._source.parents.get(stage, {}), **self._parents.get(stage, {})})
        return self._nestings[stage]

    def _next_label(self, stage: str) -> str:
        number = self._numbers[stage]
        self._numbers[stage] += 1
        return f"{ITERATION} {number}" if stage == TRAIN else f"{stage} {ITERATION} {number}"

    def _device(self, device_ns: Mapping[str, int], nesting: Nesting, start: int) -> list[Event]:
        """Device time in the order of the loop, each iteration's behind the last one's, as work queues on a stream."""
        ns = {name: device_ns[name] for name in device_ns if name not in (ITERATION, OTHER)}
        start = max(start, self._device_free_ns)
        events = []
        whole = Slot(ITERATION, 0, sum(ns.values()))
        for slot in _sorted(nesting.lay_out(ns, {ITERATION: whole})):
            if self._device_lane.take(slot.name, start + slot.start, start + slot.end):
                events.append(self._measurement(slot, DEVICE_TRACK, start))
                self._device_free_ns = max(self._device_free_ns, start + slot.end)
        return events

    def _outside(self, row: OutsideRow, start: int) -> list[Event]:
        slot = Slot(row.name, 0, row.ns, is_beside=True)
        whole, _, _ = row.name.rpartition("/")
        lane = self._lanes.take(slot, start, within=whole)
        args = {"stage": row.stage, "epoch": row.epoch}
        return [] if lane is None else [self._complete(row.name, "outside", lane, slot, start, args)]

    def _measurement(self, slot: Slot, track: int, start: int) -> Event:
        is_phase = slot.name.partition("/")[0] in PHASES
        args = {"approximate": True} if slot.is_approximate else {}
        return self._complete(slot.name, "phase" if is_phase else "measurement", track, slot, start, args)

    def _complete(self, name: str, category: str, track: int, slot: Slot, start: int, args: Mapping[str, Any]) -> Event:
        return {
            "name": name,
            "cat": category,
            "ph": "X",
            "ts": (start + slot.start) / 1000,
            "dur": (slot.end - slot.start) / 1000,
            "pid": self._rank,
            "tid": track,
            "args": args,
        }

    def _new_tracks(self, events: Iterable[Event]) -> list[Event]:
        """The names of the tracks that `events` are the first on."""
        new = {event["tid"] for event in events} - self._named_tracks
        self._named_tracks |= new
        names = []
        for track in sorted(new):
            label = "device" if track == DEVICE_TRACK else f"beside the iterations {track}" if track else "iterations"
            names.append(self._metadata("thread_name", track, name=label))
            names.append(self._metadata("thread_sort_index", track, sort_index=track))
        return names

    def _metadata(self, kind: str, track: int = 0, **args: Any) -> Event:
        return {"name": kind, "ph": "M", "pid": self._rank, "tid": track, "args": args}


def _sorted(slots: Iterable[Slot]) -> list[Slot]:
    """Slots by start, enclosing ones first. Raises ValueError for one of negative length."""
    ordered = sorted(slots, key=lambda slot: (slot.start, -slot.end))
    for slot in ordered:
        if slot.end < slot.start:
            raise ValueError("an interval ends before it starts")
    return ordered
