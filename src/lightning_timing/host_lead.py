"""How far the host is ahead of the device, by marks whose events the device is seen to reach."""

from __future__ import annotations

from collections import deque
from threading import get_ident
from typing import TYPE_CHECKING, NamedTuple

from lightning_timing.clocks import Clock

if TYPE_CHECKING:
    from lightning_timing.device import Device
    from lightning_timing.device_timer import Mark


class _Sighting(NamedTuple):
    """A mark that the device was seen to have reached.

    Attributes:
        mark: The mark.
        not_before_ns: When the device had not reached it yet, on the host's clock.
        not_after_ns: When it had.
        iteration: The number of the iteration in which the mark was recorded.
    """

    mark: Mark
    not_before_ns: int
    not_after_ns: int
    iteration: int

    @property
    def width_ns(self) -> int:
        """How well the moment is known at which the device reached it."""
        return self.not_after_ns - self.not_before_ns


class HostLead:
    """Estimates the host's lead at the ends of iterations.

    From one mark to the next the lead grows by what passed on the device and shrinks by what passed on the host. The
    clocks of the two drift apart by some microseconds a second, which would add up. So one mark at a time is watched:
    each later one asks whether the device has reached it, and the lead at it lies between what the last two answers
    say. The best of these in an iteration corrects the estimate.

    Args:
        device: The device.
        clock: Reads the host's time, in nanoseconds.
    """

    def __init__(self, device: Device, clock: Clock) -> None:
        self._device = device
        self._clock = clock
        self._thread = get_ident()  # the loop's
        self._iteration = 0
        self._watched: Mark | None = None
        self._watched_in = 0
        self._unready_ns = 0
        self._sightings: deque[_Sighting] = deque()
        self._last: Mark | None = None
        self._lead_ns = 0

    def look(self, latest: Mark) -> None:
        """Asks whether the device has reached the watched mark, and if so watches the latest one from now on.

        Only marks of the loop's own thread count, as those of others may be on a stream with another backlog.

        Args:
            latest: A mark that was recorded just now.
        """
        if latest.event is None or latest.order[0] != self._thread:
            return
        watched = self._watched
        if watched is not None:
            if not self._device.is_ready(watched.event):
                self._unready_ns = latest.host_ns
                return
            self._note(_Sighting(watched, self._unready_ns, self._clock(), self._watched_in))
        self._watched, self._watched_in, self._unready_ns = latest, self._iteration, latest.not_before_ns

    def _note(self, sighting: _Sighting) -> None:
        sightings = self._sightings
        if sightings and sightings[-1].iteration == sighting.iteration:
            if sightings[-1].width_ns <= sighting.width_ns:
                return
            sightings.pop()
        sightings.append(sighting)

    def end_iteration(self) -> None:
        """Notes that the marks from now on belong to the next iteration."""
        self._iteration += 1

    def at(self, end: Mark, seen_ready_ns: int) -> int | None:
        """Returns the host's lead at the end of an iteration, in nanoseconds. To be called for them in their order.

        It is below 0 where the device had reached that mark while the host was held up on the way to its clock.

        Args:
            end: The mark at its end, which the device has reached.
            seen_ready_ns: When it was known to have reached it, on the host's clock.

        Returns:
            None at an untimed mark.
        """
        if end.event is None:
            return None
        while self._sightings and self._sightings[0].mark.host_ns <= end.host_ns:
            sighting = self._sightings.popleft()
            if sighting.mark.order == end.order:
                self._go_on_to(sighting.mark, sighting.not_before_ns, sighting.not_after_ns)
        self._go_on_to(end, end.not_before_ns, seen_ready_ns)
        return self._lead_ns

    def _go_on_to(self, mark: Mark, not_before_ns: int, not_after_ns: int) -> None:
        at_least_ns, at_most_ns = not_before_ns - mark.host_ns, not_after_ns - mark.host_ns
        if self._last is None:
            self._lead_ns = at_least_ns
        else:
            device_ns = self._device.elapsed_ns(self._last.event, mark.event)
            self._lead_ns += device_ns - (mark.host_ns - self._last.host_ns)
        self._lead_ns = min(max(self._lead_ns, at_least_ns), at_most_ns)
        self._last = mark
