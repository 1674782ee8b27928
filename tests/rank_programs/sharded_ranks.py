"""Fits a model that is split over the ranks, in each way that works on the device: `sharded_ranks.py FOLDER DEVICE`.

On a CPU that is FSDP2 and tensor parallelism, of which the ranks are two; on GPUs it is Lightning's `FSDPStrategy`. The
last of several ranks is slow in loading.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy
from rank_programs.tiny_ranks import Costs, Loader, Module, local_rank, trainer_of
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from lightning_timing import CUDAProfilerCallback, NVTXCallback, StopwatchCallback

try:
    from torch.distributed.fsdp import fully_shard
except ImportError:  # where PyTorch 2.5 has it
    from torch.distributed._composable.fsdp import fully_shard

BATCHES = 22
WARMUP = 2


class TwoLayers(Module):
    """Two linear layers."""

    def __init__(self, costs: Costs) -> None:
        super().__init__(costs)
        self.layer: Any = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Linear(8, 1))


class FullySharded(TwoLayers):
    """Each rank holds half of every parameter."""

    def configure_model(self) -> None:
        for layer in self.layer:
            fully_shard(layer, mesh=self.device_mesh["data_parallel"])
        fully_shard(self.layer, mesh=self.device_mesh["data_parallel"])


class TensorParallel(TwoLayers):
    """Each rank holds half of every layer."""

    def configure_model(self) -> None:
        plan = {"0": ColwiseParallel(), "1": RowwiseParallel()}
        parallelize_module(self.layer, self.device_mesh["tensor_parallel"], plan)


def main() -> None:
    folder, device = Path(sys.argv[1]), sys.argv[2]
    if device == "cpu":
        fit(folder / "fully_sharded", FullySharded, ModelParallelStrategy(2, 1), 2, device)
        fit(folder / "tensor_parallel", TensorParallel, ModelParallelStrategy(1, 2), 2, device)
    else:
        fit(folder / "fsdp", TwoLayers, FSDPStrategy(), min(2, torch.cuda.device_count()), device)


def fit(folder: Path, module: type[TwoLayers], strategy: Any, devices: int, device: str) -> None:
    is_slow = local_rank() == devices - 1 > 0
    costs = Costs(loading=14 if is_slow else 2, forward=6, backward=6)
    callbacks = [
        StopwatchCallback(num_warmup_iters=WARMUP, ranks="all"),
        NVTXCallback(),
        CUDAProfilerCallback(start_step=1, num_steps=2, ranks="all"),
    ]
    trainer = trainer_of(folder, strategy, devices, accelerator=device, callbacks=callbacks)
    trainer.fit(module(costs), Loader(BATCHES, costs.loading))


if __name__ == "__main__":
    main()
