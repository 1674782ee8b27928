"""How right the phases are: a model whose every phase costs a known time, beside Lightning's SimpleProfiler.

    python -m benchmarks.ledger [--markdown] [--scale 1.0] [--batches 5] [--epochs 2]

Each setting is fitted twice in a real Trainer: with `StopwatchCallback`, and with `SimpleProfiler` alone; before that
once with nothing to burn, so that what torch initializes on first use is in neither. The model, which is also the
tests', burns 10 to 40 ms of CPU in each phase, some 200 ms an iteration, and keeps its own books of where it did.
Compared are the sums over all training iterations:

- known: the model's books, which hold what each burn really took by the clock (other work on the machine stretches it).
  Nothing is added for what Lightning and autograd do themselves inside a phase, so that an error of 1 to 2 % is theirs
  and no mistake of either tool.
- lightning_timing: `summary.json`, without warm-up. The error counts every phase that either side knows, and `other`,
  which nobody burnt. The first wait of each epoch is no part of an iteration, on either side.
- SimpleProfiler: the sum of the actions nearest to the phase. It has no notion of the rest, so its `other` does not
  count against it; nor do the first waits, which are taken out here by hand. Its `optimizer_step` in automatic
  optimization is the whole step with the closure inside, its `backward` holds the hooks of others: that is what the
  user reads there.

With DataLoader workers the loop waits for nothing, so the known wait is 0 and what remains is the hand-over. Torch has
one thread: its operations are tiny, and handing them to others would cost more than they do.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import tempfile
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import lightning.pytorch as pl
import torch
from lightning.pytorch.profilers import SimpleProfiler

from benchmarks.quiet import silence_lightning
from benchmarks.tables import print_table
from lightning_timing import StopwatchCallback
from lightning_timing.phases import (
    BACKWARD,
    BATCH_TRANSFER,
    CALLBACKS,
    DATA_WAIT,
    FORWARD,
    GRAD_CLIP,
    ITERATION,
    OPTIMIZER_STEP,
    OTHER,
    PHASES,
    TRAIN,
    ZERO_GRAD,
)
from tests.known_cost import Books, Costs, busy_wait
from tests.known_cost_model import CALLBACK_NAME, MODULE_NAME, SETTINGS, Setting, fit_known_cost

MAX_ERROR = 0.03
MAX_OTHER = 0.02

_MODULE = f"[LightningModule]{MODULE_NAME}"
_CALLBACK = f"[Callback]{CALLBACK_NAME}"
_STRATEGY = "[Strategy]SingleDeviceStrategy"
NEAREST_ACTIONS: dict[str, tuple[str, ...]] = {
    DATA_WAIT: ("[_TrainingEpochLoop].train_dataloader_next",),
    BATCH_TRANSFER: (f"{_STRATEGY}.batch_to_device",),
    FORWARD: (f"{_STRATEGY}.training_step",),
    ZERO_GRAD: (f"{_MODULE}.optimizer_zero_grad",),
    BACKWARD: (f"{_STRATEGY}.backward",),
    GRAD_CLIP: (f"{_MODULE}.configure_gradient_clipping",),
    OPTIMIZER_STEP: (f"{_MODULE}.optimizer_step", "optimizer_step"),
    CALLBACKS: (
        f"{_CALLBACK}.on_train_batch_start",
        f"{_CALLBACK}.on_before_backward",
        f"{_CALLBACK}.on_before_optimizer_step",
        f"{_CALLBACK}.on_train_batch_end",
        f"{_MODULE}.on_train_batch_end",
    ),
}
"""What a reader of SimpleProfiler's report would take for each phase."""


@dataclass(frozen=True)
class Outcome:
    """One setting, in nanoseconds by phase over all training iterations.

    Attributes:
        iterations: How many those were.
        known: By the model's books, in the run that lightning_timing measured.
        ours: By lightning_timing.
        simple_known: By the model's books, in the run that SimpleProfiler measured.
        simple: By SimpleProfiler.
    """

    iterations: int
    known: Mapping[str, float]
    ours: Mapping[str, float]
    simple_known: Mapping[str, float]
    simple: Mapping[str, float]

    @property
    def error(self) -> float:
        """The sum over phases of |measured - known|, as a share of the known total."""
        return _difference(self.ours, self.known)

    @property
    def simple_error(self) -> float:
        """The same for SimpleProfiler."""
        return _difference(self.simple, self.simple_known)

    @property
    def other_share(self) -> float:
        """The share of the measured iterations that no phase claimed."""
        return self.ours[OTHER] / self.ours[ITERATION]

    @property
    def is_right(self) -> bool:
        """Whether both targets are met."""
        return self.error <= MAX_ERROR and self.other_share <= MAX_OTHER


def _difference(measured: Mapping[str, float], known: Mapping[str, float]) -> float:
    return sum(abs(measured.get(phase, 0) - known.get(phase, 0)) for phase in PHASES) / known[ITERATION]


def run(setting: Setting, costs: Costs, batches: int, epochs: int) -> Outcome:
    """Fits the model in a setting, once with each of the two."""
    books, simple_books = Books(costs, busy_wait), Books(costs, busy_wait)
    fit = partial(fit_known_cost, pl, setting, batches=batches, epochs=epochs)
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):
        root = Path(folder)
        fit(Books(costs.scaled(0), busy_wait), root)
        fit(books, root, callbacks=[StopwatchCallback(num_warmup_iters=0)])
        stage = json.loads((root / "timing" / "summary.json").read_text())["stages"][TRAIN]
        profiler = SimpleProfiler()
        fit(simple_books, root, profiler=profiler)
    return Outcome(
        iterations=stage["iterations"],
        known=books.totals(TRAIN),
        ours={name: 1e9 * (each["total_s"] or 0) for name, each in stage["measurements"].items()},
        simple_known=simple_books.totals(TRAIN),
        simple=_nearest(profiler, batches),
    )


def _nearest(profiler: SimpleProfiler, batches: int) -> dict[str, float]:
    """What SimpleProfiler has for each phase, in nanoseconds, without the first wait of each epoch."""
    recorded = profiler.recorded_durations
    found = {
        phase: 1e9 * sum(sum(recorded.get(action, ())) for action in actions)
        for phase, actions in NEAREST_ACTIONS.items()
    }
    first_waits = recorded[NEAREST_ACTIONS[DATA_WAIT][0]][::batches]
    found[DATA_WAIT] -= 1e9 * sum(first_waits)
    return found


def summary_rows(outcomes: Mapping[str, Outcome]) -> list[list[str]]:
    """One row a setting."""
    return [
        [
            name,
            f"{each.known[ITERATION] / each.iterations / 1e6:.1f} ms",
            f"{each.error:.1%}",
            f"{each.other_share:.1%}",
            "met" if each.is_right else "missed",
            f"{each.simple_error:.1%}",
        ]
        for name, each in outcomes.items()
    ]


def phase_rows(outcome: Outcome) -> list[list[str]]:
    """One row a phase: milliseconds an iteration."""
    rows = []
    for phase in PHASES:
        if phase in outcome.known or outcome.ours.get(phase):
            columns = outcome.known.get(phase, 0), outcome.ours.get(phase, 0), outcome.simple.get(phase)
            cells = ["-" if ns is None else f"{ns / outcome.iterations / 1e6:.2f}" for ns in columns]
            rows.append([phase, *cells])
    return rows


def main() -> int:
    """Prints the tables. Returns 1 if a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", action="store_true", help="for the README")
    parser.add_argument("--scale", type=float, default=1.0, help="of what each phase burns")
    parser.add_argument("--batches", type=int, default=5, help="in an epoch")
    parser.add_argument("--epochs", type=int, default=2)
    arguments = parser.parse_args()
    silence_lightning()
    torch.set_num_threads(1)

    costs = Costs().scaled(arguments.scale)
    outcomes = {each.name: run(each, costs, arguments.batches, arguments.epochs) for each in SETTINGS}
    print_table(
        f"Sum over phases of |measured - known|; targets: error {MAX_ERROR:.0%}, other {MAX_OTHER:.0%}",
        ["setting", "known iteration", "error", "other", "targets", "SimpleProfiler's error"],
        summary_rows(outcomes),
        markdown=arguments.markdown,
    )
    for name, outcome in outcomes.items():
        columns = ["phase", "known", "lightning_timing", "SimpleProfiler"]
        print_table(f"{name}, ms an iteration", columns, phase_rows(outcome), markdown=arguments.markdown)
    return 0 if all(each.is_right for each in outcomes.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
