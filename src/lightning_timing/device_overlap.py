"""How much of an iteration's host time passes while the device has work, phase by phase.

In that time the host holds nothing up, or it waits for the device. A progress bar that shows the loss waits for it at
every batch, for example: what looks like the progress bar's time is the device's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lightning_timing.device import Device
    from lightning_timing.device_timer import DeviceStretch, Mark

LAUNCH_NS: Final = 100_000
"""What an idle device may take to begin new work: microseconds with CUDA, more in virtual machines. Where the host is
ahead by no more than that, the device need not have had any work."""

UNTIMED_NS: Final = -(2**62)
"""In place of a device time that is not known. Stays below zero whatever is added."""

StretchTime = tuple[int, int]
"""Of a stretch: the time on the device, and the host time in which the device is known to have had work, both in ns."""


def times_between(edges: Sequence[Mark], ahead_ns: int, device: Device) -> dict[DeviceStretch, StretchTime]:
    """Returns what is known of each stretch between two edges.

    Where the host is ahead at an edge, the device has work for as long as the host is ahead, whatever the host does
    meanwhile. So that much of the host's time up to the next edge is overlapped. It may be more, since it is not known
    whether further work is enqueued before that edge.

    Args:
        edges: The marks at an iteration's edges, in their order; the last one has an event.
        ahead_ns: How far the host was ahead at the last one.
        device: The device, which has reached all of them.

    Returns:
        The times of each stretch that begins at an edge with an event, and of the one from the first edge to the last,
        whose overlap is the sum of theirs.
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
