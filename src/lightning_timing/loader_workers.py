"""How many workers the DataLoader of each stage has, according to the settings in a run's record."""

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
"""By stage, the name of the setting that holds the options of its DataLoader."""


def workers_by_stage(settings: Mapping[str, Any]) -> dict[str, int]:
    """Returns the number of workers by stage. A stage with several loaders, or an unknown number, is left out.

    Args:
        settings: The settings of a run, as in its record.
    """
    found = {}
    for stage, name in LOADER_OF.items():
        loader = settings.get(name)
        workers = loader.get("num_workers") if isinstance(loader, Mapping) else None
        if isinstance(workers, int):
            found[stage] = workers
    return found
