"""The callbacks are callbacks to the Trainer that a program uses, whichever of Lightning's packages it is from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from programs import output_of, run_program

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("imports", "callback_to"),
    [
        ("lightning.pytorch, lightning_timing.callbacks", ["lightning"]),
        ("pytorch_lightning, lightning_timing.callbacks", ["pytorch_lightning"]),
        ("lightning.pytorch, pytorch_lightning", ["lightning", "pytorch_lightning"]),
        # As sorted imports have it: ours comes first, and does not know which will follow.
        ("lightning_timing.callbacks.stopwatch, pytorch_lightning", ["lightning", "pytorch_lightning"]),
    ],
)
def test_what_the_callbacks_are_depends_on_what_is_imported(
    imports: str, callback_to: list[str], tmp_path: Path
) -> None:
    code = f"""
        import {imports}
        from lightning_timing import StopwatchCallback

        bases = [base for base in StopwatchCallback.__mro__ if base.__module__.endswith(".callbacks.callback")]
        print(sorted(base.__module__.partition(".")[0] for base in bases))
    """
    assert output_of(run_program(code, tmp_path)) == f"{callback_to}\n"
