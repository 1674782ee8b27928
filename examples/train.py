"""Trains one of the example tasks, timed as the chosen preset says.

python examples/train.py task=digits timing=evaluation
python examples/train.py -m task=gpt task.optimizer.lr=1e-2,1e-3
"""

from __future__ import annotations

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from lightning.pytorch import Trainer, seed_everything
from lightning.pytorch.loggers import CSVLogger
from omegaconf import DictConfig

from lightning_timing import build_callbacks


@hydra.main(version_base="1.3", config_path="conf", config_name="train")
def main(cfg: DictConfig) -> None:
    seed_everything(cfg.seed, workers=True)
    run_dir = HydraConfig.get().runtime.output_dir
    trainer = Trainer(
        logger=CSVLogger(run_dir, name="metrics", version=""),
        callbacks=build_callbacks(cfg.timing),
        **cfg.trainer,
    )
    trainer.fit(instantiate(cfg.task.model), datamodule=instantiate(cfg.task.data))


if __name__ == "__main__":
    main()
