"""What every recorder behind a Stopwatch does: count iterations, leave out warm-up, give the figures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from lightning_timing.clocks import Clock
from lightning_timing.closed_iterations import ClosedIterations
from lightning_timing.compiling import compilations_so_far, compiling_probe
from lightning_timing.cpu_choice import CpuChoice
from lightning_timing.failsafe import Failsafe
from lightning_timing.ledger import Ledger
from lightning_timing.measured_iterations import IterationLabel, MeasuredByUser
from lightning_timing.misuse import NOT_MEASURED, SAMPLE_DROPPED, Misuse
from lightning_timing.names import shown, why_refused
from lightning_timing.no_op import nothing
from lightning_timing.one_time import OneTimeMeasurements
from lightning_timing.recorder_settings import RecorderSettings
from lightning_timing.stage_totals import StageTotals
from lightning_timing.user_measurements import UserMeasurements

if TYPE_CHECKING:
    from lightning_timing.deferred import Pending
    from lightning_timing.device_timer import DeviceTimer
    from lightning_timing.figures import Figures

_STILL_OPEN: Final = (
    "measurement {!r} was still open when its iteration was finished: end it with end_meas, or use `with span(...)`"
)


class Recorder(ABC):
    """Turns iterations and the user's measurements into the figures of each stage.

    Beyond counting, the work on an iteration is done for several iterations at once.

    Args:
        settings: How to count.
        clock: Monotonic, in nanoseconds.
        before_reading: Called before each reading of the clock: synchronizes the device.
        stage: The stage that comes first.
        ledger: The ledger of the iteration that is open.
        closed: Takes the iterations that are closed.
        between: The phases that are open while no iteration is; None in a plain loop, which has no phases.
        device_timer: Times the user's measurements on the device as well; None: host time only.

    Attributes:
        clock: The clock.
        is_compiling: Says whether torch.compile is tracing.
        stage: The current stage.
        user: The user's measurements.
        one_time: One-time measurements.
        cpu: Which measurement gets CPU usage.
        catch_up: Brings it up to date, where phases are reported to it late.
        rank: Global rank of the process.
        world_size: Number of processes.
        loader_workers: Number of DataLoader workers, by stage, where it is known.
    """

    def __init__(
        self,
        settings: RecorderSettings,
        clock: Clock,
        before_reading: Callable[[], None] | None,
        *,
        stage: StageTotals,
        ledger: Ledger,
        closed: ClosedIterations,
        between: Ledger | None = None,
        device_timer: DeviceTimer[Pending] | None = None,
    ) -> None:
        self.clock = clock
        self.is_compiling = compiling_probe()
        self.rank, self.world_size = 0, 1
        self.loader_workers: Mapping[str, int] = {}
        self.catch_up: Callable[[], None] = nothing
        self.stage = stage
        self._stages = {stage.name: stage}
        self._ledger = ledger
        self._closed = closed
        self._misuse = Misuse(settings.on_misuse)
        self._cpu_failsafe = Failsafe("CPU usage", strict=False)
        self.cpu = CpuChoice(clock)
        self.one_time = OneTimeMeasurements(ledger.read, self._misuse)
        self.user = UserMeasurements(
            clock,
            before_reading,
            timer=device_timer,
            ledger=ledger,
            between=between,
            cpu=self.cpu,
            misuse=self._misuse,
            stages=self._stages,
        )
        self.user.begin_stage(stage)
        self.cpu.begin_stage(is_warming_up=stage.warmup_left > 0)
        self._compilations = compilations_so_far()
        self._close_reported_ns = 0  # the moment, on the clock, at which the last iteration was reported as closed
        self._report_every = 1  # is read only where the next one is set
        self._on_report_due: Callable[[], None] | None = None

    # ---- iterations ----

    def report_every(self, iterations: int, on_due: Callable[[], None]) -> None:
        """Calls `on_due` after every `iterations` counted iterations, before the next."""
        self._report_every, self._on_report_due = iterations, on_due

    def stop_reporting(self) -> None:
        """Ends what `report_every` began."""
        self._on_report_due = None

    @abstractmethod
    def finish_iteration(self) -> None:
        """Ends an iteration, in so far as it is the user who says where one ends."""

    def count_iteration(self, label: IterationLabel) -> bool:
        """Counts the iteration that was closed.

        Args:
            label: Its label.

        Returns:
            Whether it was counted; False in warm-up.

        Raises:
            MisuseError: A measurement was still open on this thread, and misuse is to be raised.
        """
        stage, ledger = self.stage, self._ledger
        if not stage.iterations:
            self._recognise_compilation()
        by_user = self.user.cuts.of_iteration(self._close_reported_ns)
        users = (
            stage.user_measurements_at(self._close_reported_ns) if stage.user_measurements and by_user is None else ()
        )
        left_open = self.user.spoil_open(users, last_of_warmup=stage.warmup_left == 1) if users else ()
        counts = not stage.leave_out(users, ledger.total_ns)
        if by_user is None:
            by_user = self.user.cuts.take(users)
        if counts:
            stage.iterations += 1
            self._keep(label, by_user)
            self._report_if_due()
        else:
            self.cpu.leave_out(is_warming_up=stage.warmup_left > 0)
            self._leave_out()
        for name in left_open:
            self._report_left_open(name, _STILL_OPEN.format(name))
        return counts

    @abstractmethod
    def _keep(self, label: IterationLabel, by_user: MeasuredByUser) -> None:
        """Adds the closed iteration to the figures, or puts it where it waits for that."""

    @abstractmethod
    def _leave_out(self) -> None:
        """Forgets the closed iteration, which belongs to the warm-up."""

    def _report_left_open(self, name: str, what: str) -> None:
        self._misuse.report(name, what, consequence=SAMPLE_DROPPED)

    def _report_if_due(self, newly_counted: int = 1) -> None:
        if self._on_report_due is not None and self.stage.iterations % self._report_every < newly_counted:
            self._on_report_due()

    def _recognise_compilation(self) -> None:
        """Adds this iteration to the warm-up if it compiled. Called only until the first iteration is counted."""
        compilations = compilations_so_far()
        if compilations != self._compilations:
            self._compilations = compilations
            self.stage.warmup_left = max(self.stage.warmup_left, 1)

    # ---- the user's measurements ----

    def choose_cpu_usage(self, name: str, by_default: bool = False) -> None:
        """Meters the CPU usage of a measurement, or of the whole iteration. Without psutil there is only a warning.

        Args:
            name: The measurement.
            by_default: Whether a later choice may replace this one.

        Raises:
            MisuseError: Another was chosen already, or the name is refused, and misuse is to be raised.
        """
        refusal = self._why_no_cpu_usage(name)
        if refusal is not None:
            self._misuse.report(name, refusal, consequence=NOT_MEASURED)
            return
        if not self.cpu.may_be(name):
            taken = f"CPU usage is measured of {self.cpu.name!r} already, and of one measurement only"
            self._misuse.report(name, taken, consequence=f"that of {shown(name)} is not measured")
            return
        with self._cpu_failsafe:
            self.cpu.choose(name, by_default)
        for measurements in self.user.of_all_stages():
            if name in measurements:
                measurements[name].go_unusual()

    def _why_no_cpu_usage(self, name: str) -> str | None:
        return why_refused(name)

    # ---- results ----

    def work_off(self) -> None:
        """Adds all iterations counted so far to the figures, and hands them on."""
        self.catch_up()
        self._closed.work_off()

    def figures(self, stage: str | None = None) -> Figures:
        """Returns what has been measured so far, in one stage or (None) in all that were used."""
        from lightning_timing.figures import Figures
        from lightning_timing.figures_from_recorder import summarize_stage

        self.catch_up()
        with self._closed.worked_off():
            stages = {
                name: summarize_stage(totals)
                for name, totals in list(self._stages.items())
                if totals.was_used and stage in (None, name)
            }
        return Figures(
            stages, self.one_time.seconds(), self.cpu.result(), self.rank, self.world_size, self.loader_workers
        )

    def release(self) -> None:
        """Ends the run: works off the iterations that wait, and stops sampling CPU usage."""
        try:
            self.work_off()
        finally:
            self.cpu.stop()
