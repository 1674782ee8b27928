"""What an Nsight Systems export says of each phase: host time, and what the GPU did for it.

GPU work belongs to the ranges that enclose the call that launched it, on the thread that made the call. torch runs the
backward pass on threads of its own: what they launch while a thread has `backward` open is attributed to that thread.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from statistics import median
from typing import TYPE_CHECKING, Final

from lightning_timing.errors import BadInputError
from lightning_timing.nsys_tables import DeviceWork, NsysTables, RangeRow, open_export, pid_of, process_of
from lightning_timing.nvtx_domain import DOMAIN
from lightning_timing.phases import BACKWARD, ITERATION, is_phase_range

if TYPE_CHECKING:
    from pathlib import Path

AUTOGRAD_THREADS: Final = "pt_autograd_"
"""Prefix of the names of the threads on which torch runs the backward pass for GPUs."""

MAX_DEPTH: Final = 200
"""The deepest nesting of ranges that is read; an export with a deeper one is refused."""

OUTSIDE: Final = -1
"""The iteration number of a range that is in no iteration."""

NO_BATCH: Final = -1
"""The batch index of a range that has none."""


class RangeSeries:
    """All ranges of one name in one stage of one process.

    Attributes:
        start_ns: When each opened, in nanoseconds.
        host_ns: How long each lasted, in nanoseconds.
        own_ns: The same without the phases inside it, which is what the Stopwatch measures of a phase.
        iterations: Which iteration of the stage each lies in, from 0, or `OUTSIDE`.
        batch_idx: The index of the batch of each, its payload, or `NO_BATCH`.
        gpu_count: How many of them launched work on a GPU.
        gpu_ns: Sum over those: from the start of the first to the end of the last work that it launched.
        gpu_busy_ns: Sum over those: how long any of that work ran.
    """

    __slots__ = ("batch_idx", "gpu_busy_ns", "gpu_count", "gpu_ns", "host_ns", "iterations", "own_ns", "start_ns")

    def __init__(self) -> None:
        self.start_ns = array("q")
        self.host_ns = array("q")
        self.own_ns = array("q")
        self.iterations = array("q")
        self.batch_idx = array("q")
        self.gpu_count = 0
        self.gpu_ns = 0
        self.gpu_busy_ns = 0

    def __len__(self) -> int:
        return len(self.host_ns)

    @property
    def host_total_ns(self) -> int:
        """Total duration of the ranges, in nanoseconds."""
        return sum(self.host_ns)

    @property
    def host_median_ns(self) -> float:
        """Median duration of a range, in nanoseconds."""
        return median(self.host_ns)

    @property
    def gpu_idle_share(self) -> float | None:
        """The share of `gpu_ns` in which none of the work ran; None where none was launched."""
        return 1 - self.gpu_busy_ns / self.gpu_ns if self.gpu_ns else None


@dataclass
class ExportedProcess:
    """The ranges of one process.

    Attributes:
        pid: The process's number.
        stages: The ranges by stage, then by name; the stage is None for those outside of any.
        left_open: Ranges that had not closed when the profile ended; they are not among the others.
    """

    pid: int
    stages: dict[str | None, dict[str, RangeSeries]] = field(default_factory=dict)
    left_open: int = 0

    def series(self, stage: str | None, name: str) -> RangeSeries:
        """Returns the ranges of a name in a stage, which are none at first."""
        return self.stages.setdefault(stage, {}).setdefault(name, RangeSeries())

    def iteration_count(self, stage: str | None) -> int:
        """Iterations seen so far in a stage."""
        return len(self.stages.get(stage, {}).get(ITERATION, ()))


def read_export(path: Path) -> list[ExportedProcess]:
    """Reads the ranges of this package from an export.

    Args:
        path: The export.

    Returns:
        The processes that have ranges, in the order of their numbers.

    Raises:
        BadInputError: It is no export, or it has no ranges of this package.
    """
    with open_export(path) as tables:
        processes = _read(tables)
        if not processes:
            others = "only others" if tables.has_other_nvtx_events() else "no NVTX events at all"
            raise BadInputError(
                f"{path}: no ranges of the domain {DOMAIN}, {others}: lightning-timing check says whether they arrive"
            )
    return [processes[number] for number in sorted(processes)]


def _read(tables: NsysTables) -> dict[int, ExportedProcess]:
    processes: dict[int, ExportedProcess] = {}
    work = tables.device_work()
    if work:
        _hand_over_backward(work, tables)
    for thread, rows in groupby(tables.ranges(DOMAIN), key=lambda row: row.thread):
        number = process_of(thread)
        process = processes.setdefault(number, ExportedProcess(pid_of(number)))
        _ThreadReading(process, work.get(thread, []), tables.path).read(rows)
    return processes


def _hand_over_backward(work: dict[int, list[DeviceWork]], tables: NsysTables) -> None:
    """Moves what autograd's threads launched to the threads that had `backward` open at the time."""
    autograd = tables.threads_named(AUTOGRAD_THREADS) & work.keys()
    if not autograd:
        return
    backwards: dict[int, list[tuple[int, int, int]]] = {}
    for row in tables.ranges(DOMAIN):
        if row.name == BACKWARD and row.nests and row.end_ns is not None:
            backwards.setdefault(process_of(row.thread), []).append((row.start_ns, row.end_ns, row.thread))
    for launcher in autograd:
        candidates = sorted(backwards.get(process_of(launcher), []))
        starts = [start for start, _, _ in candidates]
        for launched in work.pop(launcher):
            place = bisect_right(starts, launched.call_start_ns) - 1
            inside = place >= 0 and launched.call_end_ns <= candidates[place][1]
            work.setdefault(candidates[place][2] if inside else launcher, []).append(launched)
    for launched_by_thread in work.values():
        launched_by_thread.sort()


class _OpenRange:
    """A range that is open at the point where reading has got to."""

    __slots__ = ("inner_ns", "iteration", "row", "work")

    def __init__(self, row: RangeRow, iteration: int) -> None:
        self.row = row
        self.iteration = iteration
        self.inner_ns = 0
        self.work: list[tuple[int, int]] = []


class _ThreadReading:
    """Goes through one thread's ranges and launches in the order of time, with what is open on a stack."""

    def __init__(self, process: ExportedProcess, work: list[DeviceWork], path: Path) -> None:
        self._process = process
        self._path = path
        self._work = iter(work)
        self._next_work = next(self._work, None)
        self._open: list[_OpenRange] = []

    def read(self, rows: Iterable[RangeRow]) -> None:
        for row in rows:
            if row.end_ns is None:
                self._process.left_open += 1
            elif row.nests:
                self._launch_until(row.start_ns)
                self._close_until(row.start_ns)
                self._push(row)
            else:
                self._add(_OpenRange(row, OUTSIDE), row.end_ns)
        self._launch_until(None)
        self._close_until(None)

    def _push(self, row: RangeRow) -> None:
        if len(self._open) == MAX_DEPTH:
            raise BadInputError(
                f"{self._path}: ranges nest deeper than {MAX_DEPTH:,}: push none in code that calls itself"
            )
        if row.name == ITERATION:
            iteration = self._process.iteration_count(row.category)
        else:
            iteration = self._open[-1].iteration if self._open else OUTSIDE
        self._open.append(_OpenRange(row, iteration))

    def _launch_until(self, moment: int | None) -> None:
        """Gives the work launched before a moment to the innermost range that encloses the call."""
        while (work := self._next_work) is not None and (moment is None or work.call_start_ns < moment):
            self._next_work = next(self._work, None)
            self._close_until(work.call_start_ns)
            for opened in reversed(self._open):
                if opened.row.end_ns is not None and work.call_end_ns <= opened.row.end_ns:
                    opened.work.append((work.start_ns, work.end_ns))
                    break

    def _close_until(self, moment: int | None) -> None:
        while self._open:
            closing = self._open[-1]
            end_ns = closing.row.end_ns
            if end_ns is None or (moment is not None and end_ns > moment):
                return
            self._open.pop()
            self._add(closing, end_ns)

    def _add(self, closed: _OpenRange, end_ns: int) -> None:
        row = closed.row
        host_ns = end_ns - row.start_ns
        series = self._process.series(row.category, row.name)
        series.start_ns.append(row.start_ns)
        series.host_ns.append(host_ns)
        series.own_ns.append(max(host_ns - closed.inner_ns, 0))
        series.iterations.append(closed.iteration)
        series.batch_idx.append(NO_BATCH if row.payload is None else row.payload)
        busy = list(_union(closed.work))
        if busy:
            series.gpu_count += 1
            series.gpu_ns += busy[-1][1] - busy[0][0]
            series.gpu_busy_ns += sum(end - start for start, end in busy)
        if self._open:
            parent = self._open[-1]
            parent.work += busy
            parent.inner_ns += host_ns if is_phase_range(row.name) else closed.inner_ns


def _union(intervals: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Merges intervals that overlap. Yields the result in order."""
    merged: tuple[int, int] | None = None
    for start, end in sorted(intervals):
        if merged is None or start > merged[1]:
            if merged is not None:
                yield merged
            merged = (start, end)
        elif end > merged[1]:
            merged = (merged[0], end)
    if merged is not None:
        yield merged
