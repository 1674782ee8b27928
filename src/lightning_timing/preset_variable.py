"""The environment variable that names a preset, apart from what reads presets: most who speak of it never load one."""

from __future__ import annotations

from typing import Final

VARIABLE: Final = "LIGHTNING_TIMING"
"""It names the preset, changes to it behind spaces. Unset or empty: nothing is added."""
