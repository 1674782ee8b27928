"""What a recorder hands on: iterations, what the user measured in them, and what was measured outside of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from lightning_timing.ledger import Interval
from lightning_timing.measurement import UserTimes


class IterationLabel(NamedTuple):
    """The label of an iteration: its place in the run, and what is known of its batch.

    Attributes:
        epoch: The epoch, from 0.
        batch_idx: The batch's index in its epoch, from 0.
        global_step: Optimizer steps taken when it began.
        samples: The size of its batch; None where it cannot be told.
        skipped: Whether its step returned None.
    """

    epoch: int = 0
    batch_idx: int = 0
    global_step: int = 0
    samples: int | None = None
    skipped: bool = False


class MeasuredByUser(NamedTuple):
    """What the user measured in an iteration.

    Attributes:
        times: How long each of its intervals took, of each measurement that has any.
        placed: The intervals whose positions are known, on the recorder's clock.
    """

    times: Sequence[UserTimes] = ()
    placed: Sequence[Interval] = ()

    def among(self, intervals: list[Interval], begin_ns: int) -> list[Interval]:
        """Returns the intervals of an iteration's phases together with the user's, inner ones first.

        Args:
            intervals: The intervals of the phases, in nanoseconds from the iteration's beginning.
            begin_ns: When the iteration began, on the recorder's clock.
        """
        if not self.placed:
            return intervals
        placed = [(name, begin - begin_ns, end - begin_ns) for name, begin, end in self.placed]
        return sorted(intervals + placed, key=lambda interval: (interval[2], -interval[1]))


NOTHING: Final = MeasuredByUser()


class MeasuredIteration(NamedTuple):
    """An iteration that counts.

    Attributes:
        stage: Its stage.
        label: Its label.
        begin_ns: When it began, on the recorder's clock.
        ns: The sum of each measurement's samples, in nanoseconds.
        intervals: Each interval's name, start and end in nanoseconds from `begin_ns`, or None where not kept.
        device_ns: The sum of each measurement's device times, in nanoseconds, or None where the device is not timed.
    """

    stage: str
    label: IterationLabel
    begin_ns: int
    ns: dict[str, int]
    intervals: list[Interval] | None
    device_ns: dict[str, int] | None = None


class MeasuredOutside(NamedTuple):
    """Something measured while no iteration was open.

    Attributes:
        stage: Its stage.
        epoch: The epoch that it belongs to or follows, from 0.
        name: The measurement.
        end_ns: When it ended, at the latest, on the recorder's clock.
        ns: How long it took, in nanoseconds.
    """

    stage: str
    epoch: int
    name: str
    end_ns: int
    ns: int


class CountsInside(NamedTuple):
    """How often things were measured inside the iterations of a recorder.

    Attributes:
        phases: Intervals of phases.
        users: Intervals of the user's measurements, of each at most as many as there are iterations.
        users_again: What is beyond that, as where a measurement is started several times an iteration.
        iterations: Iterations.
    """

    phases: int
    users: int
    users_again: int
    iterations: int
