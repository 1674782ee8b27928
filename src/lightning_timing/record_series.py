"""The rows of one stage as numpy arrays, gathered row by row in memory bounded by the size of the file."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from lightning_timing.phases import ITERATION, OTHER, is_phase

if TYPE_CHECKING:
    from lightning_timing.record import IterationRow, OutsideRow

MAX_MEASUREMENTS_READ: Final = 4096
"""Different measurements in a stage; the Stopwatch stops well before. Each costs a pass over the rows."""

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class StageSeries:
    """The measured iterations of one stage on one rank, in the order in which they were written.

    Attributes:
        epoch: Epoch of each iteration, shape (iterations,).
        batch_idx: Its batch index in the epoch.
        global_step: Optimizer steps taken before it.
        start_ns: The process's monotonic clock at its start, in nanoseconds.
        ns: Host time by measurement, in nanoseconds: arrays of shape (iterations,), NaN where it did not occur. Each
            look-up builds its array, so hold on to what you need again.
        device_ns: Device time by measurement, in the same form. Empty where it was not measured.
        samples: Batch sizes; NaN where unknown.
        outside: What was measured between iterations: its times by measurement, in nanoseconds.
        parents: The enclosing measurement of each one that was seen inside another, as far as intervals were kept.
    """

    epoch: IntArray
    batch_idx: IntArray
    global_step: IntArray
    start_ns: IntArray
    ns: Mapping[str, FloatArray]
    device_ns: Mapping[str, FloatArray]
    samples: FloatArray
    outside: Mapping[str, FloatArray]
    parents: Mapping[str, str]

    def __len__(self) -> int:
        """The number of iterations."""
        return len(self.epoch)

    @property
    def known_samples(self) -> FloatArray:
        """The batch sizes that are known."""
        return self.samples[~np.isnan(self.samples)]


class Columns(Mapping[str, FloatArray]):
    """A table whose columns are built on access: most rows lack few columns, and some lack most.

    Rows with the same names in the same order share a layout; the cells lie row after row in one flat array.
    """

    def __init__(self, cells: IntArray, layout_of_row: IntArray, layouts: list[tuple[str, ...]]) -> None:
        widths = np.array([len(layout) for layout in layouts], dtype=np.int64)
        ends = np.cumsum(widths[layout_of_row])
        self._cells = cells
        self._layout_of_row = layout_of_row
        self._first_cell = ends - widths[layout_of_row]
        self._num_layouts = len(layouts)
        self._places: dict[str, tuple[list[int], list[int]]] = {}
        for number, layout in enumerate(layouts):
            for position, name in enumerate(layout):
                numbers, positions = self._places.setdefault(name, ([], []))
                numbers.append(number)
                positions.append(position)

    def __getitem__(self, name: str) -> FloatArray:
        numbers, positions = self._places[name]
        position_in_layout = np.full(self._num_layouts, -1, dtype=np.int64)
        position_in_layout[numbers] = positions
        position = position_in_layout[self._layout_of_row]
        present = position >= 0
        column = np.full(len(position), np.nan)
        column[present] = self._cells[self._first_cell[present] + position[present]]
        return column

    def __contains__(self, name: object) -> bool:  # Mapping's own would build the column
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


class _ColumnsBuilder:
    """Gathers the cells of `Columns`: 8 bytes a cell and 8 a row."""

    def __init__(self) -> None:
        self._cells = array("q")
        self._layout_of_row = array("q")
        self._layouts: dict[tuple[str, ...], int] = {(): 0}
        self._names: set[str] = set()

    def append(self, row: Mapping[str, int] | None) -> None:
        """Adds a row, None for an empty one. Raises OverflowError and ValueError like `SeriesBuilder.append`."""
        if row is None:
            self._layout_of_row.append(0)
            return
        layout = tuple(row)
        if layout not in self._layouts:
            self._names.update(layout)
            _check_number(len(self._names))
            self._layouts[layout] = len(self._layouts)
        self._cells.extend(row.values())
        self._layout_of_row.append(self._layouts[layout])

    def build(self) -> Columns:
        return Columns(np.asarray(self._cells), np.asarray(self._layout_of_row), list(self._layouts))


class SeriesBuilder:
    """Gathers the rows of one stage."""

    def __init__(self) -> None:
        self._places = array("q")  # four a row: one call is quicker than four
        self._samples = array("d")
        self._ns = _ColumnsBuilder()
        self._device_ns = _ColumnsBuilder()
        self._outside: dict[str, array[float]] = {}
        self._enclosing: dict[str, str] = {}

    def append(self, row: IterationRow) -> None:
        """Adds an iteration.

        Raises:
            OverflowError: A number has more than 64 bits.
            ValueError: There are too many different measurements.
        """
        self._places.extend((row.epoch, row.batch_idx, row.global_step, row.start_ns))
        self._samples.append(np.nan if row.samples is None else row.samples)
        self._ns.append(row.ns)
        self._device_ns.append(row.device_ns)
        if row.intervals is not None and any(name not in self._enclosing for name, _, _ in row.intervals):
            self._note_enclosing(row.intervals)

    def _note_enclosing(self, intervals: list[tuple[str, int, int]]) -> None:
        """Notes which measurement lies in which, by the first interval of each.

        One of the user's in which a phase began or ended is in no phase: see `UserMeasurements`.
        """
        edges = sorted(edge for name, *ends in intervals if is_phase(name) for edge in ends)
        open_ones: list[tuple[str, int]] = []
        for name, begin, end in sorted(intervals, key=lambda interval: (interval[1], -interval[2])):
            while open_ones and open_ones[-1][1] < end:
                open_ones.pop()
            if name not in self._enclosing:
                around = open_ones[-1][0] if open_ones else OTHER
                reaches_across = bisect_right(edges, begin) < bisect_left(edges, end)
                self._enclosing[name] = ITERATION if is_phase(around) and reaches_across else around
            open_ones.append((name, end))

    def append_outside(self, row: OutsideRow) -> None:
        """Adds something measured between iterations. Raises ValueError for too many different measurements."""
        if row.name not in self._outside:
            _check_number(len(self._outside) + 1)
            self._outside[row.name] = array("d")
        self._outside[row.name].append(row.ns)

    def build(self) -> StageSeries:
        """Returns the series. The builder must not be used afterwards: the arrays share its memory."""
        epoch, batch_idx, global_step, start_ns = np.asarray(self._places).reshape(-1, 4).T
        return StageSeries(
            epoch=epoch,
            batch_idx=batch_idx,
            global_step=global_step,
            start_ns=start_ns,
            ns=self._ns.build(),
            device_ns=self._device_ns.build(),
            samples=np.asarray(self._samples),
            outside={name: np.asarray(times) for name, times in self._outside.items()},
            parents={name: parent for name, parent in self._enclosing.items() if not is_phase(name)},
        )


def _check_number(measurements: int) -> None:
    if measurements > MAX_MEASUREMENTS_READ:
        raise ValueError(f"more than {MAX_MEASUREMENTS_READ:,} different measurements in a stage")
