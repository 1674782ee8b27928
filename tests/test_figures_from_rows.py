"""Figures made from rows, held against those that a summary would have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from records import MS, header, load_run, outside, phases, row, rows, summary_of, write_lines

from lightning_timing.figures_from_rows import stage_figures
from lightning_timing.phases import (
    BETWEEN_ITERATIONS,
    CALLBACKS,
    CHECKPOINT,
    FIRST_DATA_WAIT,
    FORWARD,
    ITERATION,
    LOGGING,
    OTHER,
)

if TYPE_CHECKING:
    from pathlib import Path

    from lightning_timing.figures import StageSummary
    from lightning_timing.record import Line

ROWS = rows(
    [
        {**phases(data_wait=MS, forward=5 * MS, callbacks=2 * MS, other=MS), f"{CALLBACKS}/Saver": 2 * MS},
        phases(data_wait=3 * MS, forward=6 * MS, logging=MS),
        phases(data_wait=2 * MS, forward=9 * MS, other=4 * MS),
    ]
)


def figures(folder: Path, *lines: Line) -> StageSummary:
    run = load_run(write_lines(folder, [header(), *lines]))
    return stage_figures(run.ranks[0].stages["train"], warmup_iterations=10)


def test_rows_give_the_figures_of_a_summary(tmp_path: Path) -> None:
    found = figures(tmp_path, *ROWS)
    expected = summary_of(ROWS).stages["train"]

    assert (found.iterations, found.warmup_iterations, found.samples) == (3, 10, 96)
    assert set(found.measurements) == set(expected.measurements)
    for name, measurement in expected.measurements.items():
        for field, value in vars(measurement).items():
            assert getattr(found.measurements[name], field) == pytest.approx(value), (name, field)


def test_a_measurement_of_some_iterations(tmp_path: Path) -> None:
    logging = figures(tmp_path, *ROWS).measurements[LOGGING]

    assert logging.count == 1
    assert logging.mean_s == pytest.approx(0.001)
    assert logging.per_iteration_s == pytest.approx(0.001 / 3)
    assert logging.std_s is None


def test_parents_are_those_of_kept_intervals_and_the_iteration_otherwise(tmp_path: Path) -> None:
    ns = {**phases(forward=5 * MS), "matcher": 2 * MS, "unseen": MS}
    kept = row(0, ns, start_ns=0, intervals=[(FORWARD, 0, 5 * MS), ("matcher", MS, 3 * MS)])

    found = figures(tmp_path, kept, *ROWS).measurements

    assert {name: found[name].parent for name in (ITERATION, FORWARD, "matcher", "unseen", OTHER)} == {
        ITERATION: None,
        FORWARD: ITERATION,
        "matcher": FORWARD,
        "unseen": ITERATION,
        OTHER: ITERATION,
    }
    assert found[f"{CALLBACKS}/Saver"].parent == CALLBACKS


def test_what_lies_between_iterations_has_no_share_in_them(tmp_path: Path) -> None:
    checkpoint = f"{BETWEEN_ITERATIONS}/{CHECKPOINT}"
    group = f"{BETWEEN_ITERATIONS}/{CALLBACKS}"
    between = [outside(name, 4 * MS, start_ns=0) for name in (FIRST_DATA_WAIT, checkpoint, group, f"{group}/Saver")]

    found = figures(tmp_path, *between, *ROWS, outside(FIRST_DATA_WAIT, 2 * MS, start_ns=0)).measurements

    wait = found[FIRST_DATA_WAIT]
    assert (wait.count, wait.parent, wait.share, wait.per_iteration_s) == (2, None, None, None)
    assert (wait.total_s, wait.mean_s) == pytest.approx((0.006, 0.003))
    assert found[checkpoint].parent is None
    assert found[f"{group}/Saver"].parent == group


def test_a_measurement_inside_and_outside_of_iterations(tmp_path: Path) -> None:
    """The share is of what lies inside."""
    mixed = [row(0, {**phases(forward=2 * MS), "mine": MS}, start_ns=0), outside("mine", 3 * MS, start_ns=0)]

    mine = figures(tmp_path, *mixed).measurements["mine"]

    assert (mine.count, mine.share, mine.per_iteration_s) == (2, 0.5, 0.001)
    assert mine.mean_s == pytest.approx(0.002)


def test_device_time(tmp_path: Path) -> None:
    ns = phases(forward=MS)
    some = [row(i, ns, start_ns=0, device_ns=device_ns) for i, device_ns in enumerate([{FORWARD: MS}, {}, None])]

    forward = figures(tmp_path, *some).measurements[FORWARD]

    assert forward.device is not None
    assert (forward.device.count, forward.device.untimed) == (1, 2)
    assert forward.device.mean_s == pytest.approx(0.001)


def test_unknown_batch_sizes(tmp_path: Path) -> None:
    assert figures(tmp_path, *ROWS, row(3, phases(forward=MS), start_ns=0, samples=None)).samples is None


def test_nothing_but_a_wait(tmp_path: Path) -> None:
    found = figures(tmp_path, outside(FIRST_DATA_WAIT, MS, start_ns=0))

    assert (found.iterations, found.samples) == (0, None)
    assert found.measurements[FIRST_DATA_WAIT].per_iteration_s is None


def test_iterations_that_took_no_time(tmp_path: Path) -> None:
    found = figures(tmp_path, *rows([phases(forward=0)] * 2)).measurements

    assert found[FORWARD].total_s == 0
    assert found[FORWARD].share is None
