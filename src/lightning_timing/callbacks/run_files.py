"""The files of a run on one rank: a segment of the record for each call of the Trainer, and the summary."""

from __future__ import annotations

import os
import socket
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from lightning_timing.callbacks.environment import conditions, environment, loaders
from lightning_timing.clocks import Clock, pair_clocks
from lightning_timing.failsafe import Failsafe
from lightning_timing.figures import Figures
from lightning_timing.loader_workers import workers_by_stage
from lightning_timing.measured_iterations import MeasuredIteration, MeasuredOutside
from lightning_timing.record import (
    SCHEMA_VERSION,
    SUMMARY_NAME,
    OutsideRow,
    RunSummary,
    SegmentHeader,
    SegmentSummary,
    Status,
    TimingOverhead,
    rank_file_name,
)
from lightning_timing.record_writer import RecordWriter, write_summary
from lightning_timing.verdict import judge

_HIDES: Final = (
    "{folder} holds the record of an earlier run, which reports show from now on only as {folder}~1: to keep both in "
    "sight, give each run a folder of its own, by StopwatchCallback(folder=...) or, outside of a Hydra job, by the "
    "Trainer's logger or default_root_dir"
)


class RunFiles:
    """Writes what a run measures, as it goes and at its end. If that fails, it warns once, and there is no record.

    Args:
        folder: The folder of the files. Made if need be.
        run_id: The name of the run, the same on all of its ranks.
        writes_summary: Whether this rank writes `summary.json`, which only one does.
        clock: The recorder's clock, which the header places on the wall clock.

    Attributes:
        loader_workers: Number of DataLoader workers, by stage, where it is known.
    """

    def __init__(self, folder: Path, run_id: str, writes_summary: bool, clock: Clock) -> None:
        self.folder = folder
        self.loader_workers: Mapping[str, int] = {}
        self._run_id = run_id
        self._writes_summary = writes_summary
        self._clock = clock
        self._failsafe = Failsafe("the record", strict=False)
        self._segments: list[SegmentSummary] = []
        self._iterations_before: Mapping[str, int] = {}
        self._header: SegmentHeader | None = None
        self._settings: Mapping[str, Any] = {}  # of all segments, the latest of each name
        self._writer: RecordWriter | None = None

    def open_segment(
        self, trainer: Any, entry_point: str, settings: Mapping[str, Any], when_idle: Callable[[], None]
    ) -> None:
        """Opens a segment, as a call of the Trainer begins.

        Args:
            trainer: The Trainer.
            entry_point: `fit`, `validate`, `test` or `predict`.
            settings: For the header.
            when_idle: Called on another thread, every few seconds if there is nothing to write.
        """
        self._failsafe = Failsafe("the record", strict=False)
        self._header = None
        with self._failsafe:
            header = self._header = self._header_of(trainer, entry_point, settings)
            self._settings = {**self._settings, **header.settings}
            path = self.folder / rank_file_name(trainer.global_rank)
            if self._writes_summary and not self._segments and path.is_file():
                warnings.warn(f"lightning_timing: {_HIDES.format(folder=self.folder)}", stacklevel=2)
            self._writer = RecordWriter(path, header, self._failsafe.fail, when_idle=when_idle)

    def _header_of(self, trainer: Any, entry_point: str, settings: Mapping[str, Any]) -> SegmentHeader:
        pairing = pair_clocks(self._clock)
        return SegmentHeader(
            segment=f"{self._run_id}-{len(self._segments)}",
            schema_version=SCHEMA_VERSION,
            entry_point=entry_point,
            rank=trainer.global_rank,
            local_rank=trainer.local_rank,
            world_size=trainer.world_size,
            host=socket.gethostname(),
            pid=os.getpid(),
            device=str(trainer.strategy.root_device),
            monotonic_ns=pairing.monotonic_ns,
            unix_ns=pairing.unix_ns,
            environment=environment(trainer),
            settings={**conditions(trainer), **settings},
        )

    def note_loaders(self, trainer: Any) -> None:
        """Adds the loaders to the settings. The Trainer has them by now, but had not when the segment began."""
        if self._writer is None or self._header is None or self._failsafe.is_off:
            return
        with self._failsafe:
            if found := loaders(trainer):
                self._header = replace(self._header, settings={**self._header.settings, **found})
                self._settings = {**self._settings, **found}
                self._writer.replace_header(self._header)
                self.loader_workers = workers_by_stage(self._settings)

    def write_iteration(self, iteration: MeasuredIteration) -> None:
        """Adds an iteration to the record."""
        if self._writer is None or self._header is None:
            return
        label = iteration.label
        row = {  # an `IterationRow`, which as such would take six times as long to make
            "kind": "iteration",
            "segment": self._header.segment,
            "stage": iteration.stage,
            "epoch": label.epoch,
            "batch_idx": label.batch_idx,
            "global_step": label.global_step,
            "start_ns": iteration.begin_ns,
            "ns": iteration.ns,
            "device_ns": iteration.device_ns,
            "samples": label.samples,
            "intervals": iteration.intervals,
        }
        self._append(self._writer, row)

    def write_outside(self, outside: MeasuredOutside) -> None:
        """Adds what was measured between iterations to the record."""
        if self._writer is None or self._header is None:
            return
        row = OutsideRow(
            segment=self._header.segment,
            stage=outside.stage,
            epoch=outside.epoch,
            name=outside.name,
            start_ns=outside.end_ns - outside.ns,
            ns=outside.ns,
        )
        self._append(self._writer, row)

    def _append(self, writer: RecordWriter, row: Mapping[str, Any] | OutsideRow) -> None:
        if not self._failsafe.is_off:
            try:
                writer.append(row)
            except Exception as error:  # noqa: BLE001  # whatever it is: a timer must not end what it times
                self._failsafe.fail(error)

    @property
    def is_written(self) -> bool:
        """Whether everything could be written so far."""
        return not self._failsafe.is_off

    def end_segment(self, status: Status) -> None:
        """Ends the segment, as the call of the Trainer has ended, unless that was done."""
        writer, self._writer = self._writer, None
        if writer is not None:
            with self._failsafe:
                writer.close(status)

    def summarize_segment(self, status: Status, figures: Figures, overhead: TimingOverhead | None) -> None:
        """Ends the segment, as the call of the Trainer has ended, and writes the summary of the run so far."""
        if self._header is None:
            return
        self.end_segment(status)
        iterations = {name: stage.iterations for name, stage in figures.stages.items()}
        self._segments.append(
            SegmentSummary(
                segment=self._header.segment,
                entry_point=self._header.entry_point,
                status=status,
                iterations={name: n - self._iterations_before.get(name, 0) for name, n in iterations.items()},
            )
        )
        self._iterations_before = iterations
        if self._writes_summary:
            with self._failsafe:
                self._write_summary(status, figures, overhead, self._header)

    def _write_summary(
        self, status: Status, figures: Figures, overhead: TimingOverhead | None, header: SegmentHeader
    ) -> None:
        verdict = judge(figures.stages, figures.cpu_usage, figures.loader_workers, figures.world_size)
        summary = RunSummary(
            schema_version=SCHEMA_VERSION,
            status=status,
            environment=header.environment,
            settings=self._settings,
            rank=header.rank,
            world_size=header.world_size,
            stages=figures.stages,
            cpu_usage=figures.cpu_usage,
            one_time=figures.one_time,
            verdict=None if verdict is None else verdict.name,
            timing_overhead=overhead,
            segments=tuple(self._segments),
        )
        write_summary(self.folder / SUMMARY_NAME, summary)
