"""Programs that a test runs in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from textwrap import dedent
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def run_program(
    code: str, folder: Path, *arguments: str, python: str = sys.executable, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs Python code as the script `program.py` in a folder, and says how it went.

    Args:
        code: The program.
        folder: Its working directory.
        *arguments: Its command line.
        python: The interpreter.
        **environment: Variables that it gets beside this process's own.
    """
    script = folder / "program.py"
    script.write_text(dedent(code), encoding="utf-8")
    return subprocess.run(
        [python, str(script), *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def output_of(program: subprocess.CompletedProcess[str]) -> str:
    """What a program printed. One that failed fails the test, with its traceback."""
    assert program.returncode == 0, program.stderr
    return program.stdout
