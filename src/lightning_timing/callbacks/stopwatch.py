"""StopwatchCallback: feeds a Trainer's phases to the Stopwatch, prints the report and writes the record."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

from lightning_timing.callbacks.calibration import try_out
from lightning_timing.callbacks.last_report import last_report
from lightning_timing.callbacks.metrics_log import MetricsLog
from lightning_timing.callbacks.phase_callback import PhaseCallback
from lightning_timing.callbacks.ranks import is_first, takes_part, validated_ranks
from lightning_timing.callbacks.run_dir import HydraJob, RunPlace, agree_on_place, hydra_job
from lightning_timing.callbacks.run_files import RunFiles
from lightning_timing.callbacks.session import leave
from lightning_timing.callbacks.stopwatch_segment import StopwatchRun, StopwatchSegment, keep_up
from lightning_timing.clocks import Clock, monotonic_ns
from lightning_timing.device import synchronize, torch_device
from lightning_timing.device_timer import DeviceTimer
from lightning_timing.errors import TimingError
from lightning_timing.failsafe import Failsafe, warn_of_run
from lightning_timing.late_recorder import LateRecorder
from lightning_timing.names import shown, why_refused
from lightning_timing.overhead import overhead_of
from lightning_timing.phases import ITERATION
from lightning_timing.record import TIMING_FOLDER, Status
from lightning_timing.recorder_settings import RecorderSettings
from lightning_timing.stopwatch import STOPWATCH
from lightning_timing.validation import check_whole_number

_SEVERAL: Final = (
    "the Trainer has several StopwatchCallbacks: each measures for itself and prints a report of its own, and this one "
    "writes to {name}; leave one out unless that is what you want"
)
_ENABLED_BEFORE: Final = (
    "the Stopwatch was enabled before the run, so what you measure with it, spans included, is in its own figures and "
    "not in this run's: disable() it first, or do without the StopwatchCallback"
)
_HAS_ANOTHER_RUN: Final = (
    "another run that is not over has the Stopwatch, so what you measure meanwhile, spans included, is in that run's "
    "figures and not in this one's"
)


class StopwatchCallback(PhaseCallback):
    """Times every phase of every iteration, prints the report, and writes the record under `<run dir>/timing/`.

    It enables the `Stopwatch` when a run starts and disables it when the run ends, however it ends. A second one in the
    same Trainer measures for itself, and writes to another folder; user measurements go to the first.

    It belongs in the Trainer of every rank, whichever of them are chosen: at `setup` they all ask rank 0 where to
    write. The calls of a Trainer (`fit`, then `test`) are one run, unless its strategy spawns new processes for each.

    Args:
        enable: Whether it does anything at all.
        num_warmup_iters: First iterations of training that are not counted; nor are those that compile before the
            first one that is.
        print_every_n_iters: Print the report after every so many counted iterations; None: only at the end.
        do_cuda_sync: Synchronize the device at every boundary: host times then include the device's work.
        cpu_usage_meas_name: The measurement that also gets CPU usage; None: none.
        device_time: `events`: time on the device, beside host time; `sync`: as `do_cuda_sync`; `off`; None: `events`
            where there is an accelerator, unless `do_cuda_sync` is on.
        ranks: The global ranks that measure and write, or `all`. The lowest of them prints.
        log_to_logger: Whether `timing/<phase>`, in seconds, goes to the Trainer's loggers: those of rank 0, if it is
            among `ranks`.
        on_misuse: `warn` once for each name and drop the sample, or `raise`, failures of this package included.
        folder: The folder's name in the run dir.
        clock: Monotonic, in nanoseconds.

    Raises:
        TimingError: An argument is out of its range.
    """

    name_in_messages: ClassVar[str] = "the Stopwatch"

    def __init__(
        self,
        enable: bool = True,
        num_warmup_iters: int = 10,
        print_every_n_iters: int | None = None,
        do_cuda_sync: bool = False,
        *,
        cpu_usage_meas_name: str | None = ITERATION,
        device_time: Literal["events", "sync", "off"] | None = None,
        ranks: Sequence[int] | Literal["all"] = (0,),
        log_to_logger: bool = False,
        on_misuse: Literal["warn", "raise"] = "warn",
        folder: str = TIMING_FOLDER,
        clock: Clock = monotonic_ns,
    ) -> None:
        super().__init__(enable=enable)
        RecorderSettings(num_warmup_iters, on_misuse)  # which checks them
        check_whole_number("print_every_n_iters", print_every_n_iters, least=1, or_none=True)
        refusal = None if cpu_usage_meas_name is None else why_refused(cpu_usage_meas_name)
        if refusal is not None:
            raise TimingError(
                f"cpu_usage_meas_name takes a measurement's name or None, got {shown(cpu_usage_meas_name)}: {refusal}"
            )
        if device_time not in (None, "events", "sync", "off"):
            raise TimingError(f"device_time takes events, sync, off or None, got {device_time!r}")
        if do_cuda_sync and device_time == "events":
            raise TimingError(
                "do_cuda_sync waits for the device at each edge, so there is nothing left for device_time='events' to "
                "time: leave one of the two out"
            )
        if not folder or Path(folder).name != folder or folder == "..":
            raise TimingError(f"folder takes the name of a folder in the run dir, got {folder!r}")
        self.num_warmup_iters = num_warmup_iters
        self.print_every_n_iters = print_every_n_iters
        self.do_cuda_sync = do_cuda_sync
        self.cpu_usage_meas_name = cpu_usage_meas_name
        self.device_time = device_time
        self.ranks = validated_ranks(ranks)
        self.log_to_logger = log_to_logger
        self.on_misuse = on_misuse
        self.folder = folder
        self._clock = clock
        self._run: StopwatchRun | None = None
        self._job: HydraJob | None = None

    @property
    def strict(self) -> bool:
        """Whether failures are raised, as in `debug`."""
        return self.on_misuse == "raise"

    def _empty_hooks(self) -> list[str]:
        """Returns the batch hooks that do nothing with these settings."""
        empty = super()._empty_hooks()
        if not self.log_to_logger and type(self).on_train_batch_end is StopwatchCallback.on_train_batch_end:
            empty.append("on_train_batch_end")
        return empty

    def __getstate__(self) -> dict[str, Any]:
        """What a copy takes along: the settings, where to write to, and nothing of a run."""
        # A spawned rank is no Hydra job, so it cannot find the job's folder by itself.
        return {**super().__getstate__(), "_run": None, "_job": hydra_job() or self._job}

    def begin(self, trainer: Any, pl_module: Any, entry_point: str) -> StopwatchSegment | None:
        """Takes part in a run on the chosen ranks."""
        job = hydra_job() or self._job
        place = agree_on_place(trainer, None if job is None else job.directory)
        if not takes_part(trainer, self.ranks, self.name_in_messages):
            return None
        prints = is_first(trainer.global_rank, self.ranks)
        # The module's goes through the progress bar, which only rank 0 has, and prints nothing on the others.
        printer = print if prints and not trainer.is_global_zero else pl_module.print
        run = self._run_in(place, trainer)
        recorder = run.recorder
        recorder.rank, recorder.world_size = trainer.global_rank, trainer.world_size
        printing = Failsafe("the printed report", strict=self.strict)
        with ExitStack() as undo:
            undo.callback(recorder.release)
            if not STOPWATCH.is_enabled:
                STOPWATCH._attach(recorder, printer=printer, failsafe=self._failsafe, printing=printing)
                undo.callback(STOPWATCH._detach, recorder)
            elif prints and (why_not := _why_not_attached(trainer)):
                warn_of_run(why_not)
            undo.callback(leave, trainer, recorder)
            session = self._follow(trainer, entry_point, recorder)
            session.on_off.append(self.turn_off)  # or what the user measures waits for ever
            settings = self._settings() if job is None else {**self._settings(), "overrides": job.overrides}
            run.files.open_segment(trainer, entry_point, settings, partial(keep_up, recorder, self._failsafe))
            undo.callback(run.files.end_segment, "failed")
            segment = StopwatchSegment(
                session=session,
                recorder=recorder,
                files=run.files,
                metrics=MetricsLog() if self.log_to_logger else None,
                logging=Failsafe("logging the phases", strict=self.strict),
                print=printer,
                printing=printing,
            )
            segment.meter_cpu_usage_of(self.cpu_usage_meas_name)
            segment.hand_on(run.trainer)
            if self.print_every_n_iters is not None:
                recorder.report_every(self.print_every_n_iters, partial(segment.print_so_far, self._failsafe))
            undo.pop_all()
        return segment

    def turn_off(self) -> None:
        """Ends the periodic print, and makes the Stopwatch's methods no-ops."""
        if self._running is not None:
            STOPWATCH._detach(self._running.recorder)

    def end(self, trainer: Any, running: StopwatchSegment, status: Status) -> None:
        """Writes what is known, prints it, and leaves everything as it was."""
        recorder = running.recorder
        is_late = running.session.trail.follower is recorder
        with ExitStack() as finally_:
            finally_.callback(running.files.end_segment, status)
            finally_.callback(STOPWATCH._detach, recorder)
            release = partial(recorder.release, device_may_hang=status != "completed")
            for step in (partial(leave, trainer, recorder), recorder.take_outside, release):
                with self._failsafe:
                    step()
            figures, overhead = recorder.figures(), None
            with self._failsafe:
                overhead = overhead_of(recorder, partial(try_out, recorder, is_late=is_late))
            running.files.summarize_segment(status, figures, overhead)
            for reason in recorder.problems():
                warnings.warn(f"lightning_timing: {reason}", stacklevel=2)
            if not running.printing.is_off:
                with running.printing:
                    report = last_report(
                        running.files,
                        figures,
                        overhead,
                        status=status,
                        world_size=trainer.world_size,
                        compares_ranks=trainer.world_size > 1 and (self.ranks == "all" or len(self.ranks) > 1),
                    )
                    if status != "completed":
                        running.print(report)
                    elif is_first(trainer.global_rank, self.ranks):
                        # The progress bars are closed by now, and TQDM's swallows what it is given then.
                        print(report)

    def _run_in(self, place: RunPlace, trainer: Any) -> StopwatchRun:
        """Returns the run that this call of the Trainer continues, or a new one."""
        folder = place.directory / self._folder_in(trainer)
        run = self._run
        if run is not None and run.trainer() is trainer and run.files.folder == folder:
            run.recorder.restart_warmup()
            return run
        writes_summary = is_first(trainer.global_rank, self.ranks)
        if writes_summary and folder.name != self.folder:
            warnings.warn(f"lightning_timing: {_SEVERAL.format(name=folder.name)}", stacklevel=2)
        files = RunFiles(folder, place.run_id, writes_summary, self._clock)
        self._run = StopwatchRun(weakref.ref(trainer), self._new_recorder(trainer.strategy.root_device), files)
        return self._run

    def _folder_in(self, trainer: Any) -> str:
        """The folder's name; with a number behind it where a callback before this one in the Trainer has that name.

        Callbacks that take no part on this rank count as well, so that every rank writes to the same folder.
        """
        taken: set[str] = set()
        for callback in trainer.callbacks:
            if callback is self:
                break
            if isinstance(callback, StopwatchCallback) and callback.enable:
                taken.add(_free_name(callback.folder, taken))
        return _free_name(self.folder, taken)

    def _new_recorder(self, root_device: Any) -> LateRecorder:
        device = torch_device(root_device)
        synced = device is not None and (self.do_cuda_sync or self.device_time == "sync")
        evented = device is not None and not synced and self.device_time != "off"
        return LateRecorder(
            RecorderSettings(num_warmup_iters=self.num_warmup_iters, on_misuse=self.on_misuse),
            self._clock,
            keep_intervals=True,
            before_reading=partial(synchronize, device) if synced else None,
            device_timer=DeviceTimer(device, clock=self._clock) if device is not None and evented else None,
        )

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Notes the loaders, which are there by now."""
        if self._is_of(trainer):
            self._running.note_loaders(trainer)

    on_test_start = on_predict_start = on_train_start

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Notes the loaders of a validation that is no part of a fit."""
        if trainer.state.fn == "validate":
            self.on_train_start(trainer, pl_module)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Logs the phases, if that was asked for and it is time."""
        if self._is_of(trainer):
            self._running.log_phases(trainer, pl_module)


def _why_not_attached(trainer: Any) -> str | None:
    """Says who has the Stopwatch; None for another callback of this Trainer, which warns by itself."""
    if not isinstance(STOPWATCH._recorder, LateRecorder):
        return _ENABLED_BEFORE
    others = [callback for callback in trainer.callbacks if isinstance(callback, StopwatchCallback)]
    has_it = any(other._running is not None and other._running.recorder is STOPWATCH._recorder for other in others)
    return None if has_it else _HAS_ANOTHER_RUN


def _free_name(name: str, taken: set[str]) -> str:
    """The name, or the first of `name-2`, `name-3` and so on that is free."""
    names = chain([name], (f"{name}-{n}" for n in count(2)))
    return next(name for name in names if name not in taken)
