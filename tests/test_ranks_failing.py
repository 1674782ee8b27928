"""Ranks that have unequal numbers of batches, that die, or whose file is missing or cut: the rest is reported."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from rank_launching import run_program

from lightning_timing.errors import BadInputError
from lightning_timing.run_report import read_report

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

NO_END = "no end line: the process was killed, or is still running"


def test_rank_1_dies(tmp_path: Path) -> None:
    run_program("failing_ranks", tmp_path / "cwd", str(tmp_path), "1")
    report = read_report(tmp_path / "mortal")

    assert (report.status, report.source) == ("failed", "summary.json")
    assert report.problems == (f"rank 1: {NO_END}",)
    fewest, most = report.ranks["train"].iterations
    assert 0 < fewest < most == report.stages["train"].iterations
    check_unequal(tmp_path / "unequal")


def test_rank_0_dies(tmp_path: Path) -> None:
    run_program("failing_ranks", tmp_path / "cwd", str(tmp_path), "0")
    report = read_report(tmp_path / "mortal")

    assert (report.status, report.source, report.rank) == (None, "rows", 0)
    assert report.problems == (f"rank 0: {NO_END}",)
    fewest, most = report.ranks["train"].iterations
    assert 0 < fewest == report.stages["train"].iterations < most


@pytest.mark.parametrize(
    ("ending", "status"),
    [("failed", "failed"), ("interrupted", "interrupted"), ("exited", "interrupted"), ("pruned", "interrupted")],
)
def test_a_rank_is_broken_off_whose_process_is_told_of_no_exception(ending: str, status: str, tmp_path: Path) -> None:
    program = run_program("broken_off_ranks", tmp_path / "cwd", str(tmp_path), ending)
    report = read_report(tmp_path)

    assert (report.status, report.source) == (status, "summary.json")
    assert report.stages["train"].iterations == 5
    assert "train: 5 iterations" in program.output


def test_a_rank_fails_before_its_loops_in_a_process_that_is_told_of_no_exception(tmp_path: Path) -> None:
    run_program("broken_off_ranks", tmp_path / "cwd", str(tmp_path), "failed before the loops")

    assert read_report(tmp_path).status == "failed"


def check_unequal(run_dir: Path) -> None:
    """One rank had 5 batches and one had 8; then parts of the record go missing."""
    whole = read_report(run_dir)
    assert whole.problems == ()
    assert whole.ranks["predict"].iterations == (5, 8)

    rank_files = [run_dir / "timing" / f"rank{rank}.jsonl" for rank in range(2)]
    rank_files[1].write_bytes(rank_files[1].read_bytes()[:-200])
    cut = read_report(run_dir)
    assert cut.problems == ("rank 1: a line was cut and is left out", f"rank 1: {NO_END}")
    assert cut.ranks["predict"].iterations == (5, 7)

    rank_files[1].unlink()
    alone = read_report(run_dir)
    assert alone.problems == ("rank 1: no record of this run",)
    assert "predict" not in alone.ranks
    assert alone.stages == whole.stages

    rank_files[0].rename(rank_files[1])
    with pytest.raises(BadInputError, match="the header of rank 0 in the file of rank 1"):
        read_report(run_dir)
