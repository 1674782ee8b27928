"""The rules by which a run is judged, in order: the verdicts, and from which share on each holds.

Rules 2 and 3 (`verdict.py`) look at all measured time, the warm-up included. The others (`stage_verdict.py`) look at
the iterations of one stage and the shares of their time (`share` of `MeasurementSummary`); where these iterations take
less than `MAIN_SHARE` of all measured time, the evidence says so.

1. Too little to judge by: fewer than `MIN_ITERATIONS` iterations, or none that took time.
2. `validation-heavy`: in a run that trains, validation's iterations and the waits for their first batches reach
   `VALIDATION_SHARE`, and the iterations alone take longer than anything of rule 3.
3. What recurs between the iterations and reaches its threshold in `HEAVY_OUTSIDE`, unless one of rule 5 takes longer:
   `epoch-start-heavy` (`first_data_wait`), or as there. What occurs only once is left out, of each callback by itself.
4. `compute-bound`, where the device was timed: it has work for `DEVICE_BUSY` of the iterations' time or more. It then
   sets the pace. The sum of the phases' device times says nothing of that: it includes idle time.
5. The largest among those that reach their threshold in `HEAVY_SHARES`, and would so without a single long interval:
   `input-bound` (`data_wait`), `transfer-bound` (`batch_transfer`), `logging-heavy` (`logging`), `checkpoint-heavy`
   (`checkpoint`), `callback-heavy` (`callbacks`), `overhead-bound` (`other`). Of one that would not, such as a wait
   during which Python collected garbage, the evidence of what follows says so.
6. `uneven steps`: what iterations take beyond their median, on the device if that was timed, is `UNEVEN_SHARE` of
   their time or more, and would be without a single long iteration. So it counts how much slow ones cost, whether one
   in 20 is slow or one in 200.
7. The phases of the model's own work reach `COMPUTE_SHARE` together, such long intervals left out: `waiting`, where no
   device was timed and fewer than `CPU_IDLE_CORES` cores are in use, else `compute-bound`.
8. `mixed`: none of these.

Where the records of several ranks are read, and one of them holds the others up (`rank_comparison.py`), the stage is
`rank-bound` instead of what 4, 6, 7 or 8 say, as these may be no more than the wait for that rank; 5 names it too.

In 5 and 7 the time of any phase in which the device has work is the model's own, and not that of the phase
(`overlapped_s` of `DeviceSummary`): a hook that reads the loss waits there for forward and backward.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lightning_timing.phases import BATCH_TRANSFER, CALLBACKS, CHECKPOINT, DATA_WAIT, FIRST_DATA_WAIT, LOGGING, OTHER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lightning_timing.phase_shares import PhaseShares

MIN_ITERATIONS: Final = 10
VALIDATION_SHARE: Final = 0.5
MAIN_SHARE: Final = 0.5
DEVICE_BUSY: Final = 0.9
ALMOST_ALL: Final = 0.995
UNEVEN_SHARE: Final = 0.15
COMPUTE_SHARE: Final = 0.7
CPU_IDLE_CORES: Final = 0.5
"""Below this many cores in use, without a device that is timed, work mostly waits."""
CPU_SATURATED: Final = 0.9
"""From this share of the allowed cores on, more loader workers would only take turns."""

VALIDATION_HEAVY: Final = "validation-heavy"
EPOCH_START_HEAVY: Final = "epoch-start-heavy"
INPUT_BOUND: Final = "input-bound"
TRANSFER_BOUND: Final = "transfer-bound"
COMPUTE_BOUND: Final = "compute-bound"
RANK_BOUND: Final = "rank-bound"
WAITING: Final = "waiting"
LOGGING_HEAVY: Final = "logging-heavy"
CHECKPOINT_HEAVY: Final = "checkpoint-heavy"
CALLBACK_HEAVY: Final = "callback-heavy"
UNEVEN_STEPS: Final = "uneven steps"
OVERHEAD_BOUND: Final = "overhead-bound"
MIXED: Final = "mixed"


@dataclass(frozen=True)
class Verdict:
    """What limits a run, or one of its stages.

    Attributes:
        name: One of this module's verdicts.
        evidence: The figures that it rests on.
        advice: The next thing to try.
    """

    name: str
    evidence: str
    advice: str


@dataclass(frozen=True)
class Heavy:
    """What makes a phase stand out.

    Attributes:
        threshold: The share (0 to 1) from which on it does.
        name: The name of that verdict.
    """

    threshold: float
    name: str


HEAVY_SHARES: Final[Mapping[str, Heavy]] = {
    DATA_WAIT: Heavy(0.2, INPUT_BOUND),
    BATCH_TRANSFER: Heavy(0.15, TRANSFER_BOUND),
    LOGGING: Heavy(0.1, LOGGING_HEAVY),
    CHECKPOINT: Heavy(0.1, CHECKPOINT_HEAVY),
    CALLBACKS: Heavy(0.15, CALLBACK_HEAVY),
    OTHER: Heavy(0.25, OVERHEAD_BOUND),
}
"""By phase: the share from which on it stands out, and the name of that verdict."""

HEAVY_OUTSIDE: Final[Mapping[str, Heavy]] = {
    FIRST_DATA_WAIT: Heavy(0.2, EPOCH_START_HEAVY),
    **{phase: HEAVY_SHARES[phase] for phase in (LOGGING, CHECKPOINT, CALLBACKS)},
}
"""The same for what lies between iterations, as a share of all measured time."""


def heavy_phases(shares: PhaseShares) -> list[str]:
    """Returns the phases that reach their threshold by what is exposed of them and recurs."""
    return [phase for phase, heavy in HEAVY_SHARES.items() if shares.recurring(phase) >= heavy.threshold]


def costliest_callback(times_s: Mapping[str, float]) -> str | None:
    """Returns the class of the callback that took longest, by the names of measurements; None where none is known."""
    costliest = max(times_s, key=times_s.__getitem__, default="")
    return costliest.partition(f"{CALLBACKS}/")[2] or None


def percent(share: float) -> str:
    """Returns a share (0 to 1) as evidence states it."""
    return f"{100 * share:.0f} %"
