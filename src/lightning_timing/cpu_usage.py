"""CPU usage of one measurement: its own process exactly, children and machine by sampling, none of it on the hot path.

The training thread reads two clocks at each edge of an interval. A daemon thread reads the CPU times of the children
and of the machine every second or more, and knows how much of each such window the measurement filled.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Final

from lightning_timing.clocks import NS_IN_S, Clock, monotonic_ns
from lightning_timing.cpu_readings import CpuReading, PsutilReader
from lightning_timing.figures import CpuUsage

SAMPLE_INTERVAL_S: Final = 1.0
_COST_LIMIT: Final = 1000
"""A reading is followed by a pause at least this many times as long, so that it takes 0.1 % of the time at most.

Beside 1,500 other processes one takes 40 ms, in which it takes turns with the training in holding the interpreter.
"""
_STOP_TIMEOUT_S: Final = 5.0


_Progress = tuple[int, int, int | None, int]
"""Measured time and CPU time used in it, so far; the beginning of the open interval on both clocks, if one is open.

In nanoseconds. Replaced as a whole, so that the sampler never sees half an update; a plain tuple, for the hot path.
"""


class _SampledRate:
    """How many cores were in use while the measurement ran, from cumulative readings of used and available time.

    Within a window between two readings the use is taken to be even; windows count by the measured time in them.

    Args:
        weighted: What an earlier one had come to, as its attribute of this name.

    Attributes:
        weighted: The sum of the windows' rates, each times the measured time in it, and the sum of these times, in
            nanoseconds. Replaced as a whole, as another thread may read it.
    """

    def __init__(self, weighted: tuple[float, int] = (0.0, 0)) -> None:
        self.weighted = weighted
        self._last: tuple[int, float, float] | None = None

    def restart(self) -> None:
        """Makes the next reading a baseline, as the first is."""
        self._last = None

    def add(self, measured_ns: int, used_s: float | None, available_s: float | None) -> None:
        """Takes a reading. One that is missing widens the window to the next."""
        if used_s is None or available_s is None:
            return
        if self._last is not None:
            last_measured_ns, last_used_s, last_available_s = self._last
            weight = measured_ns - last_measured_ns
            if weight > 0 and available_s > last_available_s:
                # Used time falls when a child ends that nobody waits for: what it used in this window is not known.
                rate = max(0.0, used_s - last_used_s) / (available_s - last_available_s)
                total, weights = self.weighted
                self.weighted = (total + rate * weight, weights + weight)
        self._last = (measured_ns, used_s, available_s)

    @property
    def value(self) -> float | None:
        """The mean rate; None before there was a window with measured time in it."""
        total, weights = self.weighted
        return total / weights if weights else None


class CpuUsageMeter:
    """Meters the CPU usage of one measurement: `begin` and `end` round each of its intervals, `start` and `stop` once.

    The use of this process, all threads included, is exact. That of its children (DataLoader workers and theirs) and of
    other processes is approximate: sampled every second, or less often where many processes make that slow, and taken
    to be even between two samples. The machine's is that of all of them together: were it taken from samples alone, in
    which this process does other things too, a part could exceed the whole. A child that ended between samples is
    counted through the time it left with its parent; one that nobody waited for is lost from then on. The first sample
    is a baseline. Meters share nothing, so several may run at once. In a forked child the meter is dead: it starts and
    stops nothing, and knows nothing.

    Args:
        measurement: The name of the measurement.
        clock: Reads the time, in nanoseconds.
        process_clock: Reads the CPU time of this process, in nanoseconds.
        reader: Takes the readings of children and machine; psutil's where None.
        allowed: Returns the number of cores that this process may use.
        machine_cores: The number of the machine's cores; None: as Python counts them.

    Raises:
        ImportError: `reader` is None and psutil is not installed.
    """

    def __init__(
        self,
        measurement: str,
        *,
        clock: Clock = monotonic_ns,
        process_clock: Clock = time.process_time_ns,
        reader: Callable[[], CpuReading] | None = None,
        allowed: Callable[[], float] | None = None,
        machine_cores: int | None = None,
    ) -> None:
        self.measurement = measurement
        self._clock = clock
        self._process_clock = process_clock
        self._read = PsutilReader() if reader is None else reader
        self._allowed = allowed
        self._allowed_cpus: float | None = None
        self._machine_cores = machine_cores or os.cpu_count() or 1
        self._progress: _Progress = (0, 0, None, 0)
        self._rates = _SampledRate(), _SampledRate()  # of the children and of other processes, replaced together
        self._kept: tuple[int, int, tuple[float, int], tuple[float, int]] = (0, 0, (0.0, 0), (0.0, 0))
        self._reason: str | None = None
        self._pid = os.getpid()
        self._sampler: threading.Thread | None = None
        self._stopping = threading.Event()

    @property
    def reason(self) -> str | None:
        """Why a figure is unknown: the first failure met; None where there was none."""
        return self._reason

    def begin(self) -> None:
        """Opens an interval, at its very start. One that is open already is dropped."""
        measured_ns, used_ns, _, _ = self._progress
        self._progress = (measured_ns, used_ns, self._clock(), self._process_clock())

    def end(self) -> None:
        """Closes the interval, at its very end. Without an open one, does nothing."""
        measured_ns, used_ns, open_since_ns, open_used_ns = self._progress
        if open_since_ns is not None:
            used_ns += self._process_clock() - open_used_ns
            self._progress = (measured_ns + self._clock() - open_since_ns, used_ns, None, 0)

    def drop(self) -> None:
        """Forgets the open interval, if any."""
        measured_ns, used_ns, _, _ = self._progress
        self._progress = (measured_ns, used_ns, None, 0)

    def keep(self) -> None:
        """Keeps what was metered so far, but for an open interval, when `forget` is called."""
        measured_ns, used_ns, _, _ = self._progress
        children, others = self._rates
        self._kept = (measured_ns, used_ns, children.weighted, others.weighted)

    def forget(self) -> None:
        """Forgets what was metered since the last call of `keep`, an open interval included: it does not count."""
        measured_ns, used_ns, children, others = self._kept
        self._progress = (measured_ns, used_ns, None, 0)
        # New ones, and after the progress: a sample that is being taken belongs to the old ones.
        self._rates = _SampledRate(children), _SampledRate(others)

    @property
    def was_used(self) -> bool:
        """Whether an interval was opened and not dropped."""
        measured_ns, _, open_since_ns, _ = self._progress
        return bool(measured_ns) or open_since_ns is not None

    def start(self) -> None:
        """Starts sampling on a daemon thread, which takes the baseline first. Does nothing if it is running."""
        if self._sampler is not None or os.getpid() != self._pid:
            return
        for rate in self._rates:
            rate.restart()
        self._stopping = threading.Event()
        sampler = threading.Thread(
            target=self._keep_sampling, args=(self._stopping,), name="lightning_timing-cpu-usage", daemon=True
        )
        try:
            sampler.start()
        except BaseException:
            self._stopping.set()  # Ctrl-C may come when it runs already
            raise
        self._sampler = sampler  # not before: one that was never started cannot be waited for

    def stop(self) -> None:
        """Ends sampling with a last reading, which takes some milliseconds. Does nothing if it is not running."""
        if self._sampler is None or os.getpid() != self._pid:
            return
        self._stopping.set()
        self._sampler.join(_STOP_TIMEOUT_S)
        self._sampler = None

    def sample(self) -> None:
        """Takes one reading now. The sampler's work: it walks /proc, so keep it off the training thread."""
        if self._allowed_cpus is None:
            self._allowed_cpus = (self._allowed or _allowed_cpus)()
        children, others = self._rates  # before the progress, see `forget`
        now = self._clock()
        measured_ns, _, open_since_ns, _ = self._progress
        if open_since_ns is not None:
            measured_ns += now - open_since_ns
        reading = self._read()
        children.add(measured_ns, reading.children_s, now / NS_IN_S)
        if reading.machine_busy_s is not None and reading.children_s is not None:
            own_s = self._process_clock() / NS_IN_S
            others.add(measured_ns, reading.machine_busy_s - reading.children_s - own_s, reading.machine_total_s)
        self._reason = self._reason or reading.reason

    def result(self) -> CpuUsage:
        """Returns the figures so far, an open interval included. What cannot be known, or not yet, is None."""
        measured_ns, used_ns, open_since_ns, open_used_ns = self._progress
        if open_since_ns is not None:
            used_ns += self._process_clock() - open_used_ns
            measured_ns += self._clock() - open_since_ns
        children, others = (rate.value for rate in self._rates)
        if os.getpid() != self._pid or not measured_ns:
            return CpuUsage(self.measurement, None, None, None)
        tree = None if children is None else used_ns / measured_ns + children
        machine = None if tree is None or others is None else min(others + tree / self._machine_cores, 1.0)
        return CpuUsage(
            measurement=self.measurement,
            process_tree_percent=None if tree is None else 100 * tree,
            machine_percent=None if machine is None else 100 * machine,
            share_of_allowed=None if tree is None or not self._allowed_cpus else tree / self._allowed_cpus,
        )

    def _keep_sampling(self, stopping: threading.Event) -> None:
        pause_s = 0.0
        try:
            while not stopping.wait(pause_s):
                started = time.perf_counter()
                self.sample()
                pause_s = max(SAMPLE_INTERVAL_S, _COST_LIMIT * (time.perf_counter() - started))
            self.sample()
        except Exception as error:  # noqa: BLE001  # there is nobody on this thread to catch it; `reason` tells of it
            self._reason = self._reason or f"CPU usage cannot be sampled: {error!r}"


def _allowed_cpus() -> float:
    # Only here, as the paths that it needs take a tenth of `import lightning_timing`.
    from lightning_timing.allowed_cpus import allowed_cpus

    return allowed_cpus()
