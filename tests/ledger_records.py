"""Reads back what a run recorded, and holds every row to the ledger's invariants on the way."""

from __future__ import annotations

import importlib
import json
from typing import TYPE_CHECKING, Any

import pytest

from lightning_timing import StopwatchCallback
from lightning_timing.phases import FIRST_DATA_WAIT, ITERATION, PHASES, TRAIN

if TYPE_CHECKING:
    from pathlib import Path

    from known_cost import FakeClock

both_flavours = pytest.mark.parametrize(
    "flavour",
    [pytest.param(name, id=name.partition(".")[0]) for name in ("lightning.pytorch", "pytorch_lightning")],
)
"""Runs a test with the names of both of Lightning's packages; `importlib.import_module` gets the package."""


def lightning(name: str = "lightning.pytorch") -> Any:
    """One of Lightning's packages."""
    return importlib.import_module(name)


def stopwatch(clock: FakeClock, **options: Any) -> StopwatchCallback:
    """Our callback on a scripted clock, without warm-up, unless `options` say otherwise."""
    return StopwatchCallback(**({"num_warmup_iters": 0, "clock": clock} | options))


def lines(root: Path, kind: str) -> list[dict[str, Any]]:
    """The lines of a kind in `rank0.jsonl`, checked."""
    text = (root / "timing" / "rank0.jsonl").read_text()
    every = [json.loads(line) for line in text.splitlines()]
    for line in every:
        if line["kind"] == "iteration":
            check_adds_up(line["ns"])
    return [line for line in every if line["kind"] == kind]


def headers(root: Path) -> list[dict[str, Any]]:
    """The header of each segment: the last one, as it is written again once the Trainer has its loaders."""
    return list({header["segment"]: header for header in lines(root, "header")}.values())


def check_adds_up(ns: dict[str, int]) -> None:
    """The phases are exclusive and add up to the iteration to the nanosecond, and their parts to them."""
    assert sum(ns.get(phase, 0) for phase in PHASES) == ns[ITERATION], ns
    for phase in {name.partition("/")[0] for name in ns if "/" in name}:
        assert sum(ns[name] for name in ns if name.startswith(f"{phase}/")) == ns[phase], ns
    assert min(ns.values()) >= 0, ns


def rows(root: Path, stage: str = TRAIN) -> list[dict[str, Any]]:
    """The iterations of a stage, in the order in which they were written."""
    return [line for line in lines(root, "iteration") if line["stage"] == stage]


def costs_of(root: Path, stage: str = TRAIN) -> list[dict[str, int]]:
    """What each iteration's row says took any time, in nanoseconds by measurement."""
    return [{name: ns for name, ns in row["ns"].items() if ns} for row in rows(root, stage)]


def first_waits(root: Path, stage: str = TRAIN) -> list[int]:
    """The first waits of the epochs of a stage, in nanoseconds."""
    found = lines(root, "outside")
    return [line["ns"] for line in found if line["name"] == FIRST_DATA_WAIT and line["stage"] == stage]


def summary(root: Path) -> dict[str, Any]:
    """The whole of `summary.json`."""
    found: dict[str, Any] = json.loads((root / "timing" / "summary.json").read_text())
    return found


def counts(root: Path, stage: str = TRAIN) -> dict[str, int]:
    """How many intervals of each measurement of a stage the summary counts."""
    measurements = summary(root)["stages"][stage]["measurements"]
    return {name: figures["count"] for name, figures in measurements.items()}
