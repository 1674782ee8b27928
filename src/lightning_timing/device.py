"""The interface to the accelerator, and its implementation by torch, which is imported only inside functions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch

Event = Any
"""An event as its device makes it: opaque, and of use to that device alone."""


class Device(Protocol):
    """One accelerator. While `is_capturing`, nothing else may be called: it would be refused, or spoil the capture."""

    def synchronize(self) -> None:
        """Waits until the device has done all that was enqueued on any of its streams."""

    def is_capturing(self) -> bool:
        """Whether this thread's current stream is being captured into a graph."""

    def new_event(self) -> Event:
        """Makes an event that can be timed."""

    def record(self, event: Event) -> Hashable:
        """Enqueues the event on this thread's current stream of the device. Returns what identifies that stream."""

    def is_ready(self, event: Event) -> bool:
        """Whether the device has reached the event. Does not wait."""

    def elapsed_ns(self, start: Event, end: Event) -> int:
        """The time on the device between two events that are ready, in nanoseconds."""


class TorchDevice:
    """An accelerator, used through torch.

    Args:
        device: Which one. Not necessarily the current one.
        api: The module that returns its current stream and synchronizes it: `torch.accelerator` or `torch.cuda`.
        new_event: Makes a timed event of this device.
        is_capturing: Whether this thread's current stream is being captured.
    """

    def __init__(
        self, device: torch.device, api: Any, new_event: Callable[[], Event], is_capturing: Callable[[], bool]
    ) -> None:
        # torch takes a device to pieces each time it is given one, and a number as it is.
        self._where = device if device.index is None else device.index
        self._api = api
        self.new_event = new_event
        self.is_capturing = is_capturing

    def synchronize(self) -> None:
        """Waits until the device has done all that was enqueued on any of its streams."""
        self._api.synchronize(self._where)

    def record(self, event: Event) -> Hashable:
        """Enqueues the event on this thread's current stream of the device, whichever device is current.

        Returns:
            The stream's identifier.
        """
        stream = self._api.current_stream(self._where)
        event.record(stream)
        identifier: int = stream.stream_id
        return identifier

    def is_ready(self, event: Event) -> bool:
        """Whether the device has reached the event. Does not wait."""
        return bool(event.query())

    def elapsed_ns(self, start: Event, end: Event) -> int:
        """The time on the device between two events that are ready, in nanoseconds, to about half a microsecond."""
        milliseconds: float = start.elapsed_time(end)
        return round(milliseconds * 1e6)


def torch_device(root_device: torch.device | None) -> Device | None:
    """Returns the accelerator that a strategy works on, through torch's device-agnostic interface where there is one.

    Args:
        root_device: The strategy's device.

    Returns:
        None for the CPU, for no device, and for a type of which torch has no events.
    """
    if root_device is None or root_device.type == "cpu":
        return None
    import torch

    is_capturing = _capturing_of(_module_of(root_device.type))
    if hasattr(torch, "accelerator"):
        if not torch.accelerator.is_available() or _accelerator_type() != root_device.type:
            return None
        return TorchDevice(
            root_device, torch.accelerator, partial(torch.Event, root_device, enable_timing=True), is_capturing
        )
    if root_device.type != "cuda" or not torch.cuda.is_available():
        return None
    return TorchDevice(root_device, torch.cuda, partial(torch.cuda.Event, enable_timing=True), is_capturing)


def synchronize(device: Device | None = None) -> None:
    """Waits for a device, unless this thread's current stream is being captured into a graph, when CUDA forbids it.

    Args:
        device: The device; by default the accelerator that is current in torch, if there is one and it was used.
    """
    if device is not None:
        if not device.is_capturing():
            device.synchronize()
        return
    if "torch" not in sys.modules:
        return
    module = _module_of(_accelerator_type())
    # A device that was not used yet has nothing to wait for, and asking would set it up, in a forked worker even fail.
    if module is not None and getattr(module, "is_initialized", _yes)() and not _capturing_of(module)():
        module.synchronize()


def _accelerator_type() -> str:
    import torch

    if not hasattr(torch, "accelerator"):
        return "cuda"
    device = torch.accelerator.current_accelerator()
    return "cpu" if device is None else device.type


def _module_of(device_type: str) -> Any:
    """Returns torch's module for a type of accelerator, such as `torch.cuda`; None where there is none."""
    import torch

    return None if device_type == "cpu" else getattr(torch, device_type, None)


def _capturing_of(module: Any) -> Callable[[], bool]:
    """Returns a function that says whether the current stream is being captured: never, where there are no graphs."""
    is_capturing: Callable[[], bool] = getattr(module, "is_current_stream_capturing", _no)
    return is_capturing


def _yes() -> bool:
    return True


def _no() -> bool:
    return False
