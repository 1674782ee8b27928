"""The known-cost model in every setting, by scripted clocks: the ledger is right to the nanosecond."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from known_cost import Books, Costs, FakeClock
from known_cost_model import SETTINGS, Setting, fit_known_cost
from ledger_records import both_flavours, costs_of, first_waits, lightning, stopwatch, summary

from lightning_timing.phases import ITERATION, OTHER, TRAIN, VALIDATE

if TYPE_CHECKING:
    from pathlib import Path

PRIMES = Costs(
    fetch=20_011,
    transfer=15_013,
    step=40_009,
    zero_grad=10_007,
    backward=30_011,
    clip=11_003,
    optimizer=21_001,
    callback=12_007,
    module_hook=13_001,
    validation=31_013,
    between=25_013,
)
"""No sum of a few of them equals another: time in the wrong place shows."""


@both_flavours
@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name.replace(" ", "-"))
def test_every_phase_of_every_iteration_is_what_it_is_known_to_cost(
    setting: Setting, flavour: str, tmp_path: Path
) -> None:
    clock = FakeClock()
    books = Books(PRIMES, clock.advance)
    fit_known_cost(lightning(flavour), setting, books, tmp_path, callbacks=[stopwatch(clock)])

    for stage in (TRAIN, VALIDATE):
        assert costs_of(tmp_path, stage) == [row.expected() for row in books.rows if row.stage == stage]
        assert first_waits(tmp_path, stage) == books.first_waits.get(stage, [])


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name.replace(" ", "-"))
def test_the_summary_holds_the_same_totals(setting: Setting, tmp_path: Path) -> None:
    clock = FakeClock()
    books = Books(PRIMES, clock.advance)
    fit_known_cost(lightning(), setting, books, tmp_path, callbacks=[stopwatch(clock)])

    measurements = summary(tmp_path)["stages"][TRAIN]["measurements"]
    expected = {name: ns / 1e9 for name, ns in books.totals(TRAIN).items()}
    assert {name: measurements[name]["total_s"] for name in expected} == pytest.approx(expected, rel=1e-12)
    assert measurements[OTHER]["total_s"] == 0.0


def test_warm_up_iterations_are_left_out_of_the_figures(tmp_path: Path) -> None:
    clock = FakeClock()
    books = Books(PRIMES, clock.advance)
    callbacks = [stopwatch(clock, num_warmup_iters=4)]
    fit_known_cost(lightning(), SETTINGS[0], books, tmp_path, callbacks=callbacks, batches=5, epochs=2)

    stage = summary(tmp_path)["stages"][TRAIN]
    assert (stage["iterations"], stage["warmup_iterations"]) == (6, 4)
    every = [row.expected() for row in books.rows]
    assert costs_of(tmp_path) == every[4:]
    assert stage["warmup_s"] == pytest.approx(sum(row[ITERATION] for row in every[:4]) / 1e9, rel=1e-12)
    assert stage["measurements"]["forward"]["total_s"] == pytest.approx(6 * PRIMES.step / 1e9)
