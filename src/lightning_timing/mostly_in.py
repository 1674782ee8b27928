"""Which of the user's measurements has most of a phase, of its time or of how much it changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightning_timing.phases import PHASES, whole_of

if TYPE_CHECKING:
    from collections.abc import Mapping


def mostly_in(phase: str, amounts: Mapping[str, float], parents: Mapping[str, str | None]) -> str | None:
    """Returns the innermost of the user's measurements that has at least half of a phase's amount; None if none has.

    Args:
        phase: The phase.
        amounts: How much of something, such as seconds, each measurement has.
        parents: The enclosing measurement of each.
    """
    half = amounts.get(phase, 0.0) / 2
    left = {name: amount for name, amount in amounts.items() if whole_of(name) is None and name not in PHASES}
    inside: str | None = None
    while half > 0:
        parts = [name for name, amount in left.items() if parents.get(name) == (inside or phase) and amount >= half]
        if not parts:
            break
        inside = max(parts, key=left.__getitem__)
        del left[inside]  # a record from elsewhere may have them in a circle
    return inside
