"""The data that passes between a recorder, the code that drives it, and the code that keeps what it measures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from lightning_timing.errors import TimingError
from lightning_timing.ledger import Interval
from lightning_timing.measurement import UserTimes
from lightning_timing.phases import TRAIN
from lightning_timing.validation import check_whole_number


class RecorderSettings:
    """How a recorder counts and how it takes misuse.

    Args:
        num_warmup_iters: First iterations of training that are not counted. Of any other stage only the first one is
            not counted, unless this is 0.
        on_misuse: `raise` a MisuseError, or `warn` once for each name and drop the sample.

    Raises:
        TimingError: One of them is out of its range.
    """

    __slots__ = ("num_warmup_iters", "on_misuse")

    def __init__(self, num_warmup_iters: int = 10, on_misuse: Literal["raise", "warn"] = "raise") -> None:
        check_whole_number("num_warmup_iters", num_warmup_iters, least=0)
        if on_misuse not in ("raise", "warn"):
            raise TimingError(f"on_misuse takes raise or warn, got {on_misuse!r}")
        self.num_warmup_iters = num_warmup_iters
        self.on_misuse: Literal["raise", "warn"] = on_misuse

    def warmup_of(self, stage: str) -> int:
        """Returns how many iterations of a stage are not counted.

        Iterations that compile before any was counted are left out in addition.
        """
        return self.num_warmup_iters if stage == TRAIN else min(self.num_warmup_iters, 1)


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
