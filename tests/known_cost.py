"""Clocks that tests move themselves, and the books of a model whose every phase costs a known time.

Time is spent through `Books`, which notes where it went. Handed a `FakeClock` nothing waits, and the ledger can be
asserted to the nanosecond; handed `busy_wait` the same model measures what a real run says.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields

from lightning_timing.phases import DATA_WAIT, ITERATION

MILLISECOND = 1_000_000


class FakeClock:
    """A clock that moves only when it is told to, in nanoseconds."""

    def __init__(self, now_ns: int = 5_000_000_000) -> None:
        self.now_ns = now_ns

    def __call__(self) -> int:
        return self.now_ns

    def advance(self, ns: int) -> int:
        """Lets `ns` pass, and says so."""
        self.now_ns += ns
        return ns


def busy_wait(ns: int) -> int:
    """Keeps the CPU busy for `ns` nanoseconds: sleeping would overshoot by the scheduler's granularity.

    Returns:
        How long it really took: on a machine with other work the last look at the clock may come late.
    """
    begin = now = time.perf_counter_ns()
    while now < begin + ns:
        now = time.perf_counter_ns()
    return now - begin


@dataclass(frozen=True, kw_only=True)
class Costs:
    """What each place costs each time it is reached, in nanoseconds. An iteration comes to about 200 ms.

    Attributes:
        fetch: One batch from the dataset.
        transfer: `transfer_batch_to_device`.
        step: `training_step`, in each evaluation of the closure.
        zero_grad: `optimizer_zero_grad`.
        backward: The backward of an autograd function.
        clip: `configure_gradient_clipping`.
        optimizer: The optimizer's own work, after each evaluation of its closure.
        callback: Each of the other callback's hooks.
        module_hook: The LightningModule's own `on_train_batch_end`.
        validation: `validation_step`.
        between: What runs between iterations: the hooks at the end of an epoch and round validation.
    """

    fetch: int = 20 * MILLISECOND
    transfer: int = 15 * MILLISECOND
    step: int = 40 * MILLISECOND
    zero_grad: int = 10 * MILLISECOND
    backward: int = 30 * MILLISECOND
    clip: int = 10 * MILLISECOND
    optimizer: int = 20 * MILLISECOND
    callback: int = 10 * MILLISECOND
    module_hook: int = 10 * MILLISECOND
    validation: int = 30 * MILLISECOND
    between: int = 25 * MILLISECOND

    def scaled(self, factor: float) -> Costs:
        """All of them times `factor`."""
        return Costs(**{each.name: round(getattr(self, each.name) * factor) for each in fields(self)})


@dataclass
class KnownRow:
    """What one iteration is known to have cost.

    Attributes:
        stage: `train` or `validate`.
        ns: Nanoseconds by phase; one with parts (`callbacks`, a step of several optimizers) by those alone.
    """

    stage: str
    ns: dict[str, int] = field(default_factory=dict)

    def expected(self) -> dict[str, int]:
        """What the record should hold for it: its phases, those with parts as their sum too, and `iteration`."""
        sums: dict[str, int] = {ITERATION: sum(self.ns.values())}
        for name, ns in self.ns.items():
            phase, _, part = name.partition("/")
            if part:
                sums[phase] = sums.get(phase, 0) + ns
        return self.ns | sums


class Books:
    """Spends time and writes down where.

    Attributes:
        costs: What each place costs.
        burn: Lets nanoseconds pass and returns how many did; booked nowhere.
        rows: The iterations, in order.
        first_waits: What the first batch of each epoch cost, in nanoseconds, by stage.
    """

    def __init__(self, costs: Costs, burn: Callable[[int], int]) -> None:
        self.costs = costs
        self.burn = burn
        self.rows: list[KnownRow] = []
        self.first_waits: dict[str, list[int]] = {}
        self._first_of_epoch = False

    def open_iteration(self, stage: str, *, first_of_epoch: bool) -> None:
        """The fetch of the next batch begins."""
        self.rows.append(KnownRow(stage))
        self._first_of_epoch = first_of_epoch
        if first_of_epoch:
            self.first_waits.setdefault(stage, []).append(0)

    def spend(self, phase: str, ns: int) -> None:
        """Lets time pass in a phase of the current iteration."""
        spent = self.burn(ns)
        row = self.rows[-1].ns
        row[phase] = row.get(phase, 0) + spent

    def spend_on_fetch(self, ns: int) -> None:
        """Lets time pass in the wait for a batch."""
        if self._first_of_epoch:
            self.first_waits[self.rows[-1].stage][-1] += self.burn(ns)
        else:
            self.spend(DATA_WAIT, ns)

    def totals(self, stage: str) -> dict[str, int]:
        """Nanoseconds of each expected measurement over the iterations of a stage."""
        sums: dict[str, int] = {}
        for row in self.rows:
            if row.stage == stage:
                for name, ns in row.expected().items():
                    sums[name] = sums.get(name, 0) + ns
        return sums
