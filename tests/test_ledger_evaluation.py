"""Validation, testing, prediction and sanity checking have the same ledger, by scripted clocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from known_cost import FakeClock
from known_cost_model import quiet_trainer
from ledger_records import both_flavours, costs_of, counts, first_waits, lightning, lines, rows, stopwatch, summary
from tiny_training import CostlyLoader, callback, fit_tiny, spends, step_costing, tiny_loader, tiny_module
from torch.utils.data import DataLoader, IterableDataset

from lightning_timing.phases import SANITY_CHECK, TRAIN, VALIDATE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ONE = torch.ones(1, 2)


def costly_module(pl: Any, clock: FakeClock) -> Any:
    steps = {f"{stage}_step": spends(clock, 40) for stage in ("validation", "test", "predict")}
    ends = {f"on_{stage}_batch_end": spends(clock, 5) for stage in ("validation", "test", "predict")}
    epochs = {f"on_{stage}_epoch_end": spends(clock, 1_000) for stage in ("validation", "test", "predict")}
    transfer = {"transfer_batch_to_device": lambda self, batch, *_: (clock.advance(15), batch)[1]}
    return tiny_module(pl, **steps, **ends, **epochs, **transfer)


def costly_hooks(pl: Any, clock: FakeClock) -> Any:
    hooks = {f"on_{stage}_batch_start": spends(clock, 7) for stage in ("validation", "test", "predict")}
    return callback(pl, "Other", **hooks)


EXPECTED = {
    "batch_transfer": 15,
    "forward": 40,
    "callbacks/TinyModule": 5,
    "callbacks/Other": 7,
    "callbacks": 12,
    "iteration": 67,
}
STEADY = EXPECTED | {"data_wait": 20, "iteration": 87}


@both_flavours
@pytest.mark.parametrize("entry_point", ["validate", "test", "predict"])
def test_an_evaluation_has_the_ledger_of_its_stage(entry_point: str, flavour: str, tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning(flavour)
    trainer = quiet_trainer(pl, tmp_path, callbacks=[stopwatch(clock), costly_hooks(pl, clock)])
    options = {} if entry_point == "predict" else {"verbose": False}
    getattr(trainer, entry_point)(costly_module(pl, clock), CostlyLoader(clock, [ONE] * 3, 20), **options)

    assert costs_of(tmp_path, entry_point) == [EXPECTED, STEADY, STEADY]
    assert first_waits(tmp_path, entry_point) == [20]
    assert list(summary(tmp_path)["stages"]) == [entry_point]
    assert "backward" not in counts(tmp_path, entry_point)


def test_several_loaders_are_one_stage(tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()
    trainer = quiet_trainer(pl, tmp_path, callbacks=[stopwatch(clock)])
    loaders = [CostlyLoader(clock, [ONE] * batches, 20) for batches in (2, 3)]
    module = tiny_module(pl, validation_step=lambda self, batch, batch_idx, dataloader_idx: clock.advance(40))
    trainer.validate(module, loaders, verbose=False)

    assert [row["batch_idx"] for row in rows(tmp_path, VALIDATE)] == [0, 1, 0, 1, 2]
    assert (
        sum(row.get("data_wait", 0) for row in costs_of(tmp_path, VALIDATE)) + sum(first_waits(tmp_path, VALIDATE))
        == 5 * 20
    )


def test_sanity_checking_and_validation_are_told_apart(tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()
    loaders = tiny_loader(2), CostlyLoader(clock, [ONE] * 3, 20)
    callbacks = [stopwatch(clock), costly_hooks(pl, clock)]
    fit_tiny(pl, tmp_path, costly_module(pl, clock), *loaders, callbacks=callbacks, num_sanity_val_steps=2)

    assert costs_of(tmp_path, SANITY_CHECK) == [EXPECTED, STEADY]
    assert costs_of(tmp_path, VALIDATE) == [EXPECTED, STEADY, STEADY]
    assert costs_of(tmp_path, TRAIN) == [{"batch_transfer": 15, "iteration": 15}] * 2
    assert [first_waits(tmp_path, stage) for stage in (SANITY_CHECK, VALIDATE, TRAIN)] == [[20], [20], [0]]


def test_what_follows_the_last_batch_of_a_stage_is_counted_though_the_stage_never_comes_again(tmp_path: Path) -> None:
    clock, pl = FakeClock(), lightning()
    late = callback(pl, "Late", on_validation_epoch_end=spends(clock, 7), on_validation_end=spends(clock, 50))
    callbacks = [stopwatch(clock), late]
    fit_tiny(pl, tmp_path, tiny_module(pl), tiny_loader(2), tiny_loader(1), callbacks=callbacks, max_epochs=2)

    found = summary(tmp_path)["stages"][VALIDATE]["measurements"]["between_iterations/callbacks/Late"]
    assert (found["count"], found["total_s"]) == (4, 2 * 57e-9)


class NoSamples(IterableDataset[Any]):
    """Of a length that is not known before."""

    def __iter__(self) -> Iterator[Any]:
        return iter(())


@pytest.mark.parametrize(
    "nothing", [[], tiny_loader(0), DataLoader(NoSamples())], ids=["no-loader", "no-batch", "no-length"]
)
def test_where_there_is_nothing_to_validate_the_training_goes_on(nothing: Any, tmp_path: Path) -> None:
    clock, pl = FakeClock(), lightning()
    module = tiny_module(pl, training_step=step_costing(clock, 5))
    loader = CostlyLoader(clock, [ONE] * 4, 20)
    fit_tiny(pl, tmp_path, module, loader, nothing, callbacks=[stopwatch(clock)], val_check_interval=2, max_epochs=2)

    first, steady = {"forward": 5, "iteration": 5}, {"data_wait": 20, "forward": 5, "iteration": 25}
    assert costs_of(tmp_path) == [first, steady, steady, steady] * 2
    assert first_waits(tmp_path) == [20, 20]
    assert rows(tmp_path, VALIDATE) == []


def test_an_epoch_s_first_wait_is_of_that_epoch_after_a_validation_that_fetches_for_itself(tmp_path: Path) -> None:
    clock, pl = FakeClock(), lightning()
    module = tiny_module(pl, validation_step=lambda self, dataloader_iter: next(dataloader_iter) and None)
    loaders = CostlyLoader(clock, [ONE] * 2, 20), CostlyLoader(clock, [ONE] * 2, 30)
    fit_tiny(pl, tmp_path, module, *loaders, callbacks=[stopwatch(clock)], max_epochs=3)

    waits = [line for line in lines(tmp_path, "outside") if line["name"] == "first_data_wait"]
    assert [(line["epoch"], line["ns"]) for line in waits if line["stage"] == TRAIN] == [(0, 20), (1, 20), (2, 20)]
