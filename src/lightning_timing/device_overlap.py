"""How much of an iteration's host time the device's work overlaps, phase by phase.

What the host does while the device has work holds nothing up, or is the wait for it. A progress bar that shows the loss
waits at every batch: its time is the device's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lightning_timing.device import Device
    from lightning_timing.device_timer import DeviceStretch, Mark

LAUNCH_NS: Final = 100_000
"""A lead up to this may be what it takes an idle device to begin: microseconds with CUDA, more in virtual machines."""


StretchTime = tuple[int, int]
"""Of a stretch: the time on the device, and the host time in which the device is known to have had work, both in ns."""


def times_between(edges: Sequence[Mark], ahead_ns: int, device: Device) -> dict[DeviceStretch, StretchTime]:
    """Returns what is known of each stretch between two edges.

    At an edge at which the host is ahead, the device has work until it gets there itself, whatever the host does
    meanwhile. So of the host's time up to the next edge as much is overlapped as the host is ahead. It may be more,
    since work that is enqueued within a stretch is not known to be there.

    Args:
        edges: The marks at an iteration's edges, in their order.
        ahead_ns: How far the host was ahead at the last one.
        device: The device, which has reached them.

    Returns:
        The times of each stretch, and of that from the first edge to the last. Nothing is known of those before an edge
        without an event or on another stream.
    """
    times: dict[DeviceStretch, StretchTime] = {}
    whole_ns = 0
    for place in range(len(edges) - 1, 0, -1):
        start, end = edges[place - 1], edges[place]
        if start.event is None or start.order != end.order:
            return times
        device_ns = device.elapsed_ns(start.event, end.event)
        overlapped_ns = host_ns = end.host_ns - start.host_ns
        ahead_ns += host_ns - device_ns
        if ahead_ns - LAUNCH_NS < host_ns:
            overlapped_ns = ahead_ns - LAUNCH_NS if ahead_ns > LAUNCH_NS else 0
        whole_ns += overlapped_ns
        times[start, end] = device_ns, overlapped_ns
    if times:
        first, last = edges[0], edges[-1]
        times[first, last] = device.elapsed_ns(first.event, last.event), whole_ns
    return times
