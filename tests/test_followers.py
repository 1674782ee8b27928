"""Followers are notified by the names of their methods, which the type checker does not read."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

from lightning_timing.callbacks import phase_machine
from lightning_timing.callbacks.followers import PhaseFollower


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
