"""The environment variable that chooses a preset. Not in `presets`, since most modules that name it never load one."""

from __future__ import annotations

from typing import Final

VARIABLE: Final = "LIGHTNING_TIMING"
"""Its value is the name of a preset, then changes to it, separated by spaces. Unset or empty: nothing is added."""
