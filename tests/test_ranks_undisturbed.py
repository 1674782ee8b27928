"""What the callbacks leave alone: ranks talk to each other no more than without them, and none waits for another."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from rank_launching import run_program
from rank_programs.undisturbed_ranks import SLOW_END_S

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


def test_ranks_with_all_callbacks(tmp_path: Path) -> None:
    program = run_program("undisturbed_ranks", tmp_path / "cwd", str(tmp_path))
    assert program.returncode == 0, program.output
    ranks = [json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in range(2)]

    for rank in ranks:
        without, with_all = rank["talks"]
        assert with_all == without

    check_window(ranks)
    for slow in range(2):
        over = [rank["over"][slow] for rank in ranks]
        assert over[slow] - over[1 - slow] > SLOW_END_S / 2


def check_window(ranks: list[dict[str, Any]]) -> None:
    """It opens on the chosen ranks, before the same batch and after the same batch."""
    window = [["synchronize", 3], ["start", 3], ["synchronize", 5], ["stop", 5]]
    assert [rank["everywhere"] for rank in ranks] == [window, window]
    assert [rank["on_rank_1"] for rank in ranks] == [
        [],
        [["synchronize", 1], ["start", 1], ["synchronize", 2], ["stop", 2]],
    ]
