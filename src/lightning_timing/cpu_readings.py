"""Readings of CPU time through psutil: of this process's children, and of the machine."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import psutil

_WALKS: Final = 3


@dataclass(frozen=True)
class CpuReading:
    """CPU times so far. All are cumulative, in seconds, and None where they could not be read.

    Attributes:
        children_s: What all descendants of this process have used: the living ones, and those that ended and were
            waited for.
        machine_busy_s: What the machine's cores have spent working.
        machine_total_s: The time of the machine's cores in all, busy and idle.
        reason: Why something is None.
    """

    children_s: float | None
    machine_busy_s: float | None
    machine_total_s: float | None
    reason: str | None = None


class PsutilReader:
    """Takes readings of this process's children and of the machine. A call walks /proc: some milliseconds.

    Raises:
        ImportError: psutil is not installed.
    """

    def __init__(self) -> None:
        import psutil

        self._psutil = psutil
        self._process = psutil.Process()
        # Sandboxes whose /proc lacks files or fields make psutil raise the last three.
        self._unreadable = (psutil.Error, OSError, ValueError, LookupError)

    def __call__(self) -> CpuReading:
        """Reads everything once. What cannot be read is None, with the reason; nothing is raised."""
        reasons = []
        children_s = busy_s = total_s = None
        try:
            children_s = self._children_s()
        except self._unreadable as error:
            reasons.append(f"the CPU times of child processes cannot be read: {error!r}")
        try:
            busy_s, total_s = self._machine_s()
        except self._unreadable as error:
            reasons.append(f"the CPU times of the machine cannot be read: {error!r}")
        return CpuReading(children_s, busy_s, total_s, "; ".join(reasons) or None)

    def _children_s(self) -> float | None:
        """Adds up the descendants' times. A child that ends moves from the living to the waited for, and counts once.

        Returns None if one ended during each walk: the next reading then covers this one's time too.
        """
        for _ in range(_WALKS):
            waited_for_s = _waited_for_s()
            living_s = sum(self._living_s(child) for child in self._process.children(recursive=True))
            if _waited_for_s() == waited_for_s:
                return waited_for_s + living_s
        return None

    def _living_s(self, child: psutil.Process) -> float:
        """Returns what a process has used, with the children of its own that it waited for."""
        try:
            times = child.cpu_times()
        except self._psutil.NoSuchProcess:  # it ended after it was listed
            return 0.0
        return float(times.user + times.system + times.children_user + times.children_system)

    def _machine_s(self) -> tuple[float, float]:
        times = self._psutil.cpu_times()
        # On Linux, guest time is also part of user time, and guest_nice of nice.
        total_s = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
        return total_s - times.idle - getattr(times, "iowait", 0.0), total_s


def _waited_for_s() -> float:
    times = os.times()
    return times.children_user + times.children_system
