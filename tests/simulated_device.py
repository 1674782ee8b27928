"""A simulated asynchronous accelerator behind the same seam as a real one, on a clock that tests set.

It knows what a real one does that a timer can get wrong: kernels run in order on their stream, after the host has gone
on; events become ready when the stream gets to them; while a stream is being captured, kernels are only noted down, and
whatever else is asked of the device in that thread is refused and spoils the capture.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

MS = 1_000_000


class SimulatedClock:
    """The host's clock. Time passes only where a test says so."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000_000

    def __call__(self) -> int:
        return self.now_ns

    def work(self, ms: float) -> None:
        """The host is busy."""
        self.now_ns += round(ms * MS)


@dataclass(eq=False)
class Stream:
    """A queue of the device.

    Attributes:
        free_ns: When it will have done all that is in it.
        captured: The kernels noted down while it is being captured, in milliseconds; None while it is not.
        spoilt: Whether something forbidden was asked while it was being captured.
    """

    free_ns: int = 0
    captured: list[float] | None = None
    spoilt: bool = False

    @property
    def stream_id(self) -> int:
        """As a stream of torch has it."""
        return id(self)


@dataclass(eq=False)
class SimulatedEvent:
    """An event, and when its stream gets to it: None until it is recorded."""

    reached_ns: int | None = None


@dataclass
class SimulatedDevice:
    """An accelerator.

    Attributes:
        clock: The host's clock.
        default: The stream that is current unless a test says otherwise.
        current: This thread's current stream.
        events_made: Events made so far.
        queries: Questions asked of events so far.
        synchronizations: Times that the host waited for the device.
        failure: Raised by whatever is asked next, and by all after it, as a device does after an illegal access.
        clock_rate: How fast the device's clock runs, seen from the host's.
        latency_ns: What an event takes to be reached where nothing is enqueued before it.
    """

    clock: SimulatedClock
    default: Stream = field(default_factory=Stream)
    events_made: int = 0
    queries: int = 0
    synchronizations: int = 0
    failure: Exception | None = None
    clock_rate: float = 1.0
    latency_ns: int = 0

    def __post_init__(self) -> None:
        self.current = self.default
        self._streams = [self.default]

    # ---- what a training does ----

    def launch(self, kernel_ms: float) -> None:
        """Enqueues a kernel on the current stream. The host goes on at once."""
        stream = self.current
        if stream.captured is not None:
            stream.captured.append(kernel_ms)
        else:
            stream.free_ns = max(stream.free_ns, self.clock.now_ns) + round(kernel_ms * MS)

    def new_stream(self) -> Stream:
        self._streams.append(Stream())
        return self._streams[-1]

    @contextmanager
    def on(self, stream: Stream) -> Iterator[None]:
        """Makes a stream current."""
        before, self.current = self.current, stream
        yield
        self.current = before

    @contextmanager
    def capture(self) -> Iterator[list[float]]:
        """Captures what is enqueued into a graph, on a stream of its own. Fails in the end if it was spoilt."""
        with self.on(self.new_stream()) as _:
            stream = self.current
            stream.captured = graph = []
            yield graph
            stream.captured = None
        if stream.spoilt:
            raise RuntimeError("the capture was invalidated")

    def replay(self, graph: list[float]) -> None:
        for kernel_ms in graph:
            self.launch(kernel_ms)

    # ---- the seam ----

    def is_capturing(self) -> bool:
        return self.current.captured is not None

    def synchronize(self) -> None:
        self._ask()
        self.synchronizations += 1
        self.clock.now_ns = max(self.clock.now_ns, *(stream.free_ns for stream in self._streams))

    def new_event(self) -> SimulatedEvent:
        self._ask()
        self.events_made += 1
        return SimulatedEvent()

    def record(self, event: SimulatedEvent) -> Stream:
        self._ask()
        event.reached_ns = max(self.current.free_ns, self.clock.now_ns + self.latency_ns)
        self.current.free_ns = max(self.current.free_ns, event.reached_ns)
        return self.current

    def is_ready(self, event: SimulatedEvent) -> bool:
        self._ask()
        self.queries += 1
        return self._reached_ns(event) <= self.clock.now_ns

    def elapsed_ns(self, start: SimulatedEvent, end: SimulatedEvent) -> int:
        self._ask()
        start_ns, end_ns = self._reached_ns(start), self._reached_ns(end)
        if max(start_ns, end_ns) > self.clock.now_ns:
            raise RuntimeError("both events must be completed before their distance can be told")
        return round((end_ns - start_ns) * self.clock_rate)

    @staticmethod
    def _reached_ns(event: SimulatedEvent) -> int:
        assert event.reached_ns is not None, "the event was never recorded"
        return event.reached_ns

    def _ask(self) -> None:
        if self.failure is not None:
            raise self.failure
        if self.is_capturing():
            self.current.spoilt = True
            raise RuntimeError("operation not permitted when stream is capturing")
