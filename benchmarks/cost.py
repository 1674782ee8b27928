"""What timing costs: every figure a ratio within this one run, or a difference within it.

    python -m benchmarks.cost [--markdown] [--repeats 15]

All times are CPU time, which other work on the machine hardly stretches and which the record's own thread is part of.
Candidates take turns; a ratio is the median over the repeats of the two costs of one repeat. Torch has one thread.

- Pairs: 40,000 starts and ends in a loop unrolled tenfold. SimpleProfiler as in use: its lists grow and are never
  cleared. The Stopwatch with a `finish_iter` after every ten pairs, whose cost is in the figure and is shown alone as
  well. `span` with both of the Stopwatch and the NVTX ranges enabled. No NVTX tool is attached.
- Batches: a linear layer under SGD in a real Trainer; the mean of 1,000 of them from one request for a batch to the
  next, the print that comes after as many (to nowhere), the record and all else that happens now and then included. A
  preset's cost is what its batch takes beyond a Trainer's without callbacks, relative to what three empty callbacks
  take beyond it. `training` adds no callback: its row shows the noise, as the row above it does.
- Long run: 200,000 iterations after 10,000, in a process of its own.
- Import: a fresh interpreter.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NamedTuple

import torch

from benchmarks import cost_batches, cost_growth, cost_pairs
from benchmarks.interleaved import Costs, excess, ratio, typical
from benchmarks.quiet import silence_lightning
from benchmarks.tables import print_table


class Row(NamedTuple):
    """A line of a table.

    Attributes:
        name: What was measured.
        cost: Its own cost, with the unit.
        value: The figure that the target is about; None: there is no target.
        unit: Of that figure; empty for a ratio.
        target: What it may be at most.
    """

    name: str
    cost: str
    value: float | None = None
    unit: str = ""
    target: float | None = None

    @property
    def is_met(self) -> bool:
        """Whether the target, if any, is met."""
        return self.target is None or self.value is None or self.value <= self.target

    def cells(self) -> list[str]:
        """As text."""
        value = "" if self.value is None else f"{self.value:.2f}{self.unit}"
        if self.target is None:
            return [self.name, self.cost, value, "", ""]
        return [self.name, self.cost, value, f"{self.target:g}{self.unit}", "met" if self.is_met else "missed"]


def pair_rows(costs: Costs) -> list[Row]:
    """One start and one end."""

    def row(name: str, to: str | None = None, target: float | None = None) -> Row:
        value = None if to is None else ratio(costs, name, to)
        label = name if to is None else f"{name} / {to}"
        return Row(label, f"{typical(costs, name):.0f} ns", value, "", target)

    return [
        row(cost_pairs.SIMPLE),
        row(cost_pairs.ENABLED, cost_pairs.SIMPLE, 0.8),
        row(cost_pairs.FINISH),
        row(cost_pairs.FLOOR, cost_pairs.SIMPLE),
        row(cost_pairs.EMPTY),
        row(cost_pairs.DISABLED, cost_pairs.EMPTY, 1.2),
        row(cost_pairs.SPAN_ENABLED, cost_pairs.SIMPLE, 2.0),
        row(cost_pairs.SPAN_DISABLED, cost_pairs.SIMPLE, 0.5),
        row(cost_pairs.ANNOTATE),
        row(cost_pairs.NVTX_ENABLED, cost_pairs.ANNOTATE),
    ]


def batch_rows(costs: Costs, traceml: Costs | None) -> list[Row]:
    """A training batch."""

    def row(costs: Costs, name: str, target: float | None = None) -> Row:
        cost = excess(costs, name, cost_batches.BARE)
        share = cost / excess(costs, cost_batches.THREE_EMPTY, cost_batches.BARE)
        return Row(name, f"{cost:+.1f} us", share, "", target)

    rows = [
        Row(cost_batches.BARE, f"{typical(costs, cost_batches.BARE):.1f} us"),
        row(costs, cost_batches.BARE_AGAIN),
        row(costs, cost_batches.THREE_EMPTY),
        row(costs, "training"),
        row(costs, "evaluation", 0.2),
        row(costs, cost_batches.SILENT),
        row(costs, cost_batches.SPANNED),
        row(costs, cost_batches.AT_ONCE),
        row(costs, "profiling", 0.4),
        row(costs, cost_batches.ONE_HOOK),
        row(costs, cost_batches.PREPARED),
        row(costs, cost_batches.SIMPLE),
    ]
    return rows if traceml is None else [*rows, row(traceml, cost_batches.TRACEML)]


def growth_rows() -> list[Row]:
    """A long run."""
    rows = []
    for name, preset in ((cost_batches.BARE, None), ("evaluation", "evaluation")):
        memory_mb, slowdown = cost_growth.growth(preset)
        limits = (None, None) if preset is None else (20.0, 1.1)
        rows.append(Row(f"memory added by 200,000 iterations, {name}", "", memory_mb, " MB", limits[0]))
        rows.append(Row(f"a batch at their end / at their start, {name}", "", slowdown, "", limits[1]))
    return rows


def import_rows(costs: Costs) -> list[Row]:
    """The package's import."""
    bare, ours = cost_growth.BARE_INTERPRETER, cost_growth.IMPORT
    heavy = cost_growth.heavy_imports()
    return [
        Row(bare, f"{typical(costs, bare):.0f} ms"),
        Row(f"{ours}, beyond it", f"{typical(costs, ours):.0f} ms", excess(costs, ours, bare), " ms", 50),
        Row("torch and lightning among what it imports", ", ".join(heavy) or "none", float(len(heavy)), "", 0),
    ]


def main() -> int:
    """Prints the tables. Returns 1 if a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", action="store_true", help="for the README")
    parser.add_argument("--repeats", type=int, default=15, help="turns of each candidate")
    arguments = parser.parse_args()
    silence_lightning()
    torch.set_num_threads(1)

    repeats: int = arguments.repeats
    tables: Sequence[tuple[str, str, list[Row]]] = (
        ("One start and one end", "ratio", pair_rows(cost_pairs.pair_costs(repeats))),
        (
            "A training batch",
            "of three empty callbacks",
            batch_rows(cost_batches.batch_costs(repeats), cost_batches.traceml_costs(repeats)),
        ),
        ("A long run", "growth", growth_rows()),
        ("Import", "figure", import_rows(cost_growth.import_costs(repeats))),
    )
    for title, figure, rows in tables:
        columns = ["", "cost", figure, "target", ""]
        print_table(title, columns, [row.cells() for row in rows], markdown=arguments.markdown)
    return 0 if all(row.is_met for _, _, rows in tables for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
