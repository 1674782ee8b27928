"""One-time measurements: each name is measured once, in warm-up too."""

from __future__ import annotations

from typing import Final

from lightning_timing.clocks import NS_IN_S, Clock
from lightning_timing.misuse import NOT_MEASURED, Misuse
from lightning_timing.names import MAX_MEASUREMENTS, shown, why_refused

_FIRST_STANDS: Final = "its first time stands"


class OneTimeMeasurements:
    """Measurements that are made once in a run, such as loading a dataset.

    Args:
        read: Reads the clock, in nanoseconds.
        misuse: Told of a name that is started or ended out of order.
    """

    def __init__(self, read: Clock, misuse: Misuse) -> None:
        self._read = read
        self._misuse = misuse
        self._times: dict[str, tuple[int, int | None]] = {}

    def start(self, name: str) -> None:
        """Starts a measurement."""
        refusal = why_refused(name)
        if refusal is None and name in self._times:
            again = f"one-time measurement {name!r} was started already: a name is measured once"
            self._misuse.report(name, again, consequence=_FIRST_STANDS)
            return
        if refusal is None and len(self._times) >= MAX_MEASUREMENTS:
            refusal = f"there are {MAX_MEASUREMENTS} one-time measurements already; use fixed names"
        if refusal is not None:
            self._misuse.report(name, refusal, consequence=NOT_MEASURED)
            return
        self._times[name] = (self._read(), None)

    def end(self, name: str) -> None:
        """Ends a measurement."""
        now = self._read()
        begin, end = self._times.get(name, (None, None)) if isinstance(name, str) else (None, None)
        if begin is None:
            unknown = f"one-time measurement {shown(name)} was ended without having been started"
            self._misuse.report(name, unknown, consequence=NOT_MEASURED)
            return
        if end is not None:
            again = f"one-time measurement {shown(name)} was ended twice"
            self._misuse.report(name, again, consequence=_FIRST_STANDS)
            return
        self._times[name] = (begin, now)

    def seconds(self) -> dict[str, float | None]:
        """Returns the times in seconds, by name; None for one that is running."""
        times = list(self._times.items())  # another thread may start one meanwhile
        return {name: None if end is None else (end - begin) / NS_IN_S for name, (begin, end) in times}
