"""Followers are notified by the names of their methods, which the type checker does not read."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

from lightning_timing.callbacks import phase_machine
from lightning_timing.callbacks.followers import PhaseFollower
from lightning_timing.callbacks.nvtx import RangeFollower
from lightning_timing.measured_iterations import IterationLabel
from lightning_timing.no_op import nothing
from lightning_timing.nvtx_ranges import NVTXRangeWrapper


def notices() -> list[ast.Call]:
    tree = ast.parse(Path(phase_machine.__file__).read_text(encoding="utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".tell")]


@pytest.mark.parametrize("call", notices(), ids=ast.unparse)
def test_a_notice_is_a_call_of_a_followers_method(call: ast.Call) -> None:
    notice, *args = call.args
    assert isinstance(notice, ast.Constant)
    inspect.signature(getattr(PhaseFollower, notice.value)).bind("self", *args)


def test_all_that_followers_are_notified_of_is_looked_at() -> None:
    by_name = {ast.literal_eval(call.args[0]) for call in notices()}
    methods = {name for name, value in vars(PhaseFollower).items() if inspect.isfunction(value) and name[0] != "_"}
    assert by_name | {"enter", "leave"} == methods  # which are called without `tell`, at each edge


def test_the_index_on_ranges_goes_on_over_several_loaders_and_after_a_validation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pushed: list[tuple[str, int]] = []
    monkeypatch.setattr(NVTXRangeWrapper, "_push_phase", lambda _, name, stage, index: pushed.append((stage, index)))
    monkeypatch.setattr(NVTXRangeWrapper, "_pop_phase", nothing)
    follower = RangeFollower()

    def iterate(stage: str, *batches: int) -> None:
        follower.begin_stage(stage)
        for batch_idx in batches:
            follower.begin_iteration()
            follower.close_iteration(at_last=False)
            follower.count_iteration(IterationLabel(0, batch_idx, 0, None, skipped=False))

    iterate("train", 0, 1)
    iterate("validate", 0, 1, 0, 1)  # of two loaders, each of which begins at 0
    iterate("train", 2)

    assert pushed == [
        *[("train", 0), ("train", 1)],
        *[("validate", index) for index in range(4)],
        ("train", 2),
    ]
