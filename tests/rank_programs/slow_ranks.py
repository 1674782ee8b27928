"""Fits once for each way in which a rank may be slow, or none: `slow_ranks.py DEVICES ROOT`."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from lightning.pytorch.callbacks import ModelCheckpoint
from rank_programs.tiny_ranks import Costs, Loader, Module, SlowCallback, SlowWriting, local_rank, trainer_of

from lightning_timing import StopwatchCallback

BATCHES = 22
WARMUP = 2
EVEN = Costs(loading=2, forward=12, backward=12)
SAVE_EVERY = 5
LATER = 12
"""Milliseconds an iteration that a slow rank takes longer."""


def costs(last_rank: int) -> dict[str, tuple[int, Costs]]:
    """By the name of the way: the rank that is slow, and what it takes."""
    return {
        "none": (0, EVEN),
        "loading": (last_rank, replace(EVEN, loading=EVEN.loading + LATER)),
        "transfer": (0, replace(EVEN, transfer=LATER)),
        "forward": (last_rank, replace(EVEN, forward=EVEN.forward + LATER)),
        "callbacks": (0, replace(EVEN, callbacks=LATER)),
        "checkpoint": (0, replace(EVEN, writing=LATER * SAVE_EVERY)),
        "evenly": (1, Costs(loading=EVEN.loading + 4, forward=EVEN.forward + 8, backward=EVEN.backward + 8)),
    }


def main() -> None:
    devices, root = int(sys.argv[1]), Path(sys.argv[2])
    for way, (slow, slow_costs) in costs(devices - 1).items():
        mine = slow_costs if local_rank() == slow else EVEN
        callbacks = [StopwatchCallback(num_warmup_iters=WARMUP, ranks="all"), SlowCallback()]
        if way == "checkpoint":
            callbacks.append(ModelCheckpoint(root / "checkpoints", every_n_train_steps=SAVE_EVERY))
        trainer = trainer_of(
            root / way,
            devices=devices,
            callbacks=callbacks,
            plugins=[SlowWriting(mine.writing)],
            enable_checkpointing=way == "checkpoint",
        )
        trainer.fit(Module(mine), Loader(BATCHES, mine.loading))


if __name__ == "__main__":
    main()
