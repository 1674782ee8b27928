"""What a run was made with: versions and hardware, so that two runs can be told apart."""

from __future__ import annotations

import os
import platform
from typing import Any, Final

from lightning_timing.versions import version_of

_PACKAGES: Final = ("lightning-timing", "lightning", "pytorch-lightning", "torch", "nvtx", "numpy")


def environment(trainer: Any) -> dict[str, Any]:
    """Versions, machine and device of a run."""
    import torch

    device = trainer.strategy.root_device
    facts: dict[str, Any] = {name: found for name in _PACKAGES if (found := version_of(name)) is not None}
    facts.update(
        python=platform.python_version(),
        platform=platform.platform(),
        processor=_processor(),
        cpu_count=os.cpu_count(),
        torch_threads=torch.get_num_threads(),
        device=str(device),
        cuda=torch.version.cuda,
    )
    if device.type == "cuda":
        facts["device_name"] = torch.cuda.get_device_name(device)
    return facts


def conditions(trainer: Any) -> dict[str, Any]:
    """What else a run's speed depends on: strategy, precision, accumulation, clipping, number of processes."""
    return {
        "strategy": type(trainer.strategy).__name__,
        "precision": str(trainer.precision),
        "accumulate_grad_batches": trainer.accumulate_grad_batches,
        "gradient_clip_val": trainer.gradient_clip_val,
        "world_size": trainer.world_size,
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    except OSError:
        return platform.processor()
