"""The rank that a strategy has forked is broken off in mid-epoch: `broken_off_ranks.py RUN_DIR ENDING`."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from ledger_records import lightning
from tiny_training import fit_tiny, tiny_loader, tiny_module

from lightning_timing import StopwatchCallback


class TrialPruned(Exception):  # noqa: N818  # as Optuna calls it
    """Ends a trial that promises little."""


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell is started with it ignored
    run_dir, ending = Path(sys.argv[1]), sys.argv[2]

    def training_step(self: Any, batch: Any, batch_idx: int) -> torch.Tensor:
        if batch_idx == 5:
            if ending == "failed":
                raise ValueError("the rank fails")
            if ending == "exited":
                sys.exit(3)
            if ending == "pruned":
                raise TrialPruned
            os.kill(os.getppid(), signal.SIGINT)  # as Ctrl-C, and a notebook's interrupt, do: all of them get it
            os.kill(os.getpid(), signal.SIGINT)
        return self.layer(batch[0]).sum()

    def configure_optimizers(self: Any) -> torch.optim.Optimizer:
        if ending == "failed before the loops":
            raise ValueError("the rank fails")
        return torch.optim.SGD(self.parameters(), lr=0.01)

    pl = lightning()
    callbacks = [StopwatchCallback(num_warmup_iters=0)]
    module = tiny_module(pl, training_step=training_step, configure_optimizers=configure_optimizers)
    fit_tiny(pl, run_dir, module, tiny_loader(8), callbacks=callbacks, strategy="ddp_notebook")
