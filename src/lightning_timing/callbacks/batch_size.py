"""How many samples a batch holds, as far as that can be told at a glance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_MAX_DEPTH: Final = 3


def batch_size(batch: Any) -> int | None:
    """The first dimension of a batch's first tensor; None where that is not to be found quickly.

    Looks into tuples, lists and mappings, three levels deep, at the first element of each. A sequence of sequences may
    hold samples that were not collated, whose first dimension says nothing: then the size is None.
    """
    try:
        size = _first_dimension(batch)
        return None if size is None or _may_be_samples(batch, size) else size
    except Exception:  # noqa: BLE001  # a batch is anybody's object; torch's nested tensors, for one, raise at `shape`
        return None


def _first_dimension(batch: Any) -> int | None:
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
    return None


def _may_be_samples(batch: Any, size: int) -> bool:
    """Whether a batch may be a sequence of samples that were not collated, or of sequences of such samples.

    In a batch that torch has collated, such as two inputs and a target, the first and the last tensor have the same
    size, and the sequences are lists.
    """
    if not isinstance(batch, (tuple, list)) or not isinstance(batch[0], (tuple, list)):
        return False
    first, last = batch[0], batch[-1]
    is_zipped = len(batch) > 1 and type(first) is type(last) is tuple and len(first) == len(last)
    return is_zipped or _first_dimension(last) != size
