"""Predicts with as many batches as each rank has, then fits until one is killed: `failing_ranks.py FOLDER RANK`."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from rank_programs.tiny_ranks import Costs, Loader, Module, local_rank, trainer_of

from lightning_timing import StopwatchCallback
from lightning_timing.record_writer import FLUSH_INTERVAL_S

BATCHES = 1000


class Mortal(Module):
    """Ends its process, without a word, when it has trained for so long that something was written."""

    def __init__(self, is_to_die: bool) -> None:
        super().__init__(Costs(forward=20))
        self.is_to_die = is_to_die

    def on_train_start(self) -> None:
        self.dies_at = time.monotonic() + 1.5 * FLUSH_INTERVAL_S

    def on_train_batch_end(self, *_: Any) -> None:
        if self.is_to_die and time.monotonic() > self.dies_at:
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    folder, dying_rank = Path(sys.argv[1]), int(sys.argv[2])
    stopwatch = StopwatchCallback(num_warmup_iters=0, ranks="all")
    unequal = trainer_of(folder / "unequal", callbacks=[stopwatch])
    unequal.predict(Module(), Loader(5 + 3 * local_rank()), return_predictions=False)
    mortal = trainer_of(folder / "mortal", callbacks=[stopwatch])
    mortal.fit(Mortal(is_to_die=local_rank() == dying_rank), Loader(BATCHES))


if __name__ == "__main__":
    main()
