"""Which ranks take part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from lightning_timing.errors import TimingError
from lightning_timing.validation import is_whole_number

Ranks = tuple[int, ...] | Literal["all"]


def validated_ranks(ranks: Sequence[int] | Literal["all"]) -> Ranks:
    """Returns the ranks as a tuple, or `all`.

    Raises:
        TimingError: It is neither a sequence of global ranks nor `all`.
    """
    if ranks == "all":
        return "all"
    if (
        not isinstance(ranks, Sequence)
        or isinstance(ranks, str)
        or not all(is_whole_number(rank, least=0) for rank in ranks)
    ):
        raise TimingError(f"ranks takes global ranks, such as [0, 1], or all; got {ranks!r}")
    return tuple(ranks)


def is_chosen(rank: int, ranks: Ranks) -> bool:
    """Whether a rank takes part."""
    return ranks == "all" or rank in ranks


def is_first(rank: int, ranks: Ranks) -> bool:
    """Whether a rank is the lowest of those that take part, which does what is to be done once."""
    return rank == (0 if ranks == "all" else min(ranks, default=None))
