"""The texts of advice: the next thing to try, by what a verdict is about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lightning_timing.phases import (
    BACKWARD,
    BARRIER,
    BATCH_TRANSFER,
    CALLBACKS,
    CHECKPOINT,
    DATA_WAIT,
    FIRST_DATA_WAIT,
    LOGGING,
    LR_SCHEDULER,
    OTHER,
)
from lightning_timing.preset_variable import VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SEE_PAGE: Final = "(report RUN --html FILE)"
"""Where the slowest iterations are listed; part of an advice."""
_FASTER: Final = "then lower precision, torch.compile or a larger batch"
_PROFILE_DEVICE: Final = f"run under nsys with {VARIABLE}=profiling (in a Hydra app: timing=profiling); {_FASTER}"
_PROFILE_HOST: Final = (
    f"run under py-spy, which shows its functions (on an accelerator under nsys, with {VARIABLE}=profiling); {_FASTER}"
)

_IN_DATASET: Final = (
    "or move work out of the dataset's __getitem__ (or __iter__) and the collate_fn, in which spans show what is slow"
)
_WITHOUT_WORKERS: Final = "while num_workers is 0"

_LONGER_EPOCHS: Final = "have longer and so fewer epochs, or make cheaper what the dataset does at its start"

FOR_HEAVY: Final[Mapping[str, str]] = {
    FIRST_DATA_WAIT: (
        "keep the DataLoader's workers alive with persistent_workers=True (for num_workers above 0), " + _LONGER_EPOCHS
    ),
    DATA_WAIT: (
        "set the DataLoader's num_workers above 0; where it is, raise it or prefetch_factor, "
        f"{_IN_DATASET} {_WITHOUT_WORKERS}"
    ),
    BATCH_TRANSFER: (
        "set the DataLoader's pin_memory, send smaller types (uint8 images, converted on the device), "
        "and look for work in transfer_batch_to_device and its hooks"
    ),
    LOGGING: (
        "raise the Trainer's log_every_n_steps, log fewer or smaller things (those of log_to_logger are among them), "
        "and see to metrics that take long to compute at an epoch's end and loggers that upload checkpoints"
    ),
    CHECKPOINT: (
        "save less often, without optimizer states, or asynchronously; deleting older ones, as save_top_k asks for, is "
        "in the ModelCheckpoint's own row"
    ),
    CALLBACKS: (
        "run it less often, or make it cheaper; one that monitors a metric, such as ModelCheckpoint, may be the first "
        "to have the epoch's metrics computed; where it is your module or data module that makes its loaders anew, "
        "see the Trainer's reload_dataloaders_every_n_epochs"
    ),
    OTHER: (
        "look for work of yours outside of Lightning's hooks, as in your module's optimizer_step, before it calls "
        "Lightning's, or in a loop or strategy of your own: spans show it; and raise the batch size, since Lightning's "
        "own loop costs each batch the same"
    ),
}
"""By phase what to try where it takes too large a share."""

FOR_REST: Final[Mapping[str, str]] = {
    **FOR_HEAVY,
    BARRIER: 'see which rank the others wait for: give the StopwatchCallback ranks="all", and the report names it',
}
"""By phase what to try where none stands out and it is the largest, if spans in it would not help."""

CORES_ARE_BUSY: Final = (
    "the allowed cores are busy, so more workers will not help: make the dataset's work cheaper, "
    "prepare it in advance, or allow the run more cores"
)
"""Where the wait for data is heavy, in place of more workers."""
VALIDATE_LESS: Final = (
    "validate less often (the Trainer's check_val_every_n_epoch, val_check_interval), on fewer batches "
    "(limit_val_batches) or in larger ones, which need no room for gradients; and see what limits it "
    "(report RUN --stage validate)"
)
SEE_RANKS: Final = (
    "where it waits for a slower rank instead, as backward does, lightning-timing report names that rank, if the "
    'StopwatchCallback has ranks="all"'
)
"""Where the model's own work takes most of the time, of several ranks."""
LOOK_AT_DEVICE: Final = f"look at the device's own work: {_PROFILE_DEVICE}"


def begin_epochs_faster(workers: Iterable[int]) -> str:
    """Where waits for epochs' first batches are heavy and the loaders have that many workers, as far as known."""
    known = set(workers)
    return _LONGER_EPOCHS if known == {0} else FOR_HEAVY[FIRST_DATA_WAIT]


def feed_faster(workers: int | None) -> str:
    """Where the wait for data is heavy and the loader has that many workers; None: not known."""
    if workers is None:
        return FOR_HEAVY[DATA_WAIT]
    if not workers:
        return f"set the DataLoader's num_workers, which is 0, above that, {_IN_DATASET}"
    raised = f"raise the DataLoader's num_workers, which is {workers}, or prefetch_factor"
    return f"{raised}, {_IN_DATASET} {_WITHOUT_WORKERS}"


def look_into(where: str, on_device: bool) -> str:
    """Where one phase of the model's own work takes most of the time, or a measurement in it.

    Args:
        where: The phase, or the measurement and its phase.
        on_device: Whether the device was timed.
    """
    profile = _PROFILE_DEVICE if on_device else _PROFILE_HOST
    if where == BACKWARD:  # autograd's own, into which no span can be put
        return f"look into backward, which costs what forward makes it: {profile}"
    if where == LR_SCHEDULER:
        return "make the scheduler's step cheaper, or take it less often: see the interval of its lr_scheduler_config"
    return f"look into {where}: put spans into it, {profile}"


def see_why_slower(rank: int, phases: Iterable[str]) -> str:
    """Where one rank holds the others up, by what it does in these phases."""
    return (
        f"see why rank {rank} takes longer in {' and '.join(phases)}: more or larger samples than the others have, "
        "work that it alone does, or its machine"
    )


def see_what_it_waits_for(where: str) -> str:
    """Where one phase of the model's own work takes most of the time, or a measurement in it, with the cores idle."""
    return (
        f"find out what {where} waits for: a slower rank (where there are several), a lock, the disk, the network, or "
        "a device, whose part device_time=events tells; put spans into it"
    )


def see_what_calls_for(phase: str) -> str:
    """Where iterations are uneven since only some have a phase."""
    return (
        "where that is meant, as with accumulated gradients, the mean tells more than the median; else see what calls "
        f"for {phase}"
    )


def see_what_varies(phase: str) -> str:
    """Where iterations are uneven since a phase varies."""
    return (
        f"see what sets the slowest iterations apart {SEE_PAGE}: batches of unequal size, a now-and-then task in "
        f"{phase}, or other load on the machine"
    )


def begin_with(where: str) -> str:
    """Where no phase stands out."""
    return f"begin with {where}: put spans into it, to see where its time goes"
