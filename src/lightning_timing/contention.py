"""Whether other processes used the machine while a run was measured, which makes its times longer and uneven.

Their share is the machine's use (in percent of all of its cores) less that of this process and its children (in percent
of one core, so divided by the number of cores). Both are means over the time measured. Children and the machine are
sampled about once a second, so a difference of a few percent means nothing; `OTHERS_SHARE` is far above that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lightning_timing.figures import CpuUsage
    from lightning_timing.record import RunSummary
    from lightning_timing.run_report import RunReport

OTHERS_SHARE: Final = 0.25
"""Use of the machine by other processes is reported from this share on."""


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


def contention_in(run: RunSummary | RunReport) -> tuple[str, ...]:
    """Returns the note on a run that was read from its record, in a tuple to be put among other problems."""
    note = contention_note(run.cpu_usage, run.environment.get("cpu_count"), run.world_size)
    return () if note is None else (note,)
