"""How many workers the DataLoader of each stage has, by the settings of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lightning_timing.phases import PREDICT, TEST, TRAIN, VALIDATE

LOADER_OF: Final[Mapping[str, str]] = {
    TRAIN: "train_loader",
    VALIDATE: "val_loader",
    TEST: "test_loader",
    PREDICT: "predict_loader",
}
"""By stage the setting that has what its loader was made with."""


def workers_by_stage(settings: Mapping[str, Any]) -> dict[str, int]:
    """Returns the number of workers by stage, of those of which one number is known: not where it has several loaders.

    Args:
        settings: Those of a run, as its record has them.
    """
    found = {}
    for stage, name in LOADER_OF.items():
        loader = settings.get(name)
        workers = loader.get("num_workers") if isinstance(loader, Mapping) else None
        if isinstance(workers, int):
            found[stage] = workers
    return found
