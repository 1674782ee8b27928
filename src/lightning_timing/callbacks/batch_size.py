"""How many samples a batch holds, as far as that can be told at a glance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

_MAX_DEPTH: Final = 3


def batch_size(batch: Any) -> int | None:
    """The first dimension of a batch's first tensor; None where that is not to be found quickly.

    Looks into tuples, lists and mappings, three levels deep, at the first element of each. An object that is none of
    these may tell its size itself. The size is None where the batch's last tensor has another, and where the batch may
    hold samples that were not collated, such as a mapping that begins with a list of tensors and has none beside it.
    """
    try:
        size = _first_dimension(batch)
        if size is None:
            return _number_of_texts(batch)
        return None if _is_doubtful(batch, size) or _may_be_samples(batch, size) else size
    except Exception:  # noqa: BLE001  # a batch is anybody's object; torch's nested tensors, for one, raise at `shape`
        return None


def size_of_batches(loaders: Any) -> Callable[[Any], int | None]:
    """Returns what tells the size of the batches of a Trainer's loader: of several loaders in step, that it is unknown.

    Args:
        loaders: As `trainer.train_dataloader` has it: the loader, or a collection of several.
    """
    return _unknown if isinstance(loaders, (tuple, list, Mapping)) and len(loaders) > 1 else batch_size


def _unknown(_: Any) -> None:
    return None


def _first_dimension(batch: Any) -> int | None:
    are_alike = False
    for _ in range(_MAX_DEPTH + 1):
        shape = getattr(batch, "shape", None)
        if shape is not None:
            return int(shape[0]) if len(shape) else None
        if isinstance(batch, Mapping):
            batch = next(iter(batch.values()), None)
        elif isinstance(batch, (tuple, list)) and batch:
            are_alike = len(batch) > 1 and type(batch[0]) is type(batch[-1])
            batch = batch[0]
        else:
            size = _told_size(batch)
            return None if size == 1 and are_alike else size  # several of one may be samples that were not collated
    return None


def _told_size(batch: Any) -> int | None:
    """What an object says of its size, as batches of graphs do, of whose tensors none need have one row a sample."""
    if hasattr(type(batch), "num_graphs") and getattr(batch, "ptr", None) is None:
        return None  # PyTorch Geometric would compute it, and wait for the device
    told = (getattr(batch, name, None) for name in ("batch_size", "num_graphs"))
    return next((size for size in told if type(size) is int and size > 0), None)


def _number_of_texts(batch: Any) -> int | None:
    """The number of texts in the list that a batch begins with, if a tensor beside it has as many rows.

    Else the list may be one text, split into words.
    """
    if not isinstance(batch, (Mapping, tuple, list)):  # what else can be iterated over may be so only once, or for ever
        return None
    texts, *others = batch.values() if isinstance(batch, Mapping) else batch
    if not isinstance(texts, (tuple, list)) or not isinstance(texts[0], str):
        return None
    return len(texts) if len(texts) == next(filter(None, map(_first_dimension, others)), None) else None


def _may_be_samples(batch: Any, size: int) -> bool:
    """Whether a mapping begins with a list of tensors, as samples are, and has no tensor of that size beside it.

    The crops of collated images lie in a list, too, but have labels beside it.
    """
    if not isinstance(batch, Mapping):
        return False
    first, *others = batch.values()
    if not isinstance(first, (tuple, list)) or len(first) < 2 or type(first[0]) is not type(first[-1]):
        return False
    return all(tuple(getattr(other, "shape", ()))[:1] != (size,) for other in others)


def _is_doubtful(batch: Any, size: int) -> bool:
    """Whether the first tensor's size may not be that of the batch.

    In a batch that torch has collated, such as two inputs and a target, the first and the last tensor have the same
    size, and the sequences are lists. It differs in a batch of several loaders, or where a dimension comes before the
    samples; and a sequence of sequences may hold samples that were not collated.
    """
    if isinstance(batch, Mapping):
        *_, last = batch.values()
    elif isinstance(batch, (tuple, list)):
        last = batch[-1]
    else:
        return False
    size_of_last = _first_dimension(last)
    if isinstance(batch, Mapping) or not isinstance(batch[0], (tuple, list)):
        is_one_for_each = isinstance(last, (tuple, list)) and len(last) == size  # such as the boxes of each image
        return not is_one_for_each and size_of_last not in (None, size)
    is_zipped = len(batch) > 1 and type(batch[0]) is type(last) is tuple and len(batch[0]) == len(last)
    if size_of_last is None and isinstance(last, (tuple, list)) and len(last) == size:
        # Such as the samples' names, behind the targets.
        size_of_last = next(filter(None, map(_first_dimension, reversed(batch[1:]))), None)
    return is_zipped or size_of_last != size
