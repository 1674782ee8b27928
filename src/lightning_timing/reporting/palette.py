"""One colour for each phase: that of its NVTX range, so that a report and Nsight Systems show it alike."""

from __future__ import annotations

from typing import Final

from lightning_timing.phases import OTHER
from lightning_timing.range_attributes import PHASE_COLORS, USER_COLOR

OTHER_COLOR: Final = "#c9ced6"
"""The colour of `other`: pale, as no phase claims that time. It has no NVTX range."""


def phase_color(name: str) -> str:
    """The colour of a phase or of a part of one, as `#rrggbb`; one colour for every measurement of the user's."""
    group = name.partition("/")[0]
    return OTHER_COLOR if group == OTHER else f"#{PHASE_COLORS.get(group, USER_COLOR) & 0xFFFFFF:06x}"
