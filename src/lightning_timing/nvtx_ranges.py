"""The process-wide NVTXRangeWrapper: named ranges in the NVTX domain `lightning_timing`, from anywhere in a program.

Besides what a user calls there are phases, for the callbacks: ranges that user code cannot close, and that put the
stage (as category) and the batch index (as payload) on every range opened inside them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from lightning_timing.device import synchronize
from lightning_timing.errors import MisuseError
from lightning_timing.failsafe import Failsafe, warn_once
from lightning_timing.no_op import nothing
from lightning_timing.nvtx_domain import RangeSink, open_domain
from lightning_timing.range_attributes import PHASE_COLORS, USER_COLOR
from lightning_timing.range_recorder import RangeRecorder

if TYPE_CHECKING:
    from lightning_timing.range_stack import OpenRange


_NO_SINK = RangeSink(nothing, nothing, nothing, nothing, nothing, None)


class NVTXRangeWrapper:
    """Marks ranges of code for Nsight Systems and other NVTX tools.

    There is one in a process: `NVTXRangeWrapper()` always returns it, and with arguments it is enabled too. Until it is
    enabled, and while no tool is attached that would take the ranges, pushing and popping does nothing. Inside a region
    compiled by torch.compile they leave no trace.

    Args:
        *args: If any are given, as for `enable`.
        **kwargs: Likewise.

    Raises:
        MisuseError: If it is to be enabled and is enabled already.
    """

    _on_switch: ClassVar[Callable[[], None]] = staticmethod(nothing)
    """Called whenever pushing and popping begins or ceases to have an effect. Set by `span`."""

    __slots__ = ("_enabled", "_failsafe", "_pushes_phases", "_recorder")

    _instance: ClassVar[NVTXRangeWrapper | None] = None
    _enabled: bool
    _failsafe: Failsafe
    """Handles failures while the wrapper is enabled."""
    _pushes_phases: bool
    """Whether a callback enabled it, which pushes the phases of its run."""
    _recorder: RangeRecorder | None
    """Takes the ranges; None while pushing and popping has no effect."""

    def __new__(cls, *args: bool, **kwargs: bool) -> NVTXRangeWrapper:
        """Returns the one instance."""
        instance = cls._instance
        if instance is None:
            instance = cls._instance = super().__new__(cls)
            instance._enabled = instance._pushes_phases = False
            instance._failsafe = Failsafe("NVTX", strict=True)
            instance._recorder = None
        return instance

    def __init__(self, *args: bool, **kwargs: bool) -> None:
        if args or kwargs:
            self.enable(*args, **kwargs)

    def __reduce__(self) -> tuple[type[NVTXRangeWrapper], tuple[()]]:
        """Copies and unpickles as the one instance of the process that does so."""
        return NVTXRangeWrapper, ()

    @property
    def is_enabled(self) -> bool:
        """Whether it is enabled."""
        return self._enabled

    @property
    def _is_recording(self) -> bool:
        """Whether pushing and popping has any effect: enabled, and a tool takes the ranges or an option is on."""
        return self._recorder is not None

    def enable(
        self, sync_on_push: bool = False, sync_on_pop: bool = False, keep_track_of_range_order: bool = False
    ) -> None:
        """Lets `range_push` and `range_pop` take effect.

        Warns, once in a process, if a tool is attached that would get no ranges, or if `nvtx` is not installed.

        Args:
            sync_on_push: Wait for the device before a range is opened.
            sync_on_pop: Wait for the device before a range is closed.
            keep_track_of_range_order: Note where each range is pushed, check the names given to `range_pop`, and raise
                on misuse, whether a tool is attached or not. Otherwise the order is not checked.

        Raises:
            MisuseError: If it is enabled already.
        """
        if self._enabled:
            raise MisuseError("NVTXRangeWrapper is enabled already: call disable() before enabling it again")
        status = open_domain()
        if status.problem is not None:
            warn_once(status.problem)
        if status.sink is not None or sync_on_push or sync_on_pop or keep_track_of_range_order:
            recorder = RangeRecorder(
                status.sink or _NO_SINK,
                tracked=keep_track_of_range_order,
                sync_on_push=synchronize if sync_on_push else None,
                sync_on_pop=synchronize if sync_on_pop else None,
            )
            self._switch_to(recorder)
        self._failsafe = Failsafe("NVTX", strict=keep_track_of_range_order, turn_off=self._give_up)
        self._enabled = True

    def disable(self) -> None:
        """Closes the ranges that this thread has open, and makes every method a no-op again. May be called twice."""
        self._enabled = self._pushes_phases = False
        recorder = self._switch_to(None)
        if recorder is not None:
            with self._failsafe:
                recorder.close_all()

    def _switch_to(self, recorder: RangeRecorder | None) -> RangeRecorder | None:
        """Sends ranges to another recorder, or to none. Returns the previous recorder."""
        before, self._recorder = self._recorder, recorder
        try:
            type(self)._on_switch()
        except BaseException:  # of a signal's handler: ranges are recorded everywhere or nowhere
            self._recorder = None
            raise
        return before

    def _give_up(self) -> None:
        recorder = self._switch_to(None)
        if recorder is not None:
            recorder.close_all(quietly=True)

    def range_push(self, name: str) -> None:
        """Opens a range on the calling thread, inside those it has open.

        Args:
            name: The range's name.

        Raises:
            MisuseError: If the order of ranges is tracked and the name is empty, too long or cannot be written.
        """
        recorder = self._recorder
        if recorder is not None:
            try:
                recorder.push(name)
            except Exception as error:  # noqa: BLE001  # whatever it is: a range must not end what it marks
                self._failsafe.fail(error)

    def range_pop(self, expected_name: str | None = None) -> None:
        """Closes the range that the calling thread opened last.

        Args:
            expected_name: The name it should have. Compared only if the order of ranges is tracked.

        Raises:
            RangeMismatchError: If the order of ranges is tracked, and the thread has no range open that it may close,
                or the innermost one has another name. It is left open.
        """
        recorder = self._recorder
        if recorder is not None:
            try:
                recorder.pop(expected_name)
            except Exception as error:  # noqa: BLE001  # whatever it is: a range must not end what it marks
                self._failsafe.fail(error)

    def _unwind(self, name: str) -> None:
        """Closes the calling thread's ranges down to the innermost one of this name. For `span`, when its block raises.

        Args:
            name: The range's name.
        """
        recorder = self._recorder
        if recorder is not None:
            with self._failsafe:
                recorder.unwind(name)

    def _push_phase(self, phase: str, stage: str, batch_idx: int) -> None:
        """Opens a phase on the calling thread. For the callbacks.

        Args:
            phase: Its name.
            stage: The category of it and of the ranges inside it.
            batch_idx: The payload of it and of the ranges inside it.
        """
        recorder = self._recorder
        if recorder is not None:
            recorder.push_phase(phase, stage, batch_idx)

    def _pop_phase(self) -> None:
        """Closes the innermost phase of the calling thread, and first, with a warning, what was left open inside it.

        For the callbacks. Never raises for what user code did; does nothing where no phase is open.
        """
        recorder = self._recorder
        if recorder is not None:
            recorder.pop_phase()

    def _close_open_ranges(self) -> list[OpenRange]:
        """Closes this thread's ranges, phases included, innermost first. For the end of a run, however it ends.

        Returns:
            The ranges, phases aside, that user code left open since the wrapper was enabled or this was last called.
            Those of other threads are still open: only the thread that opened a range can close it.
        """
        return [] if self._recorder is None else self._recorder.close_all()

    def _forget_parent(self) -> None:
        """Forgets the open ranges, in a forked child: only the parent can close them."""
        if self._recorder is not None:
            self._recorder.forget_open()


NVTX_RANGES: Final = NVTXRangeWrapper()
"""The one instance, for modules of this package that use it on hot paths."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=NVTX_RANGES._forget_parent)


def start_process_range(name: str) -> Callable[[], object]:
    """Opens a range in the domain that belongs to no thread: it may cross others and close on any thread.

    It is opened whether or not the wrapper is enabled, and does nothing where no tool would take it.

    Args:
        name: The range's name.

    Returns:
        A function that closes the range. To be called once.
    """
    sink = open_domain().sink or _NO_SINK
    return partial(sink.end, sink.start(sink.prepare(name, None, PHASE_COLORS.get(name, USER_COLOR))))
