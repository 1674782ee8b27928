"""Fits and tests, each rank with a root of its own: `fit_and_test.py STRATEGY FOLDER [DEVICES NODES]`.

Says of each rank which process it is.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from rank_programs.tiny_ranks import Loader, Module, trainer_of

from lightning_timing import StopwatchCallback


class SaysWhoItIs(pl.Callback):
    """Notes a rank's process in a file beside the roots."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_fit_start(self, trainer: Any, module: Any) -> None:
        facts = {"pid": os.getpid(), "host": socket.gethostname(), "local_rank": trainer.local_rank}
        (self.folder / f"rank{trainer.global_rank}.json").write_text(json.dumps(facts))


def main() -> None:
    strategy, folder = sys.argv[1:3]
    devices, nodes = map(int, sys.argv[3:] or (2, 1))
    stopwatch = StopwatchCallback(num_warmup_iters=1, ranks="all")
    second = StopwatchCallback(num_warmup_iters=0, ranks=[1])
    root = Path(folder) / f"root-of-process-{os.getpid()}"
    trainer = trainer_of(
        root, strategy, devices, num_nodes=nodes, callbacks=[stopwatch, second, SaysWhoItIs(Path(folder))]
    )
    trainer.fit(Module(), Loader(5))
    if strategy != "ddp_spawn":
        trainer.test(Module(), Loader(3), verbose=False)
    print(f"root of this process: {root}")


if __name__ == "__main__":
    main()
