"""Loops within loops, shortened, resumed and run again: each iteration once, in its own stage. By scripted clocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from known_cost import FakeClock
from known_cost_model import quiet_trainer
from ledger_records import costs_of, first_waits, headers, lightning, lines, rows, stopwatch, summary
from lightning.pytorch import LightningDataModule
from lightning.pytorch.strategies import SingleDeviceStrategy
from tiny_training import CostlyLoader, callback, fit_tiny, spends, step_costing, tiny_loader, tiny_module

from lightning_timing.phases import SANITY_CHECK, VALIDATE

if TYPE_CHECKING:
    from pathlib import Path

ONE = torch.ones(1, 2)


def test_validation_in_mid_epoch_never_reaches_the_training_figures(tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()
    fetch, validation = 20, 5_000
    module = tiny_module(
        pl,
        validation_step=spends(clock, validation),
        on_validation_epoch_start=spends(clock, validation),
        on_validation_epoch_end=spends(clock, validation),
    )
    fit_tiny(
        pl,
        tmp_path,
        module,
        CostlyLoader(clock, [ONE] * 7, fetch),
        CostlyLoader(clock, [ONE] * 2, fetch),
        callbacks=[stopwatch(clock)],
        max_epochs=50,
        val_check_interval=3,
    )

    steady = {"data_wait": fetch, "iteration": fetch}
    assert costs_of(tmp_path) == [{}, *[steady] * 6] * 50
    assert first_waits(tmp_path) == [fetch] * 50
    forward = {"forward": validation, "iteration": validation}
    assert costs_of(tmp_path, VALIDATE) == [forward, forward | steady | {"iteration": validation + fetch}] * 100
    assert [row["epoch"] for row in rows(tmp_path)] == [epoch for epoch in range(50) for _ in range(7)]


class OneOfTwo(SingleDeviceStrategy):
    """A strategy of one process that waits for others who are not there."""

    def __init__(self, clock: FakeClock, wait_ns: int) -> None:
        super().__init__()
        self.world_size = 2
        self.clock = clock
        self.wait_ns = wait_ns

    def barrier(self, *args: Any, **kwargs: Any) -> None:
        self.clock.advance(self.wait_ns)

    def reduce_boolean_decision(self, decision: bool, all: bool = True) -> bool:  # Lightning's name for it
        self.clock.advance(self.wait_ns)
        return decision


def test_setting_validation_up_is_in_no_iteration_though_gradients_are_kept_and_ranks_wait(tmp_path: Path) -> None:
    """While accumulating no hook tells that validation begins before its loader is there."""
    clock = FakeClock()
    pl = lightning()
    module = tiny_module(
        pl,
        training_step=step_costing(clock, 10),
        val_dataloader=lambda self: (clock.advance(300), tiny_loader(1))[1],
    )
    fit_tiny(
        pl,
        tmp_path,
        module,
        tiny_loader(6),
        callbacks=[stopwatch(clock)],
        strategy=OneOfTwo(clock, 50),
        accumulate_grad_batches=2,
        val_check_interval=3,
        reload_dataloaders_every_n_epochs=1,
        max_epochs=2,
    )

    assert costs_of(tmp_path) == [{"forward": 10, "iteration": 10}] * 12


def test_deciding_with_the_other_ranks_is_a_wait_for_them_and_no_work_of_the_callback_that_asks(tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()

    def decides(self: Any, trainer: Any, *_: Any) -> None:
        clock.advance(7)
        trainer.strategy.reduce_boolean_decision(True)

    fit_tiny(
        pl,
        tmp_path,
        tiny_module(pl),
        tiny_loader(2),
        callbacks=[stopwatch(clock), callback(pl, "Stops", on_train_batch_end=decides, on_train_epoch_end=decides)],
        strategy=OneOfTwo(clock, 50),
    )

    own = {"callbacks/Stops": 7, "callbacks": 7}
    assert costs_of(tmp_path) == [{**own, "barrier": 50, "iteration": 57}] * 2
    between = {line["name"]: line["ns"] for line in lines(tmp_path, "outside") if line["epoch"] == 0 and line["ns"]}
    assert between["between_iterations/callbacks/Stops"] == 7
    assert between["between_iterations/barrier"] == 50


class Data(LightningDataModule):
    """Takes its time to make loaders."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self.clock = clock

    def train_dataloader(self) -> Any:
        self.clock.advance(200)
        return tiny_loader(2)

    def val_dataloader(self) -> Any:
        self.clock.advance(100)
        return tiny_loader(1)


@pytest.mark.parametrize("accumulated", [1, 2])
def test_making_the_loaders_anew_is_time_of_the_data_module_between_iterations(
    accumulated: int, tmp_path: Path
) -> None:
    clock = FakeClock()
    pl = lightning()
    trainer = quiet_trainer(
        pl,
        tmp_path,
        callbacks=[stopwatch(clock)],
        max_epochs=3,
        num_sanity_val_steps=0,
        reload_dataloaders_every_n_epochs=1,
        accumulate_grad_batches=accumulated,
    )
    trainer.fit(tiny_module(pl, training_step=step_costing(clock, 10)), datamodule=Data(clock))

    made = [line["ns"] for line in lines(tmp_path, "outside") if line["name"] == "between_iterations/callbacks/Data"]
    assert sorted(made) == [100] * 3 + [200] * 3
    assert costs_of(tmp_path) == [{"forward": 10, "iteration": 10}] * 6


def test_nothing_that_a_run_keeps_grows_with_its_epochs(tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()
    sizes = []
    for epochs in (2, 20):
        root = tmp_path / str(epochs)
        options = {"max_epochs": epochs, "val_check_interval": 3}
        fit_tiny(pl, root, tiny_module(pl), tiny_loader(7), tiny_loader(2), callbacks=[stopwatch(clock)], **options)
        sizes.append({name: set(stage["measurements"]) for name, stage in summary(root)["stages"].items()})
    assert sizes[0] == sizes[1]


def test_sanity_checking_is_a_stage_of_its_own_and_uses_up_no_warm_up(tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()
    module = tiny_module(pl, validation_step=spends(clock, 30))
    options = {"callbacks": [stopwatch(clock, num_warmup_iters=1)], "num_sanity_val_steps": 2}
    fit_tiny(pl, tmp_path, module, tiny_loader(4), tiny_loader(3), **options)

    stages = summary(tmp_path)["stages"]
    figures = {name: (stage["iterations"], stage["warmup_iterations"]) for name, stage in stages.items()}
    assert figures == {SANITY_CHECK: (1, 1), "train": (3, 1), VALIDATE: (2, 1)}
    assert [row["ns"]["forward"] for row in rows(tmp_path, SANITY_CHECK)] == [30]


@pytest.mark.parametrize(
    ("options", "iterations"),
    [
        pytest.param({"fast_dev_run": True, "logger": True}, 1, id="fast_dev_run"),
        pytest.param({"overfit_batches": 2, "max_epochs": 2}, 4, id="overfit_batches"),
        pytest.param({"logger": False, "max_epochs": 2}, 12, id="no-logger"),
        pytest.param({"barebones": True}, 6, id="barebones"),
        pytest.param({"max_steps": 4, "max_epochs": -1}, 4, id="max_steps"),
    ],
)
def test_shortened_runs_report_the_iterations_that_they_had(
    options: dict[str, Any], iterations: int, tmp_path: Path
) -> None:
    clock = FakeClock()
    pl = lightning()
    barebones = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"))
    options = (barebones | {"num_sanity_val_steps": None} | options) if "barebones" in options else options
    fit_tiny(pl, tmp_path, tiny_module(pl), tiny_loader(6), callbacks=[stopwatch(clock)], **options)

    assert summary(tmp_path)["stages"]["train"]["iterations"] == iterations
    assert len(rows(tmp_path)) == iterations


def save_at(root: Path, batch_idx: int) -> Any:
    """A callback that saves a checkpoint at the end of a batch."""

    def save(self: Any, trainer: Any, module: Any, outputs: Any, batch: Any, index: int) -> None:
        if index == batch_idx:
            trainer.save_checkpoint(root / "mid.ckpt")

    return callback(lightning(), "SaveAt", on_train_batch_end=save)


def test_resuming_in_mid_epoch_measures_what_is_left(tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()
    loader = CostlyLoader(clock, [ONE] * 6, 20)
    fit_tiny(pl, tmp_path, tiny_module(pl), loader, callbacks=[stopwatch(clock), save_at(tmp_path, 3)])
    resumed = quiet_trainer(pl, tmp_path, callbacks=[stopwatch(clock), save_at(tmp_path, -1)], max_epochs=1)
    resumed.fit(tiny_module(pl), loader, ckpt_path=tmp_path / "mid.ckpt")

    first, second = headers(tmp_path)
    labels = [
        (row["epoch"], row["batch_idx"], row["global_step"])
        for row in rows(tmp_path)
        if row["segment"] == second["segment"]
    ]
    assert labels == [(0, 4, 4), (0, 5, 5)]
    assert sum(row["segment"] == first["segment"] for row in rows(tmp_path)) == 6
    assert [segment["iterations"] for segment in summary(tmp_path)["segments"]][-1] == {"train": 2}
    state = torch.load(tmp_path / "mid.ckpt", weights_only=False)["callbacks"]
    assert not [key for key in state if "Stopwatch" in key]


def test_resuming_a_finished_run_writes_a_valid_empty_report(tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()
    trainer = fit_tiny(pl, tmp_path / "whole", tiny_module(pl), tiny_loader(3))
    trainer.save_checkpoint(tmp_path / "end.ckpt")
    resumed = quiet_trainer(pl, tmp_path, callbacks=[stopwatch(clock)], max_epochs=1)
    resumed.fit(tiny_module(pl), tiny_loader(3), ckpt_path=tmp_path / "end.ckpt")

    assert rows(tmp_path) == []
    report = summary(tmp_path)
    assert report["status"] == "completed"
    assert [(segment["entry_point"], segment["status"]) for segment in report["segments"]] == [("fit", "completed")]


def test_each_call_of_the_trainer_is_a_segment_of_its_own(tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()
    module = tiny_module(pl, test_step=spends(clock, 40), predict_step=spends(clock, 50))
    trainer = fit_tiny(pl, tmp_path, module, tiny_loader(3), callbacks=[stopwatch(clock)])
    trainer.fit(module, tiny_loader(3))
    trainer.fit_loop.max_epochs = 2
    trainer.fit(module, tiny_loader(3))
    trainer.test(module, tiny_loader(2), verbose=False)
    trainer.predict(module, tiny_loader(2))

    assert trainer.global_step == 6
    report = summary(tmp_path)
    assert [
        (each["entry_point"], each["iterations"].get(stage, 0))
        for each, stage in zip(report["segments"], ["train", "train", "train", "test", "predict"], strict=True)
    ] == [("fit", 3), ("fit", 0), ("fit", 3), ("test", 2), ("predict", 2)]
    assert {name: stage["iterations"] for name, stage in report["stages"].items()} == {
        "train": 6,
        "test": 2,
        "predict": 2,
    }
    assert report["stages"]["test"]["measurements"]["forward"]["mean_s"] == 40e-9
    assert report["stages"]["predict"]["measurements"]["forward"]["mean_s"] == 50e-9
    assert len(headers(tmp_path)) == len(lines(tmp_path, "end")) == 5
