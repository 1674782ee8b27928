"""CUDAProfilerCallback: cudaProfilerStart and cudaProfilerStop around a window of training batches."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, ClassVar, Final, Literal, NamedTuple

from lightning_timing.callbacks.followers import PhaseFollower
from lightning_timing.callbacks.phase_callback import PhaseCallback
from lightning_timing.callbacks.ranks import is_first, takes_part, validated_ranks
from lightning_timing.callbacks.session import Session, leave
from lightning_timing.cuda_runtime import CudaRuntime, cuda_runtime
from lightning_timing.failsafe import warn_of_run
from lightning_timing.measured_iterations import IterationLabel
from lightning_timing.nvtx_domain import DOMAIN
from lightning_timing.nvtx_ranges import start_process_range
from lightning_timing.phases import TRAIN
from lightning_timing.record import Status
from lightning_timing.validation import check_whole_number

CAPTURE_RANGE: Final = "capture"
"""The NVTX range around the window, in the domain: `nsys profile -c nvtx -p capture@lightning_timing`."""

_NO_CUDA: Final = (
    "no CUDA here, so the CUDA profiler is not started and nsys --capture-range=cudaProfilerApi captures nothing: use "
    f"--capture-range=nvtx --nvtx-capture={CAPTURE_RANGE}@{DOMAIN} instead"
)


class CaptureWindow(PhaseFollower):
    """Opens once and closes once, around whole iterations of training.

    It closes when an iteration is counted, since all followers have closed theirs by then. All else it ignores.

    Args:
        start_step: Training batches of this fit before it opens.
        num_steps: Training batches inside it; None: to the end of the run.
        sync: Whether the device is synchronized at both edges.
        runtime: The interface to CUDA; None where there is no CUDA.

    Attributes:
        was_opened: Whether the capture was started.
        on_full: Called when the window is closed for good, since it need not follow the run any more.
    """

    def __init__(self, start_step: int, num_steps: int | None, sync: bool, runtime: CudaRuntime | None) -> None:
        self._start_step = start_step
        self._num_steps = num_steps
        self._sync = sync
        self._runtime = runtime
        self._stage = TRAIN
        self._steps = 0
        self._stops = ExitStack()
        self.was_opened = False
        self.on_full: Callable[[], None] | None = None

    def open(self) -> None:
        """Starts the capture, unless it was started before."""
        if self.was_opened:
            return
        self.was_opened = True
        if self._runtime is not None:
            if self._sync:
                self._runtime.synchronize()
            self._runtime.profiler_start()
            self._stops.callback(self._runtime.profiler_stop)
        self._stops.callback(start_process_range(CAPTURE_RANGE))
        if self._runtime is not None and self._sync:
            self._stops.callback(self._runtime.synchronize)

    def close(self) -> None:
        """Stops the capture, if it is running: all that was started, even if a part of that fails."""
        self._stops.close()

    def begin_stage(self, stage: str) -> None:
        """Notes the stage: only training batches are counted."""
        self._stage = stage

    def begin_iteration(self) -> None:
        """Opens the window if it is time."""
        if self._stage == TRAIN and self._steps >= self._start_step:
            self.open()

    def count_iteration(self, label: IterationLabel) -> None:
        """Counts the batch, and closes the window if it is full."""
        if self._stage == TRAIN:
            self._steps += 1
            if self._num_steps is not None and self._steps >= self._start_step + self._num_steps:
                self.close()
                if self.on_full is not None:
                    self.on_full()


class _Running(NamedTuple):
    """What lasts as long as a run.

    Attributes:
        window: The window.
        session: Notifies the window of batches; None where the window is the whole run.
    """

    window: CaptureWindow
    session: Session | None


class CUDAProfilerCallback(PhaseCallback):
    """Limits what Nsight Systems captures to a window of training batches, on chosen ranks.

    For `nsys profile --capture-range=cudaProfilerApi --capture-range-end=stop`. Where there is no CUDA the NVTX range
    `capture@lightning_timing` marks the window all the same. The window is closed on any end of the run.

    Args:
        enable: Whether it does anything at all.
        start_step: Training batches of this fit before the window opens, whatever the accumulation or resumption.
        num_steps: Training batches in the window; None: to the end of the run, so with `start_step` 0 all of it.
        ranks: The global ranks that are captured, or `all`.
        sync: Whether the device is synchronized at both edges, so that no kernel is cut in two.
        runtime: The interface to CUDA; None: that of this process, if it has CUDA.

    Raises:
        TimingError: An argument is out of its range.
    """

    name_in_messages: ClassVar[str] = "the CUDA profiler's window"

    def __init__(
        self,
        enable: bool = True,
        start_step: int = 0,
        num_steps: int | None = None,
        ranks: Sequence[int] | Literal["all"] = (0,),
        sync: bool = True,
        *,
        runtime: CudaRuntime | None = None,
    ) -> None:
        super().__init__(enable=enable)
        check_whole_number("start_step", start_step, least=0)
        check_whole_number("num_steps", num_steps, least=1, or_none=True)
        self.start_step = start_step
        self.num_steps = num_steps
        self.ranks = validated_ranks(ranks)
        self.sync = sync
        self._runtime = runtime

    def begin(self, trainer: Any, pl_module: Any, entry_point: str) -> _Running | None:
        """Follows the run on the chosen ranks. A window that is the whole run opens at once."""
        if not takes_part(trainer, self.ranks, self.name_in_messages):
            return None
        runtime = self._runtime or cuda_runtime(trainer.strategy.root_device)
        if runtime is None and is_first(trainer.global_rank, self.ranks):
            warnings.warn(f"lightning_timing: {_NO_CUDA}", stacklevel=2)
        window = CaptureWindow(self.start_step, self.num_steps, self.sync, runtime)
        is_whole_run = self.start_step == 0 and self.num_steps is None
        with ExitStack() as undo:
            undo.callback(window.close)
            undo.callback(leave, trainer, window)
            session = self._follow(trainer, entry_point, window, outermost=True, listens=not is_whole_run)
            if is_whole_run:
                window.open()
            else:
                window.on_full = partial(session.followers.remove, window)
            undo.pop_all()
        return _Running(window, None if is_whole_run else session)

    def turn_off(self) -> None:
        """Stops the capture."""
        if self._running is not None:
            self._running.window.close()

    def end(self, trainer: Any, running: _Running, status: Status) -> None:
        """Closes the window, and warns of one that never opened."""
        try:
            leave(trainer, running.window)
        finally:
            running.window.close()
        if not running.window.was_opened and trainer.state.fn == "fit" and status == "completed":
            warn_of_run(
                f"the capture window never opened: the run had fewer than start_step + 1 = "
                f"{self.start_step + 1} training batches; lower start_step or train longer",
            )
