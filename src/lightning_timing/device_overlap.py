"""How much of an iteration's host time the device's work overlaps, phase by phase.

What the host does while the device has work holds nothing up, or is the wait for it. A progress bar that shows the loss
waits at every batch: its time is the device's.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lightning_timing.device import Device
    from lightning_timing.device_timer import DeviceStretch, Mark

LAUNCH_NS: Final = 100_000
"""A lead up to this may be what it takes an idle device to begin: microseconds with CUDA, more in virtual machines."""


class ElapsedTimes(dict["DeviceStretch", int]):
    """The device time of stretches, in nanoseconds. The device is asked once for each, however many intervals have it.

    Args:
        device: The device.
    """

    def __init__(self, device: Device) -> None:
        super().__init__()
        self._device = device

    def __missing__(self, stretch: DeviceStretch) -> int:
        start, end = stretch
        self[stretch] = self._device.elapsed_ns(start.event, end.event)
        return self[stretch]


def overlaps_ns_of(edges: Sequence[Mark], ahead_ns: int, elapsed_ns: ElapsedTimes) -> dict[DeviceStretch, int]:
    """Returns, of each stretch between two edges, the host time in which the device is known to have had work.

    At an edge at which the host is ahead, the device has work until it gets there itself, whatever the host does
    meanwhile. So of the host's time up to the next edge as much is overlapped as the host is ahead. It may be more,
    since work that is enqueued within a stretch is not known to be there.

    Args:
        edges: The marks at an iteration's edges, in their order.
        ahead_ns: How far the host was ahead at the last one.
        elapsed_ns: The device time of stretches.

    Returns:
        The overlap of each stretch, and of that from the first edge to the last, in nanoseconds. Nothing is known of
        those before an edge without an event or on another stream.
    """
    overlaps_ns: dict[DeviceStretch, int] = {}
    for stretch in reversed(list(pairwise(edges))):
        start, end = stretch
        if start.event is None or start.order != end.order:
            return overlaps_ns
        host_ns = end.host_ns - start.host_ns
        ahead_ns += host_ns - elapsed_ns[stretch]
        overlaps_ns[stretch] = min(host_ns, max(ahead_ns - LAUNCH_NS, 0))
    if overlaps_ns:
        overlaps_ns[edges[0], edges[-1]] = sum(overlaps_ns.values())
    return overlaps_ns
