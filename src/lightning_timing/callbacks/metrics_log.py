"""`timing/<phase>` for the Trainer's loggers."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from lightning_timing.clocks import NS_IN_S
from lightning_timing.measured_iterations import MeasuredIteration
from lightning_timing.phases import ITERATION, PHASES, TRAIN

_LOGGED = frozenset((ITERATION, *PHASES))


class MetricsLog:
    """Means per training iteration since they were last logged, in seconds.

    They go through the module's own `log_dict`, so that they share the Trainer's step axis and its log interval with
    the user's metrics, and no logger is called once more.
    """

    def __init__(self) -> None:
        self._total_ns: defaultdict[str, int] = defaultdict(int)
        self._iterations = 0

    def take(self, iteration: MeasuredIteration) -> None:
        """Adds an iteration."""
        if iteration.stage == TRAIN:
            self._iterations += 1
            for name, ns in iteration.ns.items():
                if name in _LOGGED:
                    self._total_ns[name] += ns

    @staticmethod
    def is_due(trainer: Any) -> bool:
        """Whether the Trainer writes its metrics at this batch. To be asked in `on_train_batch_end`."""
        # Private, since nothing public says when: `global_step` does not count as the log interval does.
        return bool(trainer._logger_connector.should_update_logs)

    def log(self, pl_module: Any) -> None:
        """Logs, if there was an iteration since the last time. To be called in `on_train_batch_end`."""
        if not self._iterations:
            return
        means = {f"timing/{name}": total / self._iterations / NS_IN_S for name, total in self._total_ns.items()}
        # The batch's size weighs nothing here, but where a step fetches its batch by itself Lightning insists on it.
        pl_module.log_dict(means, on_step=True, on_epoch=False, batch_size=1)
        self._total_ns.clear()
        self._iterations = 0
