"""The stand-in for a preset's callbacks, for a Trainer whose own callbacks are not known yet."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from lightning_timing.callbacks.base import TimingCallback
from lightning_timing.callbacks.factory import build_callbacks
from lightning_timing.callbacks.lightning_base import Callback
from lightning_timing.preset_variable import VARIABLE
from lightning_timing.presets import load_preset

if TYPE_CHECKING:
    from lightning.pytorch import LightningModule, Trainer


class TimingFromEnvironment(Callback):
    """Replaces itself by a preset's callbacks when a run starts, unless the Trainer has some of ours already.

    It cannot do so earlier: when Lightning asks for it, neither the Trainer's callbacks nor those that the module adds
    in `configure_callbacks` are known.

    Args:
        preset: The preset, and changes to it behind spaces: `profiling cuda_profiler.start_step=20`.

    Raises:
        PresetError: If there is no such preset, or a change names nothing in it.
    """

    def __init__(self, preset: str) -> None:
        self.preset = preset
        name, *overrides = preset.split()
        # Here and not in `setup`, which a spawned rank runs in a process that knows less, such as no Hydra job folder.
        self._callbacks = build_callbacks(load_preset(name, overrides))

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Puts the preset's callbacks in this one's place, and sets them up."""
        present: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]  # set by Lightning, not declared
        place = present.index(self)
        before, after = present[:place], present[place + 1 :]
        taken = any(isinstance(callback, (TimingCallback, TimingFromEnvironment)) for callback in before + after)
        callbacks = [] if taken else self._callbacks
        if taken and self._callbacks and trainer.is_global_zero:
            self._say_that_nothing_is_added(present)
        # A new list, because Lightning is iterating over the old one. So it will not reach the new callbacks' setup.
        trainer.callbacks = [*before, *callbacks, *after]  # type: ignore[attr-defined]  # as above
        for callback in callbacks:
            callback.setup(trainer, pl_module, stage)

    def _say_that_nothing_is_added(self, present: list[Callback]) -> None:
        names = sorted({type(callback).__name__ for callback in present if isinstance(callback, TimingCallback)})
        if names:  # else there is another of these, which adds a preset's callbacks itself
            warnings.warn(
                f"lightning_timing: the Trainer has {', '.join(names)} of its own, so that "
                f"{VARIABLE}={self.preset!r} adds nothing: take it out of the script, or change it there",
                stacklevel=2,
            )
