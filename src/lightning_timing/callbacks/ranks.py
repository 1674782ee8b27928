"""Which ranks take part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from lightning_timing.errors import TimingError
from lightning_timing.failsafe import warn_of_run
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


def takes_part(trainer: Any, ranks: Ranks, what: str) -> bool:
    """Whether this rank of a run takes part. Where no rank of it does, rank 0 warns.

    Args:
        trainer: The Trainer.
        ranks: The chosen ranks.
        what: In what they take part, in words.
    """
    chosen = range(trainer.world_size) if ranks == "all" else ranks
    if trainer.global_rank == 0 and ranks and min(chosen) >= trainer.world_size:
        warn_of_run(
            f"{what} is off, as the run has none of the ranks {list(chosen)}: its ranks are 0 to "
            f"{trainer.world_size - 1}",
        )
    return trainer.global_rank in chosen


def is_first(rank: int, ranks: Ranks) -> bool:
    """Whether a rank is the lowest of those that take part, which does what is to be done once."""
    return rank == (0 if ranks == "all" else min(ranks, default=None))
