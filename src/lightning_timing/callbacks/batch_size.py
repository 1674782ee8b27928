"""How many samples a batch holds, as far as that can be told at a glance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_MAX_DEPTH: Final = 3


def batch_size(batch: Any) -> int | None:
    """The first dimension of a batch's first tensor; None where that is not to be found quickly.

    Looks into tuples, lists and mappings, three levels deep, at the first element of each.
    """
    try:
        for _ in range(_MAX_DEPTH + 1):
            shape = getattr(batch, "shape", None)
            if shape is not None:
                return int(shape[0]) if len(shape) else None
            if isinstance(batch, Mapping):
                batch = next(iter(batch.values()), None)
            elif isinstance(batch, (tuple, list)) and batch:
                batch = batch[0]
            else:
                return None
    except Exception:  # noqa: BLE001  # a batch is anybody's object; torch's nested tensors, for one, raise at `shape`
        return None
    return None
