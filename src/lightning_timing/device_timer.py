"""Device time: events on the accelerator's stream at the edges of intervals, resolved later and never waited for.

Device time is what passes on the stream between two events: the work enqueued between them, and the time in which the
stream had nothing to do. Where the host is slower than the device, much of it is such idle time; around a wait for
data, which enqueues nothing, all of it is. So device time says where the device's time went, not how busy it was. How
busy it was follows from how far the host is ahead at each edge: see `device_overlap`.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from threading import get_ident
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from lightning_timing.clocks import Clock, monotonic_ns
from lightning_timing.device_overlap import UNTIMED_NS, times_between
from lightning_timing.host_lead import HostLead

if TYPE_CHECKING:
    from lightning_timing.device import Device, Event
    from lightning_timing.device_overlap import StretchTime

MAX_EVENTS: Final = 4096
"""Events in use at once. A thousand launches are what a CUDA device takes before the host has to wait for it."""

_LOOKS_AT_THE_END: Final = 200
_PAUSE_S: Final = 0.01

_Key = TypeVar("_Key")


class Mark:
    """A moment on the device's stream; one may end an interval and begin the next. Without an event it is untimed.

    Attributes:
        event: The event, or None.
        host_ns: When the host had recorded it.
        not_before_ns: A moment before that. The host may be held up between the event and its clock.
        order: The thread that recorded it and the stream. Where both are the same, the device reaches marks in the
            order in which they were recorded.
    """

    __slots__ = ("_pool", "event", "host_ns", "not_before_ns", "order")

    def __init__(
        self,
        event: Event | None,
        not_before_ns: int,
        host_ns: int,
        order: tuple[int, Hashable],
        pool: deque[Event],
    ) -> None:
        self.event = event
        self.not_before_ns = not_before_ns
        self.host_ns = host_ns
        self.order = order
        self._pool = pool

    def __del__(self) -> None:
        """Gives the event back once no interval uses it any more, whether it was resolved or dropped."""
        if self.event is not None:
            self._pool.append(self.event)


DeviceStretch = tuple[Mark, Mark]
"""A part of an interval, from one mark on the device to another."""


@dataclass(frozen=True)
class DeviceTimes(Generic[_Key]):
    """The device times of an iteration.

    Attributes:
        key: What the caller gave at its end.
        samples_ns: The device time of each timed interval, by measurement, in the order in which the intervals ended.
        untimed: The number of intervals without a device time, by measurement.
        ahead_ns: How far the host was ahead of the device at the iteration's end, an estimate; None where not known.
        overlapped_ns: By measurement, the host time of its intervals in which the device is known to have had work, an
            estimate: of those between the iteration's edges.
    """

    key: _Key
    samples_ns: dict[str, list[int]]
    untimed: Counter[str]
    ahead_ns: int | None
    overlapped_ns: dict[str, int]


@dataclass(frozen=True)
class _Iteration(Generic[_Key]):
    key: _Key
    end: Mark
    intervals: list[tuple[str, Sequence[DeviceStretch]]]
    edges: Sequence[Mark]

    def marks(self) -> set[Mark]:
        timed = {mark for _, stretches in self.intervals for stretch in stretches for mark in stretch}
        return {mark for mark in (*timed, *self.edges, self.end) if mark.event is not None}


class DeviceTimer(Generic[_Key]):
    """Times intervals on a device, iteration by iteration, without ever making the host wait in the loop.

    Put a `mark` at each edge, `add` each interval when it has ended, call `end_iteration`, and between iterations
    `collect` those that the device has completed meanwhile. While the current stream is being captured into a graph the
    timer asks nothing of the device, and intervals with an edge in that time are untimed. If the device refuses
    something, the timer switches itself off: everything from then on is untimed, and `reason` says why.

    Args:
        device: The device.
        clock: Reads the host's time, in nanoseconds.
        max_events: Events in use at once; beyond it marks are untimed.
        sleep: Sleeps for so many seconds.
    """

    def __init__(
        self,
        device: Device,
        *,
        clock: Clock = monotonic_ns,
        max_events: int = MAX_EVENTS,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._device = device
        self._clock = clock
        self._sleep = sleep
        self._events_left = max_events
        self._pool: deque[Event] = deque()
        self._intervals: list[tuple[str, Sequence[DeviceStretch]]] = []
        self._pending: deque[_Iteration[_Key]] = deque()
        self._lead = HostLead(device, clock)
        self._order: tuple[int, Hashable] | None = None
        self._has_one_order = True
        self._reason: str | None = None

    @property
    def device(self) -> Device:
        """The device."""
        return self._device

    @property
    def reason(self) -> str | None:
        """Why the timer switched itself off; None while it works."""
        return self._reason

    def mark(self) -> Mark:
        """Records an event on this thread's current stream. Untimed where that is not possible."""
        before_ns = self._clock()
        if self._reason is None:
            try:
                event, stream = self._record()
                order = get_ident(), stream
                mark = Mark(event, before_ns, self._clock(), order, self._pool)
                self._lead.look(mark)
                if event is not None and order != self._order:
                    self._has_one_order = self._order is None
                    self._order = order
            except Exception as error:  # noqa: BLE001  # whatever the device refuses: a timer must not end what it times
                self._go_off(error)
            else:
                return mark
        return Mark(None, before_ns, before_ns, (get_ident(), None), self._pool)

    def add(self, measurement: str, *stretches: DeviceStretch) -> None:
        """Takes an interval that has ended.

        Args:
            measurement: Its name.
            stretches: Its parts, each from one mark to another: one, or several where it was paused in between.
        """
        self._intervals.append((measurement, stretches))

    def end_iteration(self, key: _Key, end: Mark, edges: Sequence[Mark] = ()) -> None:
        """Closes an iteration, which has the intervals added since the last one.

        Args:
            key: Returned with the device times.
            end: The mark at its end.
            edges: The marks at its edges, in their order, the first at its beginning and the last at its end; empty
                where it is not asked how much of the host's time the device's work overlaps.
        """
        self._lead.end_iteration()
        self._pending.append(_Iteration(key, end, self._intervals, edges))
        self._intervals = []

    def end_outside(self, key: _Key) -> None:
        """Closes the intervals added since the last iteration, if any, which belong to no iteration.

        Args:
            key: Returned with the device times.
        """
        if self._intervals:
            _, stretches = self._intervals[-1]
            self.end_iteration(key, stretches[-1][1])

    def drop_iteration(self) -> None:
        """Forgets the intervals added since the last iteration."""
        self._intervals = []

    def collect(self) -> list[DeviceTimes[_Key]]:
        """Returns the iterations whose events the device has reached, in order. Does not wait."""
        resolved: list[DeviceTimes[_Key]] = []
        try:
            while self._pending and (self._reason is not None or self._is_ready(self._pending[0])):
                resolved.append(self._resolve(self._pending[0]))
                self._pending.popleft()
        except Exception as error:  # noqa: BLE001  # whatever the device refuses: a timer must not end what it times
            self._go_off(error)
            return resolved + self.collect()
        return resolved

    def drain(self, *, may_hang: bool = False) -> list[DeviceTimes[_Key]]:
        """Waits for the device, for once, and returns all iterations that are left. For the end of a run.

        Args:
            may_hang: Wait two seconds at most, as the device may never get there, which may be what ended the run. The
                iterations that it has not reached by then are untimed.
        """
        if self._pending and self._reason is None:
            try:
                if may_hang:
                    self._wait_a_little()
                elif not self._device.is_capturing():
                    self._device.synchronize()
            except Exception as error:  # noqa: BLE001  # whatever the device refuses: a timer must not end what it times
                self._go_off(error)
        resolved = self.collect()
        resolved += [self._resolve(iteration, timed=False) for iteration in self._pending]
        self._pending.clear()
        return resolved

    def _wait_a_little(self) -> None:
        for _ in range(_LOOKS_AT_THE_END):
            if self._is_ready(self._pending[-1]):
                return
            self._sleep(_PAUSE_S)

    def _record(self) -> tuple[Event | None, Hashable]:
        """Records an event. Returns it and its stream; None for both where it is not possible now."""
        if self._device.is_capturing():
            return None, None
        try:
            event = self._pool.pop()
        except IndexError:
            if self._events_left <= 0:
                return None, None
            self._events_left -= 1
            event = self._device.new_event()
        return event, self._device.record(event)

    def _is_ready(self, iteration: _Iteration[_Key]) -> bool:
        if self._device.is_capturing():
            return False
        end = iteration.end
        if end.event is not None:
            if not self._device.is_ready(end.event):
                return False
            if self._has_one_order:  # as nearly always, which spares a look at each of them
                return True
        return all(
            self._device.is_ready(mark.event)
            for mark in iteration.marks()
            if end.event is None or mark.order != end.order
        )

    def _resolve(self, iteration: _Iteration[_Key], timed: bool = True) -> DeviceTimes[_Key]:
        samples_ns: dict[str, list[int]] = {}
        untimed: Counter[str] = Counter()
        overlapped_ns: dict[str, int] = {}
        timed = timed and self._reason is None
        ahead_ns = self._lead.at(iteration.end, self._clock()) if timed else None
        known = {} if ahead_ns is None else times_between(iteration.edges, ahead_ns, self._device)
        for measurement, stretches in iteration.intervals:
            device_ns, overlap_ns = self._times_of(stretches, known) if timed else (UNTIMED_NS, None)
            if device_ns < 0:  # also where it ended on another stream, which was ahead of the one on which it began
                untimed[measurement] += 1
            else:
                samples_ns.setdefault(measurement, []).append(device_ns)
            if overlap_ns is not None:
                overlapped_ns[measurement] = overlapped_ns.get(measurement, 0) + overlap_ns
        ahead_ns = None if ahead_ns is None else max(ahead_ns, 0)
        return DeviceTimes(iteration.key, samples_ns, untimed, ahead_ns, overlapped_ns)

    def _times_of(
        self, stretches: Sequence[DeviceStretch], known: Mapping[DeviceStretch, StretchTime]
    ) -> tuple[int, int | None]:
        """Returns an interval's time on the device, below zero where it has none, and what is overlapped, if known."""
        device_ns = 0
        overlapped_ns: int | None = None
        for stretch in stretches:
            found = known.get(stretch)
            if found is not None:
                device_ns += found[0]
                overlapped_ns = found[1] if overlapped_ns is None else overlapped_ns + found[1]
                continue
            start, end = stretch
            if start.event is None or end.event is None:
                device_ns += UNTIMED_NS
            else:
                device_ns += self._device.elapsed_ns(start.event, end.event)
        return device_ns, overlapped_ns

    def _go_off(self, error: Exception) -> None:
        self._reason = f"device time is off, since the device refused: {error}"
