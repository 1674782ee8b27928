"""The Stopwatch: a process-wide singleton that times named measurements from any part of a code base."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from lightning_timing.clocks import Clock, monotonic_ns
from lightning_timing.device import synchronize
from lightning_timing.errors import MisuseError
from lightning_timing.failsafe import Failsafe
from lightning_timing.loop_recorder import LoopRecorder
from lightning_timing.no_op import nothing
from lightning_timing.recorder import Recorder
from lightning_timing.recorder_settings import RecorderSettings
from lightning_timing.validation import check_whole_number

if TYPE_CHECKING:
    from lightning_timing.figures import Figures
    from lightning_timing.record import TimingOverhead

_NAME: Final = "the Stopwatch"
_NAME_OF_PRINTING: Final = "the printed report"


class Stopwatch:
    """Times named measurements: averages per interval and per iteration, after a warm-up, at a cost of nanoseconds.

    There is one in the process; `Stopwatch()` returns it. Until it is enabled every method does nothing.
    Given arguments, the constructor also enables it:

        Stopwatch(num_warmup_iters=10, print_every_n_iters=100, do_cuda_sync=False)

    Inside a region compiled by torch.compile its methods do nothing and break no graph. In a new process, such as a
    worker of a DataLoader, it starts out disabled, whether that was spawned or forked.
    """

    _render: ClassVar[Callable[[Figures, TimingOverhead | None], str]] = staticmethod(lambda figures, _: repr(figures))
    """Turns the figures into the printed report. Set by the package, since rendering lies in a layer above."""

    _on_switch: ClassVar[Callable[[], None]] = staticmethod(nothing)
    """Called whenever the Stopwatch was enabled or disabled. Set by `span`, which rebinds its methods then."""

    __slots__ = ("_failsafe", "_last", "_print", "_printing", "_recorder")

    _recorder: Recorder | None
    """Takes the measurements; None while disabled."""

    _instance: ClassVar[Stopwatch | None] = None
    _last: Recorder | None
    _failsafe: Failsafe
    _print: Callable[[str], None]
    _printing: Failsafe

    def __new__(cls, *args: Any, **kwargs: Any) -> Stopwatch:
        """Returns the one instance."""
        if cls._instance is None:
            cls._instance = super().__new__(cls)
            cls._instance._forget()
        return cls._instance

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args or kwargs:
            self.enable(*args, **kwargs)

    def __reduce__(self) -> tuple[type[Stopwatch], tuple[()]]:
        """Copies and unpickles as the one instance of the process that does so."""
        return Stopwatch, ()

    def _forget(self) -> None:
        self._switch_to(None)
        self._last = None
        self._failsafe = Failsafe(_NAME, strict=True)
        self._print = print
        self._printing = Failsafe(_NAME_OF_PRINTING, strict=True)

    def enable(
        self,
        num_warmup_iters: int = 10,
        print_every_n_iters: int | None = None,
        do_cuda_sync: bool = False,
        *,
        on_misuse: Literal["raise", "warn"] = "raise",
        clock: Clock = monotonic_ns,
    ) -> None:
        """Starts measuring, with no figures yet.

        Args:
            num_warmup_iters: The first iterations, which are not counted.
            print_every_n_iters: Print the report after every so many counted iterations; None: never by itself.
            do_cuda_sync: Synchronize the accelerator at each start and end. It makes the host wait for the device.
            on_misuse: What follows when a measurement is ended that was not started, or started twice, or still open
                when its iteration is finished: `raise` a MisuseError, or `warn` once for its name and drop the sample.
            clock: Monotonic, in nanoseconds.

        Raises:
            MisuseError: It is enabled already.
            TimingError: An argument is out of its range.
        """
        settings = RecorderSettings(num_warmup_iters=num_warmup_iters, on_misuse=on_misuse)
        check_whole_number("print_every_n_iters", print_every_n_iters, least=1, or_none=True)
        recorder = LoopRecorder(settings, clock, before_reading=synchronize if do_cuda_sync else None)
        self._attach(recorder)
        if print_every_n_iters is not None:
            recorder.report_every(print_every_n_iters, lambda: self._print_report(recorder, recorder.stage.name))

    def _attach(
        self,
        recorder: Recorder,
        *,
        printer: Callable[[str], None] = print,
        failsafe: Failsafe | None = None,
        printing: Failsafe | None = None,
    ) -> None:
        """Enables it with a recorder made elsewhere, as the callback does.

        Args:
            recorder: The recorder.
            printer: Prints a report.
            failsafe: Takes failures of the methods that measure; None: they are raised.
            printing: Takes failures to print; None: they are raised.

        Raises:
            MisuseError: It is enabled already.
        """
        if self._recorder is not None:
            raise MisuseError("the Stopwatch is enabled already; call disable() first")
        self._print = printer
        self._failsafe = failsafe or Failsafe(_NAME, strict=True)
        self._printing = printing or Failsafe(_NAME_OF_PRINTING, strict=True)
        recorder.user.failsafe = self._failsafe
        self._switch_to(recorder)

    def _switch_to(self, recorder: Recorder | None) -> None:
        self._recorder = recorder
        try:
            type(self)._on_switch()
        except BaseException:  # of a signal's handler: it is either enabled everywhere or nowhere
            self._recorder = None
            raise

    def _detach(self, recorder: Recorder) -> None:
        """Ends the periodic print of a recorder, and turns every method into a no-op if it takes the measurements."""
        recorder.stop_reporting()
        if self._recorder is recorder:
            self._last = recorder
            self._switch_to(None)
            # A callback's would keep its Trainer alive, and the module's weights with it.
            self._print = print
            self._failsafe = recorder.user.failsafe = _detached(self._failsafe, _NAME)
            self._printing = _detached(self._printing, _NAME_OF_PRINTING)

    def disable(self) -> None:
        """Turns every method into a no-op again. The figures stay readable until the next `enable` or `reset`."""
        recorder = self._recorder
        if recorder is not None:
            self._detach(recorder)
            with self._failsafe:
                recorder.release()

    def reset(self) -> None:
        """Disables it and forgets everything."""
        self.disable()
        self._forget()

    @property
    def is_enabled(self) -> bool:
        """Whether it measures."""
        return self._recorder is not None

    def get_num_nonwarmup_iters_measured(self) -> int:
        """Returns how many iterations of the current stage were counted."""
        recorder = self._recorder or self._last
        if recorder is None:
            return 0
        recorder.catch_up()
        return recorder.stage.iterations

    def start_meas(self, name: str) -> None:
        """Starts a measurement, any number of times in an iteration. It may be ended anywhere on the same thread.

        Args:
            name: A non-empty string of at most 512 characters.

        Raises:
            MisuseError: It is open on this thread already, or the name is refused, and misuse is to be raised.
        """
        # Not even a local variable, which would cost as much as the test. No other thread comes between the two reads.
        if self._recorder is not None:
            self._recorder.user.start(name)

    def end_meas(self, name: str) -> None:
        """Ends a measurement.

        Args:
            name: As it was started.

        Raises:
            MisuseError: It is not open on this thread, and misuse is to be raised.
        """
        if self._recorder is not None:
            self._recorder.user.end(name)

    def set_cpu_usage_meas_name(self, name: str) -> None:
        """Meters the CPU usage of one measurement as well. May be called again with the same name.

        Without psutil there is a warning, and no CPU usage.

        Raises:
            MisuseError: Another measurement was chosen already, or the name is refused, and misuse is to be raised.
        """
        if self._recorder is not None and not self._recorder.is_compiling():
            with self._failsafe:
                self._recorder.choose_cpu_usage(name)

    def start_one_time_measurement(self, name: str) -> None:
        """Starts a measurement that is made once in a run, whatever the warm-up.

        Raises:
            MisuseError: The name was started already, and misuse is to be raised.
        """
        if self._recorder is not None and not self._recorder.is_compiling():
            with self._failsafe:
                self._recorder.one_time.start(name)

    def end_one_time_measurement(self, name: str) -> None:
        """Ends a one-time measurement.

        Raises:
            MisuseError: It is not running, and misuse is to be raised.
        """
        if self._recorder is not None and not self._recorder.is_compiling():
            with self._failsafe:
                self._recorder.one_time.end(name)

    def finish_iter(self) -> None:
        """Ends the iteration. Warm-up, averages per iteration and the periodic print depend on this call.

        While a StopwatchCallback measures, the Trainer's batches are the iterations, and this does nothing.

        Raises:
            MisuseError: A measurement is still open on this thread, and misuse is to be raised.
        """
        recorder = self._recorder
        if recorder is None or recorder.is_compiling():
            return
        try:
            recorder.finish_iteration()
        except Exception as error:  # noqa: BLE001  # whatever it is: a timer must not end what it times
            self._failsafe.fail(error)

    def print_eval_times(self) -> None:
        """Prints the report so far."""
        recorder = self._recorder or self._last
        if recorder is not None:
            self._print_report(recorder)

    def _print_report(self, recorder: Recorder, stage: str | None = None) -> None:
        print_report(recorder, stage, self._print, failsafe=self._failsafe, printing=self._printing)

    def summary(self) -> Figures:
        """Returns what has been measured so far, as frozen dataclasses. Times in seconds."""
        from lightning_timing.figures import Figures

        recorder = self._recorder or self._last
        figures = Figures(stages={}, one_time={}, cpu_usage=None)
        if recorder is not None:
            with self._failsafe:
                figures = recorder.figures()
        return figures


def print_report(
    recorder: Recorder, stage: str | None, printer: Callable[[str], None], *, failsafe: Failsafe, printing: Failsafe
) -> None:
    """Prints the report so far.

    Args:
        recorder: The recorder of the figures.
        stage: The stage to print; None: all of them.
        printer: Prints a text.
        failsafe: Takes failures to calculate the figures.
        printing: Takes failures to print; nothing is printed any more once it is off.
    """
    if printing.is_off:
        return
    figures = None
    with failsafe:
        figures = recorder.figures(stage)
    if figures is not None:
        with printing:
            printer(Stopwatch._render(figures, None))


def _detached(failsafe: Failsafe, name: str) -> Failsafe:
    """Returns one in the same state as the given one, but without its references."""
    detached = Failsafe(name, strict=failsafe.strict)
    detached.is_off = failsafe.is_off
    return detached


STOPWATCH: Final = Stopwatch()
"""The one instance, made at import so that code compiled by torch.compile never makes it."""

if hasattr(os, "register_at_fork"):
    # What a child measured would be lost with it, and would fill its memory until then.
    os.register_at_fork(after_in_child=STOPWATCH._forget)
