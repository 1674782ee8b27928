"""How many cores this process may use: its affinity, and the CPU quota of its container or job."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

CGROUP_ROOT = Path("/sys/fs/cgroup")
CGROUP_MEMBERSHIP = Path("/proc/self/cgroup")

_V1_MOUNTS = ("cpu", "cpu,cpuacct", "cpuacct,cpu")


def affinity_count() -> int:
    """Counts the cores that the process's threads may run on, together.

    Together, because `OMP_PROC_BIND` ties each OpenMP thread, the main one included, to a core of its own.
    """
    if not hasattr(os, "sched_getaffinity"):  # macOS, Windows
        return os.cpu_count() or 1
    cores = set(os.sched_getaffinity(0))
    with suppress(OSError):  # no procfs
        for thread in os.listdir("/proc/self/task"):
            with suppress(ProcessLookupError):  # it has just ended
                cores |= os.sched_getaffinity(int(thread))
    return len(cores)


def allowed_cpus(
    root: Path = CGROUP_ROOT,
    membership: Path = CGROUP_MEMBERSHIP,
    affinity: Callable[[], int] = affinity_count,
) -> float:
    """Returns the number of cores that this process may use: whole ones by affinity, or a fraction by quota.

    Args:
        root: Where the control groups are mounted. Versions 1 and 2 are understood.
        membership: The file that names the groups of this process.
        affinity: Counts the cores of the affinity.

    Returns:
        The smallest of the affinity and the quotas of this process's group and of all groups that contain it.
    """
    return min([float(affinity()), *_quotas(root, membership)])


def _quotas(root: Path, membership: Path) -> Iterator[float]:
    for line in _read(membership).splitlines():
        hierarchy, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if hierarchy == "0":
            yield from _quotas_along(root, path, _quota_v2)
        elif "cpu" in controllers.split(","):
            for mount in _V1_MOUNTS:
                yield from _quotas_along(root / mount, path, _quota_v1)


def _quotas_along(mount: Path, path: str, quota_of: Callable[[Path], float | None]) -> Iterator[float]:
    """Yields the quotas of a group and of the groups that contain it. A container may see only its own, as the root."""
    parts = [part for part in PurePosixPath(path).parts if part not in ("/", "..")]
    for depth in range(len(parts) + 1):
        quota = quota_of(mount.joinpath(*parts[:depth]))
        if quota is not None:
            yield quota


def _quota_v2(group: Path) -> float | None:
    quota, _, period = _read(group / "cpu.max").partition(" ")
    return _cores(quota, period)


def _quota_v1(group: Path) -> float | None:
    return _cores(_read(group / "cpu.cfs_quota_us"), _read(group / "cpu.cfs_period_us"))


def _cores(quota: str, period: str) -> float | None:
    """Returns the cores that a quota is worth, both in microseconds; None for `max`, -1 and what is no number."""
    try:
        cores = int(quota) / int(period)
    except (ValueError, ZeroDivisionError):
        return None
    return cores if cores > 0 else None


def _read(file: Path) -> str:
    """Returns the file's text; nothing where it does not exist or is hidden by a sandbox."""
    try:
        return file.read_text()
    except OSError:
        return ""
