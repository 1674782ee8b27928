"""The base class of this package's callbacks, whichever of Lightning's two packages the Trainer comes from.

Lightning is published twice, as `lightning.pytorch` and as `pytorch_lightning`, with a `Callback` class in each. Their
Trainers and LightningCLI ask whether a callback is an instance of their own. A program may import either, before or
after our callbacks; so `Callback` here derives from both. The second package takes 0.2 s to import, the first seconds.
"""

from __future__ import annotations

import importlib
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

__all__ = ["Callback"]

_PACKAGES: Final = ("lightning.pytorch", "pytorch_lightning")

if TYPE_CHECKING:
    from lightning.pytorch import Callback
else:
    from lightning_utilities.core import rank_zero

    def _callback_class(package: str) -> type[Any]:
        return importlib.import_module(package).Callback

    def _callback_classes() -> list[type[Any]]:
        """The class of each package that can be imported; one that is missing or broken is not in use either."""
        classes = []
        for package in sorted(_PACKAGES, key=lambda package: package not in sys.modules):
            log = rank_zero.log
            with suppress(ImportError):
                classes.append(_callback_class(package))
            if len(classes) > 1:
                # Each package, when it is imported, takes the messages of both. They stay with the one in use.
                rank_zero.log = log
        # With neither, the import of the first says what is wrong.
        return classes or [_callback_class(_PACKAGES[0])]

    class Callback(*_callback_classes()):
        """A callback to the Trainers of both packages."""
