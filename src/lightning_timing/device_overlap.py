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


UNTIMED_NS: Final = -(2**62)
"""In place of a device time that is not known. Stays below zero whatever is added."""

StretchTime = tuple[int, int]
"""Of a stretch: the time on the device, and the host time in which the device is known to have had work, both in ns."""


def times_between(edges: Sequence[Mark], ahead_ns: int, device: Device) -> dict[DeviceStretch, StretchTime]:
    """Returns what is known of each stretch between two edges.

    At an edge at which the host is ahead, the device has work until it gets there itself, whatever the host does
    meanwhile. So of the host's time up to the next edge as much is overlapped as the host is ahead. It may be more,
    since work that is enqueued within a stretch is not known to be there.

    Args:
        edges: The marks at an iteration's edges, in their order; the last one has an event.
        ahead_ns: How far the host was ahead at the last one.
        device: The device, which has reached all of them.

    Returns:
        The times of each stretch that begins at an edge with an event, and of that from the first edge to the last, of
        which the overlap is that of these together.
    """
    times: dict[DeviceStretch, StretchTime] = {}
    if not edges:
        return times
    whole_ns = 0
    later = edges[-1]
    for place in range(len(edges) - 1, 0, -1):
        start, end = edges[place - 1], edges[place]
        if start.event is None:
            continue
        device_ns = device.elapsed_ns(start.event, later.event)
        ahead_ns += later.host_ns - start.host_ns - device_ns
        overlapped_ns = end.host_ns - start.host_ns
        if ahead_ns - LAUNCH_NS < overlapped_ns:
            overlapped_ns = ahead_ns - LAUNCH_NS if ahead_ns > LAUNCH_NS else 0
        whole_ns += overlapped_ns
        times[start, end] = device_ns if later is end else UNTIMED_NS, overlapped_ns
        later = start
    if times:
        first, last = edges[0], edges[-1]
        device_ns = UNTIMED_NS if first.event is None else device.elapsed_ns(first.event, last.event)
        times[first, last] = device_ns, whole_ns
    return times
