"""Detects that an exception ends a Trainer's run, also where Lightning calls no hook."""

from __future__ import annotations

import sys
from collections.abc import Callable
from multiprocessing import parent_process
from multiprocessing.util import Finalize
from typing import Any

from lightning_timing.callbacks.method_watch import MethodWatch
from lightning_timing.failsafe import Failsafe


class ExceptionWatch:
    """Watches how a run ends until closed.

    Args:
        failsafe: Takes failures to follow the Trainer. It raises none any more once an exception is on its way.

    Attributes:
        on_exception: Called when an exception ends the run, before any other callback's `on_exception`.
    """

    def __init__(self, failsafe: Failsafe) -> None:
        self.on_exception: list[Callable[[BaseException], None]] = []
        self._failsafe = failsafe
        self._loops: MethodWatch | None = None
        self._at_exit: Finalize | None = None
        self._handled_before: BaseException | None = None

    def watch(self, trainer: Any) -> None:
        """Watches a process that a strategy has started (ddp_notebook, ddp_spawn): Lightning calls no hook in it."""
        if parent_process() is not None:
            self._loops = MethodWatch([(trainer, "_run_stage")], self._loops_begin, self._loops_end, self._failsafe)
            self._at_exit = Finalize(None, self._process_ends, exitpriority=0)

    def raised(self) -> None:
        """Ends the run ahead of another callback's `on_exception`: if that fails, Lightning calls no other."""
        error = sys.exc_info()[1]
        if error is not None:
            self._tell(error)

    def _tell(self, error: BaseException) -> None:
        self._failsafe.strict = False
        for tell in self.on_exception:
            tell(error)

    def _loops_begin(self) -> None:
        self._handled_before = sys.exc_info()[1]  # where the Trainer is called in an `except`

    def _loops_end(self) -> None:
        """Ends the run if the loops end by an exception."""
        error, before = sys.exc_info()[1], self._handled_before
        self._handled_before = None
        if error is not None and error is not before:
            self._tell(error)

    def _process_ends(self) -> None:
        """Ends the run, which was broken off outside of its loops, as the process is about to end."""
        # torch, which runs the ranks of a strategy, exits after an exception, of which Python 3.13 knows no more here.
        error = sys.exc_info()[1] or RuntimeError()
        self._tell(error.__context__ or error if isinstance(error, SystemExit) else error)

    def close(self) -> None:
        """Ends the watch."""
        if self._loops is not None:
            self._loops.close()
        if self._at_exit is not None:
            self._at_exit.cancel()
