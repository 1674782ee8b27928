"""The words of this package: the stages of a run and the phases of an iteration."""

from __future__ import annotations

from typing import Final

TRAIN: Final = "train"
VALIDATE: Final = "validate"
TEST: Final = "test"
PREDICT: Final = "predict"
SANITY_CHECK: Final = "sanity_check"
STAGES: Final[tuple[str, ...]] = (TRAIN, VALIDATE, TEST, PREDICT, SANITY_CHECK)

ITERATION: Final = "iteration"
"""One batch, from the start of its fetch to the start of the next one's, validation left out."""
DATA_WAIT: Final = "data_wait"
"""The wait for the next batch."""
FIRST_DATA_WAIT: Final = "first_data_wait"
"""The wait for the first batch of an epoch: for the loader's iterator, which starts the workers, and for the batch,
without the hooks in between. Outside the iteration, so that the steady figures stay steady; its parent is null."""
BATCH_TRANSFER: Final = "batch_transfer"
"""From the batch's arrival to its being on the device: conversion, transfer hooks and the move itself."""
FORWARD: Final = "forward"
"""The training, validation, test or predict step, all of it."""
ZERO_GRAD: Final = "zero_grad"
BACKWARD: Final = "backward"
GRAD_CLIP: Final = "grad_clip"
OPTIMIZER_STEP: Final = "optimizer_step"
"""The optimizer's own work, without the closure that runs inside it: an attempt, for a gradient scaler may skip the
update. Of several optimizers, `optimizer_step/<index>` holds each one's part."""
LR_SCHEDULER: Final = "lr_scheduler"
CALLBACKS: Final = "callbacks"
"""The hooks of all other callbacks and of the module; `callbacks/<name>` holds each one's part."""
LOGGING: Final = "logging"
CHECKPOINT: Final = "checkpoint"
"""The rank's own part in saving a checkpoint; its wait for the rank that writes is `barrier`."""
BARRIER: Final = "barrier"
"""The wait for other ranks at a barrier of the Trainer's, or where it broadcasts or decides something with them. A wait
for tensors belongs to the phase that it is in."""
OTHER: Final = "other"
"""What no phase claimed: the iteration less all the others."""
BETWEEN_ITERATIONS: Final = "between_iterations"
"""Prefix of the phases that occur while no iteration is open, such as a checkpoint at the end of an epoch."""
BETWEEN: Final = f"{BETWEEN_ITERATIONS}/"
"""The same with the slash behind it: what the names of such phases begin with."""

PHASES: Final[tuple[str, ...]] = (
    DATA_WAIT,
    BATCH_TRANSFER,
    FORWARD,
    ZERO_GRAD,
    BACKWARD,
    GRAD_CLIP,
    OPTIMIZER_STEP,
    LR_SCHEDULER,
    CALLBACKS,
    LOGGING,
    CHECKPOINT,
    BARRIER,
    OTHER,
)
"""The exclusive phases of an iteration, in the order of the loop. Those present add up to `iteration` exactly."""


def is_phase(name: str) -> bool:
    """Whether a name is that of a phase, or of a part of one, so that the user's measurements may not have it."""
    return name.partition("/")[0] in (*PHASES, BETWEEN_ITERATIONS) or name in (ITERATION, FIRST_DATA_WAIT)


def is_phase_range(name: str) -> bool:
    """Whether ranges of this name are a phase's, as the callbacks make them.

    Narrower than `is_phase`: a user's range may be called `forward/mine`, though no measurement may.
    """
    return name in (ITERATION, FIRST_DATA_WAIT, *PHASES) or name.startswith((f"{CALLBACKS}/", f"{OPTIMIZER_STEP}/"))


def whole_of(name: str) -> str | None:
    """The phase that a measurement, such as `callbacks/X`, is a part of; None where it is no part of one."""
    whole, _, part = name.partition("/")
    return whole if part and whole in PHASES else None


_PLACES: Final = {name: place for place, name in enumerate((ITERATION, *PHASES, FIRST_DATA_WAIT))}


def place_in_loop(name: str) -> int:
    """Returns a measurement's place in the order of the loop; a part, such as `callbacks/X`, has that of its whole.

    The user's measurements come last.
    """
    return _PLACES.get(name.partition("/")[0], len(_PLACES))


_STAGE_PLACES: Final = {stage: place for place, stage in enumerate(STAGES)}


def place_of_stage(name: str) -> int:
    """Returns a stage's place in the order of `STAGES`; one that is not among them comes last."""
    return _STAGE_PLACES.get(name, len(_STAGE_PLACES))


def callback_phase(name: str) -> str:
    """Returns the name of the part of `callbacks` that is spent in the hooks of `name`."""
    return f"{CALLBACKS}/{name}"
