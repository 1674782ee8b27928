"""Whether other processes used the machine while a run was measured, which makes its times longer, and uneven.

What others used is what of the machine was in use (percent of all of its cores) less what this process and its
children used (percent of one core, so by the number of the machine's cores). Both are means over the time measured,
that of others and of the children over windows of about a second, so a few percent say nothing: `OTHERS_SHARE` is far
above that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lightning_timing.figures import CpuUsage
    from lightning_timing.record import RunSummary

OTHERS_SHARE: Final = 0.25
"""The share of the machine from which on its use by other processes is reported."""


def share_of_others(usage: CpuUsage | None, machine_cores: object, world_size: int) -> float | None:
    """Returns how much of the machine other processes used, as a share (0 to 1).

    Args:
        usage: The run's CPU usage, or None.
        machine_cores: The number of the machine's cores, as a record has it: it may be anything.
        world_size: Number of processes of the run.

    Returns:
        The share; None where it cannot be told, as for a run of several processes, which are others to each other.
    """
    if usage is None or usage.machine_percent is None or usage.process_tree_percent is None or world_size > 1:
        return None
    if not isinstance(machine_cores, int) or machine_cores < 1:
        return None
    return max(0.0, usage.machine_percent - usage.process_tree_percent / machine_cores) / 100


def contention_note(usage: CpuUsage | None, machine_cores: object, world_size: int) -> str | None:
    """Returns a note for the report where others used `OTHERS_SHARE` or more; else None. Takes the same arguments."""
    share = share_of_others(usage, machine_cores, world_size)
    if share is None or share < OTHERS_SHARE:
        return None
    return f"other processes used about {100 * share:.0f} % of the machine meanwhile: these figures are not reliable"


def contention_in(summary: RunSummary) -> tuple[str, ...]:
    """Returns the same note on a run that has been written, if there is one, in a tuple: among other problems."""
    note = contention_note(summary.cpu_usage, summary.environment.get("cpu_count"), summary.world_size)
    return () if note is None else (note,)
