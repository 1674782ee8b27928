"""A thousand ranks are merged rank by rank, and their report still fits a screen."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING

import pytest
from records import MS, end, header, phases, rows, write_lines

from lightning_timing.cli.main import main
from lightning_timing.run_report import read_report

if TYPE_CHECKING:
    from pathlib import Path

RANKS = 1024
SLOW = 700


def write_ranks(folder: Path, ranks: int, iterations: int) -> Path:
    """A record of ranks that train together, one of which loads slowly."""
    quick = phases(data_wait=1 * MS, forward=10 * MS, backward=29 * MS)
    slow = phases(data_wait=11 * MS, forward=10 * MS, backward=19 * MS)
    for rank in range(ranks):
        lines = rows([slow if rank == SLOW else quick] * iterations)
        write_lines(folder, [header(rank=rank, local_rank=rank % 8, world_size=ranks), *lines, end()], rank=rank)
    return folder


def test_the_report_fits_a_screen_and_names_the_rank_and_the_gaps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = write_ranks(tmp_path, RANKS, 3)
    for rank in range(100, 200):
        (run_dir / "timing" / f"rank{rank}.jsonl").unlink()
    for rank in range(200, 300):
        file = run_dir / "timing" / f"rank{rank}.jsonl"
        file.write_bytes(file.read_bytes()[:-20])

    assert main(["report", str(run_dir)]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert len(lines) < 40
    assert max(map(len, lines)) <= 120
    report = "\n".join(lines)
    assert f"{RANKS - 100:,} ranks, 3 iterations each" in report
    assert f"Rank {SLOW} holds the others up: work of its own takes it 10.0 ms an iteration longer" in report
    assert "note: ranks 200, 201, 202, 203, 204, 205, 206, 207 and 92 more: a line was cut and is left out" in report
    assert "note: ranks 100, 101, 102, 103, 104, 105, 106, 107 and 92 more: no record of this run" in report


def test_memory_does_not_grow_with_the_number_of_ranks(tmp_path: Path) -> None:
    """The rows of one rank, besides those of the first, are held at a time."""
    peaks = []
    for ranks in (4, 40):
        run_dir = write_ranks(tmp_path / str(ranks), ranks, 500)
        read_report(run_dir)  # imports and caches are no memory of this record's
        tracemalloc.start()
        read_report(run_dir)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()

    assert peaks[1] < peaks[0] + 200_000  # one rank's rows are 40,000 bytes at least
