"""NVTXCallback: pushes a Trainer's phases as nested NVTX ranges."""

from __future__ import annotations

import warnings
from contextlib import ExitStack, nullcontext
from typing import Any, ClassVar, Final, NamedTuple

from lightning_timing.callbacks.followers import PhaseFollower
from lightning_timing.callbacks.phase_callback import PhaseCallback
from lightning_timing.callbacks.session import Session, leave
from lightning_timing.failsafe import warn_of_run
from lightning_timing.measured_iterations import IterationLabel
from lightning_timing.nvtx_ranges import NVTX_RANGES
from lightning_timing.phases import FIRST_DATA_WAIT, ITERATION, STAGES, TRAIN
from lightning_timing.record import Status

_ENABLED_BEFORE: Final = "the NVTXRangeWrapper was enabled before the run, so no phases are pushed: disable() it first"


class RangeFollower(PhaseFollower):
    """Turns phases into ranges: one around the iteration, the phases inside it, with the batch's index as payload.

    The index is that of the batch that is being fetched or worked on, counted in the loop from 0.
    """

    def __init__(self) -> None:
        self._stage = TRAIN
        self._batch_idx = dict.fromkeys(STAGES, 0)

    def begin_stage(self, stage: str) -> None:
        """Notes the stage, the category of the ranges that follow."""
        self._stage = stage

    def begin_first_data_wait(self, resumed: bool) -> None:
        """Opens the range of the wait for the first batch, as a new loop over batches begins."""
        self._batch_idx[self._stage] = 0
        NVTX_RANGES._push_phase(FIRST_DATA_WAIT, self._stage, 0)

    def end_first_data_wait(self) -> None:
        """Closes the range of the wait for the first batch."""
        NVTX_RANGES._pop_phase()

    def begin_iteration(self) -> None:
        """Opens the iteration's range."""
        NVTX_RANGES._push_phase(ITERATION, self._stage, self._batch_idx[self._stage])

    def close_iteration(self, at_last: bool) -> None:
        """Closes the iteration's range."""
        NVTX_RANGES._pop_phase()

    def count_iteration(self, label: IterationLabel) -> None:
        """Notes the index of the next batch."""
        # Of several loaders one after the other each begins at 0 again, while the loop goes on.
        of_training = label.batch_idx if self._stage == TRAIN else self._batch_idx[self._stage]
        self._batch_idx[self._stage] = of_training + 1

    def drop_iteration(self) -> None:
        """Closes the iteration's range."""
        NVTX_RANGES._pop_phase()

    def enter(self, phase: str, since_last: bool) -> None:
        """Opens a phase's range."""
        NVTX_RANGES._push_phase(phase, self._stage, self._batch_idx[self._stage])

    def leave(self, paused: bool) -> None:
        """Closes the innermost phase's range."""
        NVTX_RANGES._pop_phase()


class _Running(NamedTuple):
    """What lasts as long as a run; both None where ranges have no effect."""

    follower: RangeFollower | None
    session: Session | None


class NVTXCallback(PhaseCallback):
    """Pushes the phases of every iteration as nested ranges in the NVTX domain `lightning_timing`.

    It enables the `NVTXRangeWrapper` when a run starts and disables it when the run ends, however it ends. Where no
    tool takes the ranges and no option below is set, it does not follow the phases at all.

    If the `NVTXRangeWrapper` is enabled already when a run starts, this callback pushes no phases and leaves the
    wrapper alone. It warns of that, unless another callback enabled the wrapper and pushes the phases.

    Args:
        enable: Whether it does anything at all.
        sync_on_push: Wait for the device before a range is opened.
        sync_on_pop: Wait for the device before a range is closed.
        keep_track_of_range_order: Note where each range is pushed, check the names given to `range_pop`, raise on
            misuse, and list at the end what was left open.
    """

    name_in_messages: ClassVar[str] = "NVTX"

    def __init__(
        self,
        enable: bool = True,
        sync_on_push: bool = False,
        sync_on_pop: bool = False,
        keep_track_of_range_order: bool = False,
    ) -> None:
        super().__init__(enable=enable)
        self.sync_on_push = sync_on_push
        self.sync_on_pop = sync_on_pop
        self.keep_track_of_range_order = keep_track_of_range_order

    @property
    def strict(self) -> bool:
        """Whether failures are raised, as in `debug`."""
        return self.keep_track_of_range_order

    def begin(self, trainer: Any, pl_module: Any, entry_point: str) -> _Running | None:
        """Enables the wrapper, and follows the phases if ranges have any effect."""
        if NVTX_RANGES.is_enabled:
            if NVTX_RANGES._is_recording and not NVTX_RANGES._pushes_phases and not trainer.global_rank:
                warn_of_run(_ENABLED_BEFORE)
            return None
        with warnings.catch_warnings() if trainer.global_rank else nullcontext():
            if trainer.global_rank:
                warnings.simplefilter("ignore")  # rank 0 says it for all
            NVTX_RANGES.enable(self.sync_on_push, self.sync_on_pop, self.keep_track_of_range_order)
        NVTX_RANGES._pushes_phases = True
        self._failsafe = NVTX_RANGES._failsafe  # the same, whether it is a user's call that fails or this
        if not NVTX_RANGES._is_recording:
            return _Running(None, None)
        follower = RangeFollower()
        with ExitStack() as undo:
            undo.callback(NVTX_RANGES.disable)
            undo.callback(leave, trainer, follower)
            session = self._follow(trainer, entry_point, follower, outermost=True)
            undo.pop_all()
        return _Running(follower, session)

    def end(self, trainer: Any, running: _Running, status: Status) -> None:
        """Closes every range, says which were left open, and disables the wrapper."""
        try:
            if running.follower is not None:
                leave(trainer, running.follower)
            left_open = NVTX_RANGES._close_open_ranges()
        finally:
            NVTX_RANGES.disable()
        if left_open and status == "completed":
            listing = "\n".join(f"  {left}" for left in left_open)
            warn_of_run(f"NVTX ranges were left open at the end of the run:\n{listing}")
