"""The conditions under which a run was measured, and in which of them runs differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from lightning_timing.record import NOT_ENDED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lightning_timing.record_rank import RankRecord
    from lightning_timing.record_series import FloatArray

OVERRIDES: Final = "overrides."
"""Prefix of conditions that are overrides of a Hydra job. Where one is missing, the override was not given."""
_LEVELS: Final = 1
"""How many levels of nested facts are conditions of their own."""


@dataclass(frozen=True)
class Difference:
    """A condition in which not all of the compared runs agree.

    Attributes:
        condition: Its name.
        before: The different values of the runs before, in order; None where it was not recorded.
        after: The different values of the runs after.
    """

    condition: str
    before: tuple[str | None, ...]
    after: tuple[str | None, ...]


def run_conditions(lead: RankRecord, ranks: int) -> dict[str, str]:
    """Returns what the speed of a run may depend on, by name.

    Args:
        lead: The lowest rank's record, which stands for all of them.
        ranks: How many ranks have a record.
    """
    header = lead.header
    facts: dict[str, Any] = {
        **dict(flat(header.environment, _LEVELS)),
        **dict(flat(lead.settings, _LEVELS)),
        "device": header.device,
        "host": header.host,
        "world_size": header.world_size,
        "ranks recorded": ranks,
        "entry points": ", ".join(segment.entry_point for segment in lead.segments),
        "status": NOT_ENDED if lead.end is None else lead.end.status,
    }
    for stage, series in lead.stages.items():
        if len(series):
            facts[f"{stage} iterations"] = len(series)
            facts[f"{stage} batch size"] = batch_size(series.known_samples)
    return {name: fact if isinstance(fact, str) else msgspec.json.encode(fact).decode() for name, fact in facts.items()}


def differences(before: Sequence[Mapping[str, str]], after: Sequence[Mapping[str, str]]) -> tuple[Difference, ...]:
    """Returns the conditions in which not all runs of both sides agree.

    Args:
        before: The conditions of each run.
        after: The conditions of each run that they are compared with.
    """
    names = dict.fromkeys(name for run in (*before, *after) for name in run)
    found = (
        Difference(
            name,
            tuple(dict.fromkeys(run.get(name) for run in before)),
            tuple(dict.fromkeys(run.get(name) for run in after)),
        )
        for name in names
    )
    return tuple(difference for difference in found if len({*difference.before, *difference.after}) > 1)


def flat(facts: Mapping[str, Any], levels: int, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Flattens nested facts by so many levels: yields each with its names joined with a dot."""
    for name, fact in facts.items():
        if isinstance(fact, Mapping) and levels:
            yield from flat(fact, levels - 1, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", fact


def batch_size(known_samples: FloatArray) -> int | None:
    """Returns the median size of the batches, as an epoch's last one is often smaller; None where none is known."""
    return int(np.median(known_samples)) if len(known_samples) else None
