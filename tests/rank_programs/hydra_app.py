"""A Hydra app that fits on two ranks, with callbacks from a preset: `hydra_app.py [-m] said=FOLDER [OVERRIDES]`.

Each rank says its jobs' folders, as it knows them, in a file of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from rank_programs.tiny_ranks import Loader, Module, trainer_of

from lightning_timing import build_callbacks

ConfigStore.instance().store(
    "app",
    {"defaults": ["_self_", {"timing": "training"}], "strategy": "ddp", "batches": 4, "root": None, "said": "???"},
)


@hydra.main(version_base="1.3", config_path=None, config_name="app")
def main(cfg: Any) -> None:
    trainer = trainer_of(cfg.root, cfg.strategy, callbacks=build_callbacks(cfg.timing))
    trainer.fit(Module(), Loader(cfg.batches))
    # Not printed: what the other rank prints meanwhile may stand in the same line.
    with (Path(cfg.said) / f"jobs-of-rank{trainer.global_rank}.txt").open("a") as file:
        print(HydraConfig.get().runtime.output_dir, file=file)


if __name__ == "__main__":
    main()
