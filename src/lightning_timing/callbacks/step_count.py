"""How many optimizer steps a Trainer has taken, asked at every batch.

Read from Lightning 2.5 to 2.6: `Trainer.global_step` goes through four properties to the one object that counts.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Final, Protocol

_COUNTS_BY_LIGHTNING: Final = attrgetter("automatic_optimization.optim_progress.optimizer.step.total")
_COUNTS_MANUALLY: Final = attrgetter("manual_optimization.optim_step_progress.total")


class StepCount(Protocol):
    """Counts optimizer steps."""

    @property
    def completed(self) -> int:
        """Number of steps taken so far."""


class AskTheTrainer:
    """Reads `Trainer.global_step`, which works with any loop, at thirty times the cost."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    @property
    def completed(self) -> int:
        """Number of steps taken so far."""
        return int(self._trainer.global_step)


def step_count_of(trainer: Any, is_automatic: bool) -> StepCount:
    """Finds the object that counts the steps, for as long as optimization stays automatic or stays manual.

    Args:
        trainer: The Trainer, in a fit.
        is_automatic: Whether optimization is automatic.
    """
    find = _COUNTS_BY_LIGHTNING if is_automatic else _COUNTS_MANUALLY
    try:
        found: StepCount = find(trainer.fit_loop.epoch_loop)
        agrees = found.completed == trainer.global_step
    except AttributeError:  # a loop of another kind
        agrees = False
    return found if agrees else AskTheTrainer(trainer)
