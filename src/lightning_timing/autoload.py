"""Timing with no code: `LIGHTNING_TIMING=<preset> python anyones_script.py` adds a preset to every Trainer.

Lightning calls `callbacks_from_environment`, an entry point, whenever a Trainer is made, in every program on a machine
where this package is installed. So nothing heavy is imported unless the variable is set.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from lightning_timing.errors import PresetError
from lightning_timing.preset_variable import VARIABLE

if TYPE_CHECKING:
    from lightning_timing.callbacks.lightning_base import Callback


def callbacks_from_environment() -> list[Callback]:
    """The callbacks that Lightning adds to a Trainer.

    Raises:
        PresetError: If the variable names no preset, or changes what is not in it.
    """
    preset = os.environ.get(VARIABLE)
    if not preset or preset.isspace():
        return []
    from lightning_timing.callbacks.from_environment import TimingFromEnvironment

    try:
        return [TimingFromEnvironment(preset)]
    except PresetError as error:
        raise PresetError(f"{VARIABLE} in the environment: {error}") from None
