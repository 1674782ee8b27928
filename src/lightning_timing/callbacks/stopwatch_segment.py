"""What a StopwatchCallback keeps for a run, and for one call of the Trainer in it."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from lightning_timing.callbacks.metrics_log import MetricsLog
from lightning_timing.callbacks.run_files import RunFiles
from lightning_timing.callbacks.session import Session
from lightning_timing.failsafe import Failsafe
from lightning_timing.late_recorder import LateRecorder
from lightning_timing.measured_iterations import MeasuredIteration
from lightning_timing.stopwatch import print_report


class StopwatchRun(NamedTuple):
    """What outlives a call of the Trainer: `fit`, then `test`, are one run with several segments.

    Attributes:
        trainer: The Trainer, not kept alive.
        recorder: Counts over all segments.
        files: The record and the summary.
    """

    trainer: weakref.ReferenceType[Any]
    recorder: LateRecorder
    files: RunFiles


class StopwatchSegment(NamedTuple):
    """What lasts as long as one call of the Trainer.

    Attributes:
        session: Notifies the recorder of the phases.
        recorder: The run's recorder.
        files: The run's files.
        metrics: Collects what goes to the loggers; None: nothing does.
        logging: Takes failures to log.
        print: Prints a report, through the progress bar where there is one.
        printing: Takes failures to print.
    """

    session: Session
    recorder: LateRecorder
    files: RunFiles
    metrics: MetricsLog | None
    logging: Failsafe
    print: Callable[[str], None]
    printing: Failsafe

    def meter_cpu_usage_of(self, name: str | None) -> None:
        """Chooses the measurement that gets CPU usage, unless an earlier segment did, and the stage."""
        cpu = self.recorder.cpu
        chosen = cpu.name or name
        if chosen is not None:
            self.recorder.choose_cpu_usage(chosen, by_default=True)
        cpu.choose_stage(self.session.machine.stage)

    def hand_on(self, trainer: weakref.ReferenceType[Any]) -> None:
        """Has what is measured written to the record and, if that was asked for, collected for the loggers."""
        write = self.files.write_iteration
        on_iteration = write if self.metrics is None else partial(_write_and_collect, write, self.metrics)
        self.recorder.hand_on_to(on_iteration, self.files.write_outside, partial(_epoch_of, trainer))

    def note_loaders(self, trainer: Any) -> None:
        """Adds the loaders to the record's settings."""
        self.files.note_loaders(trainer)
        self.recorder.loader_workers = self.files.loader_workers

    def log_phases(self, trainer: Any, pl_module: Any) -> None:
        """Logs the phases, if that was asked for and it is time."""
        if self.metrics is None or self.logging.is_off:
            return
        with self.logging:
            if self.metrics.is_due(trainer):
                with self.session.logging():
                    self.recorder.work_off()
                    self.metrics.log(pl_module)

    def print_so_far(self, failsafe: Failsafe) -> None:
        """Prints the current stage.

        Args:
            failsafe: Takes failures to calculate the figures.
        """
        print_report(self.recorder, self.recorder.stage.name, self.print, failsafe=failsafe, printing=self.printing)


def keep_up(recorder: LateRecorder, failsafe: Failsafe) -> None:
    """Takes what waits in a recorder, on a thread of ours."""
    try:
        recorder.keep_up()
    except Exception as error:  # noqa: BLE001  # on a thread of ours there is nobody to raise it to
        failsafe.fail(error, may_raise=False)


def _write_and_collect(
    write: Callable[[MeasuredIteration], None], metrics: MetricsLog, iteration: MeasuredIteration
) -> None:
    write(iteration)
    metrics.take(iteration)


def _epoch_of(trainer: weakref.ReferenceType[Any]) -> int:
    found = trainer()
    return 0 if found is None else int(found.current_epoch)
