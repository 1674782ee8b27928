"""The base class of this package's callbacks, whichever of Lightning's two packages the Trainer comes from.

Lightning is published twice, as `lightning.pytorch` and as `pytorch_lightning`, with a `Callback` class in each. Their
Trainers call the hooks of any object, but LightningCLI and user code also ask `isinstance`. So `Callback` here derives
from the class of each package that this process has imported; while it has imported none, from that of each installed,
because it may import either next.
"""

from __future__ import annotations

import importlib
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

__all__ = ["Callback"]

_PACKAGES: Final = ("lightning.pytorch", "pytorch_lightning")

if TYPE_CHECKING:
    from lightning.pytorch import Callback
else:

    def _in_use() -> list[str]:
        loaded = [name for name in _PACKAGES if name in sys.modules]
        installed = [name for name in _PACKAGES if find_spec(name.partition(".")[0])]
        # With neither, the import of the first says what is missing.
        return loaded or installed or [_PACKAGES[0]]

    def _callback_classes() -> tuple[type[Any], ...]:
        return tuple(importlib.import_module(name).Callback for name in _in_use())

    class Callback(*_callback_classes()):
        """A callback to the Trainers of both packages."""
