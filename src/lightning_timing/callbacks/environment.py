"""What a run was made with: versions, hardware, settings and loaders, so that two runs can be told apart."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from lightning_timing.loader_workers import LOADER_OF
from lightning_timing.phases import PREDICT, TEST, TRAIN, VALIDATE
from lightning_timing.versions import version_of

_PACKAGES: Final = ("lightning-timing", "lightning", "pytorch-lightning", "torch", "nvtx", "numpy")

_LOADERS: Final = {
    LOADER_OF[TRAIN]: "train_dataloader",
    LOADER_OF[VALIDATE]: "val_dataloaders",
    LOADER_OF[TEST]: "test_dataloaders",
    LOADER_OF[PREDICT]: "predict_dataloaders",
}
"""Where the Trainer has the loaders of each stage."""
_LOADER_SETTINGS: Final = ("num_workers", "persistent_workers", "pin_memory", "prefetch_factor", "batch_size")
_MAX_LOADERS: Final = 8
_PLAIN: Final = (bool, int, float, str, type(None))


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
    """What else a run's speed depends on: strategy, precision, accumulation, how often it validates and logs ..."""
    return {
        "strategy": type(trainer.strategy).__name__,
        "precision": str(trainer.precision),
        "accumulate_grad_batches": trainer.accumulate_grad_batches,
        "gradient_clip_val": trainer.gradient_clip_val,
        "log_every_n_steps": trainer.log_every_n_steps,
        "check_val_every_n_epoch": trainer.check_val_every_n_epoch,
        "val_check_interval": _plain(trainer.val_check_interval),
        "world_size": trainer.world_size,
    }


def _plain(setting: Any) -> Any:
    """A setting that can be written; a time, which some may be, as a text."""
    return setting if type(setting) in _PLAIN else str(setting)


def loaders(trainer: Any) -> dict[str, dict[str, Any]]:
    """Returns the settings of the loaders that exist by now, by stage, as far as they can be read.

    Where a stage has several loaders, each setting is a text that lists their values.
    """
    found = {name: _loader_settings(trainer, attribute) for name, attribute in _LOADERS.items()}
    return {name: settings for name, settings in found.items() if settings}


def _loader_settings(trainer: Any, attribute: str) -> dict[str, Any]:
    try:
        each = [_plain_settings(loader) for loader in islice(_each(getattr(trainer, attribute)), _MAX_LOADERS)]
    except Exception:  # noqa: BLE001  # a loader is anybody's object, and so is what holds several
        return {}
    if len(each) == 1:
        return each[0]
    names = [name for name in _LOADER_SETTINGS if any(name in settings for settings in each)]
    return {name: ", ".join(str(settings.get(name, "unknown")) for settings in each) for name in names}


def _each(loaders: Any) -> Iterator[Any]:
    """The loaders of a stage, which may be in lists and mappings."""
    if isinstance(loaders, dict):
        loaders = list(loaders.values())
    if isinstance(loaders, (list, tuple)):
        for loader in loaders:
            yield from _each(loader)
    elif loaders is not None:
        yield loaders


def _plain_settings(loader: Any) -> dict[str, Any]:
    """Returns settings that are plain attributes. A property may do anything, such as build a lazy loader."""
    own = getattr(loader, "__dict__", {})
    return {name: own[name] for name in _LOADER_SETTINGS if name in own and type(own[name]) in _PLAIN}


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    except OSError:
        return platform.processor()
