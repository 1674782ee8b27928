"""How many instructions a training batch takes, with timing and without: a count, which no other load disturbs.

    python -m benchmarks.cost_instructions [--markdown]

The trainings of `benchmarks.cost`, in valgrind (a Debian package of that name), which counts the instructions of all
threads outside of the kernel. It takes fifteen minutes. What it does not show is how long they take: code that runs
once a batch waits for the caches, which the training in between has filled with its own. What was there before a
training is kept from Python's garbage collection, whose rare passes through all of it would be the noise of the table.
"""

from __future__ import annotations

import argparse
import gc
import os
import re
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Final

import torch

from benchmarks.cost_batches import (
    BARE,
    BATCHES,
    THREE_EMPTY,
    Candidate,
    StampedLoader,
    candidates,
    preset_callbacks,
)
from benchmarks.quiet import silence_lightning
from benchmarks.tables import print_table

SETTLING_BATCHES: Final = 150
"""The first ones, which are not counted."""
_COUNTED: Final = "--counted"


class CountedLoader(StampedLoader):
    """Marks the first counted batch and the last one by calls of the C library, at which valgrind begins and ends."""

    def __init__(self) -> None:
        self._last = SETTLING_BATCHES + BATCHES
        super().__init__(self._last + 1, (SETTLING_BATCHES, self._last))

    def stamp(self, index: int) -> None:
        """Marks it."""
        if index == self._last:
            os.getpgrp()
        else:
            os.getppid()


def counts() -> dict[str, float]:
    """Instructions of a batch, in thousands, by candidate."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *("valgrind", "--quiet", "--tool=callgrind", f"--callgrind-out-file={folder}/counts"),
            *("--zero-before=getppid", "--dump-before=getpgrp"),
            *(sys.executable, "-m", "benchmarks.cost_instructions", _COUNTED),
        ]
        # Sets are in the same order in each run.
        subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": "0"})
        return {
            name: _instructions(Path(folder, f"counts.{number}")) / BATCHES / 1e3
            for number, name in enumerate(candidates(), start=1)
        }


def _import_what_prints() -> None:
    often = Candidate(partial(preset_callbacks, "evaluation", "stopwatch.print_every_n_iters=20"))
    often.fit(StampedLoader(SETTLING_BATCHES, ()))


def _instructions(path: Path) -> int:
    found = re.search(r"^summary: (\d+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None, f"{path} has no summary"
    return int(found[1])


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", action="store_true", help="for the documentation")
    parser.add_argument(_COUNTED, action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.counted:
        silence_lightning()
        torch.set_num_threads(1)
        _import_what_prints()
        for name, candidate in candidates().items():
            print(name, file=sys.stderr)
            gc.collect()
            gc.freeze()
            candidate.fit(CountedLoader())
        return 0
    if shutil.which("valgrind") is None:
        parser.error("valgrind is not installed")
    found = counts()
    empty = found[THREE_EMPTY] - found[BARE]
    rows = [
        [name, f"{count:,.0f}", f"{count - found[BARE]:+,.0f}", f"{(count - found[BARE]) / empty:.2f}"]
        for name, count in found.items()
    ]
    columns = ["", "thousand instructions", "beyond no callback", "of three empty callbacks"]
    print_table("A training batch, by instructions", columns, rows, markdown=arguments.markdown)
    return 0


if __name__ == "__main__":
    sys.exit(main())
