"""The callbacks are callbacks to the Trainers of both of Lightning's packages, whatever is imported in which order."""

from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING

import pytest
from programs import output_of, run_program

if TYPE_CHECKING:
    from pathlib import Path

BASES = dedent("""
    from lightning_timing import StopwatchCallback

    bases = [base.__module__ for base in StopwatchCallback.__mro__ if base.__module__.endswith(".callbacks.callback")]
    print(sorted(module.partition(".")[0] for module in bases))
""")


@pytest.mark.parametrize("first", ["lightning.pytorch", "pytorch_lightning", "lightning_timing.callbacks.stopwatch"])
def test_they_fit_both_packages_whichever_is_imported_first(first: str, tmp_path: Path) -> None:
    assert output_of(run_program(f"import {first}\n{BASES}", tmp_path)) == "['lightning', 'pytorch_lightning']\n"


@pytest.mark.parametrize(("missing", "there"), [("pytorch_lightning", "lightning"), ("lightning", "pytorch_lightning")])
def test_one_of_the_packages_is_enough(missing: str, there: str, tmp_path: Path) -> None:
    code = f"import sys\nsys.modules[{missing!r}] = None\n{BASES}"
    assert output_of(run_program(code, tmp_path)) == f"[{there!r}]\n"


def test_without_either_the_error_says_what_is_missing(tmp_path: Path) -> None:
    code = f"import sys\nsys.modules.update(lightning=None, pytorch_lightning=None)\n{BASES}"
    program = run_program(code, tmp_path)
    assert program.returncode == 1
    assert program.stderr.splitlines()[-1].startswith("ModuleNotFoundError: ")
    assert "lightning" in program.stderr.splitlines()[-1]
