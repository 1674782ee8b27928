"""What is written while training: loggers and checkpoints are phases of their own. By scripted clocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torchmetrics
from known_cost import FakeClock
from ledger_records import both_flavours, costs_of, counts, lightning, lines, stopwatch, summary
from lightning.pytorch.callbacks import LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.plugins.io import TorchCheckpointIO
from tiny_training import callback, fit_tiny, spends, step_costing, tiny_loader, tiny_module

if TYPE_CHECKING:
    from pathlib import Path


class CostlyLogger(CSVLogger):
    """A logger whose work costs time."""

    def __init__(self, root: Path, clock: FakeClock, log_ns: int, save_ns: int = 0) -> None:
        super().__init__(root, name="", version="")
        self.clock = clock
        self.log_ns = log_ns
        self.save_ns = save_ns

    def log_metrics(self, *args: Any, **kwargs: Any) -> None:
        self.clock.advance(self.log_ns)
        super().log_metrics(*args, **kwargs)

    def save(self) -> None:
        self.clock.advance(self.save_ns)
        super().save()


class SlowMetric(torchmetrics.MeanMetric):
    """A metric whose computing costs time, as that of a mean average precision."""

    def __init__(self, clock: FakeClock, compute_ns: int) -> None:
        super().__init__()
        self.clock = clock
        self.compute_ns = compute_ns

    def compute(self) -> torch.Tensor:
        self.clock.advance(self.compute_ns)
        return super().compute()


class CostlyCheckpointIO(TorchCheckpointIO):
    """Storage that costs time."""

    def __init__(self, clock: FakeClock, save_ns: int) -> None:
        super().__init__()
        self.clock = clock
        self.save_ns = save_ns

    def save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        self.clock.advance(self.save_ns)
        super().save_checkpoint(*args, **kwargs)


def test_what_logging_the_phases_costs_is_logging_and_not_lightning_s_loop(tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()

    def log_dict(self: Any, *args: Any, **kwargs: Any) -> None:
        clock.advance(7)
        super(type(self), self).log_dict(*args, **kwargs)

    fit_tiny(
        pl,
        tmp_path,
        tiny_module(pl, training_step=step_costing(clock, 10), log_dict=log_dict),
        tiny_loader(6),
        callbacks=[stopwatch(clock, log_to_logger=True), callback(pl, "Later", on_train_batch_end=spends(clock, 2))],
        logger=CostlyLogger(tmp_path, clock, log_ns=5),
        log_every_n_steps=3,
    )

    without = {"forward": 10, "callbacks": 2, "callbacks/Later": 2, "iteration": 12}
    logged = without | {"logging": 12, "iteration": 24}
    assert costs_of(tmp_path) == [without, without, logged] * 2


def test_loggers_are_logging_also_where_a_callback_calls_them(tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()

    def step(self: Any, batch: Any, batch_idx: int) -> torch.Tensor:
        loss: torch.Tensor = self.layer(batch[0]).sum()
        self.log("loss", loss)
        return loss

    def also_logs(self: Any, trainer: Any, *_: Any) -> None:
        clock.advance(3)
        trainer.logger.log_metrics({"extra": 1.0}, step=trainer.global_step)

    fit_tiny(
        pl,
        tmp_path,
        tiny_module(pl, training_step=step),
        tiny_loader(2),
        callbacks=[stopwatch(clock), callback(pl, "AlsoLogs", on_train_batch_end=also_logs)],
        logger=CostlyLogger(tmp_path, clock, log_ns=11, save_ns=5),
        log_every_n_steps=1,
    )

    expected = {"logging": 2 * 11 + 5, "callbacks/AlsoLogs": 3, "callbacks": 3, "iteration": 30}
    assert costs_of(tmp_path) == [expected] * 2


def test_a_logger_set_after_setup_is_a_logger_until_another_one_is(tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()
    loggers = [CostlyLogger(tmp_path / name, clock, log_ns=ns) for name, ns in (("a", 11), ("b", 12), ("c", 13))]

    def set_logger(self: Any, trainer: Any, module: Any) -> None:
        trainer.logger = loggers[1 + trainer.current_epoch]

    fit_tiny(
        pl,
        tmp_path,
        tiny_module(pl),
        tiny_loader(1),
        callbacks=[
            stopwatch(clock),
            callback(pl, "Sets", on_fit_start=set_logger, on_train_epoch_start=set_logger),
            callback(pl, "Logs", on_train_batch_end=lambda self, trainer, *_: trainer.logger.log_metrics({"a": 1.0})),
        ],
        logger=loggers[0],
        max_epochs=2,
    )

    assert costs_of(tmp_path / "a") == [{"logging": ns, "iteration": ns} for ns in (12, 13)]
    assert not any("log_metrics" in vars(logger) for logger in loggers)


def test_a_callback_of_lightning_that_logs_at_a_batch_s_start(tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()
    fit_tiny(
        pl,
        tmp_path,
        tiny_module(pl),
        tiny_loader(2),
        callbacks=[LearningRateMonitor(logging_interval="step"), stopwatch(clock)],
        logger=CostlyLogger(tmp_path, clock, log_ns=11),
        log_every_n_steps=1,
    )

    assert costs_of(tmp_path) == [{"logging": 11, "iteration": 11}] * 2


def outside(root: Path) -> list[tuple[str, str, int]]:
    """What was measured between iterations and took any time: stage, name and nanoseconds."""
    return [(line["stage"], line["name"], line["ns"]) for line in lines(root, "outside") if line["ns"]]


@both_flavours
def test_computing_the_metrics_of_an_epoch_is_logging_between_the_iterations(flavour: str, tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning(flavour)

    def training_step(self: Any, batch: Any, *_: Any) -> torch.Tensor:
        loss: torch.Tensor = self.layer(batch[0]).sum()
        self.log("train", self.train_metric, on_step=False, on_epoch=True)
        self.train_metric.update(loss.detach())
        return loss

    def validation_step(self: Any, batch: Any, *_: Any) -> None:
        clock.advance(5)
        self.val_metric.update(1.0)
        self.log("val", self.val_metric)

    module = tiny_module(pl, training_step=training_step, validation_step=validation_step)
    module.train_metric, module.val_metric = SlowMetric(clock, 100), SlowMetric(clock, 400)
    fit_tiny(
        pl,
        tmp_path,
        module,
        tiny_loader(4),
        tiny_loader(2),
        callbacks=[stopwatch(clock)],
        max_epochs=2,
        val_check_interval=2,
    )

    logging = "between_iterations/logging"
    assert outside(tmp_path) == [
        *[("validate", logging, 400)] * 2,
        ("train", logging, 100),
        *[("validate", logging, 400)] * 2,
        ("train", logging, 100),
    ]
    assert costs_of(tmp_path) == [{}] * 8
    assert costs_of(tmp_path, "validate") == [{"forward": 5, "iteration": 5}] * 8


def test_where_nothing_was_logged_there_is_no_logging(tmp_path: Path) -> None:
    pl = lightning()
    fit_tiny(pl, tmp_path, tiny_module(pl), tiny_loader(2), tiny_loader(1), callbacks=[stopwatch(FakeClock())])

    assert {line["name"] for line in lines(tmp_path, "outside")} == {"first_data_wait"}


def test_what_a_logger_does_with_a_checkpoint_is_logging(tmp_path: Path) -> None:
    """Some upload it, which is not the saving callback's doing."""
    clock = FakeClock()
    pl = lightning()

    class Uploads(CSVLogger):
        def log_graph(self, *_: Any, **__: Any) -> None:
            clock.advance(3)

        def after_save_checkpoint(self, *_: Any) -> None:
            clock.advance(70)

        def finalize(self, *_: Any) -> None:
            clock.advance(9)

    fit_tiny(
        pl,
        tmp_path,
        tiny_module(pl),
        tiny_loader(2),
        callbacks=[stopwatch(clock), ModelCheckpoint(tmp_path, every_n_train_steps=2, save_on_train_epoch_end=False)],
        plugins=[CostlyCheckpointIO(clock, 90)],
        logger=Uploads(tmp_path, name="", version=""),
        enable_checkpointing=True,
    )

    assert costs_of(tmp_path) == [{}, {"checkpoint": 90, "logging": 70, "iteration": 160}]
    assert outside(tmp_path) == [("train", "between_iterations/logging", ns) for ns in (3, 9)]


def test_a_checkpoint_is_taken_out_of_the_time_of_the_callback_that_saves_it(tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()
    fit_tiny(
        pl,
        tmp_path,
        tiny_module(pl),
        tiny_loader(4),
        callbacks=[stopwatch(clock), ModelCheckpoint(tmp_path, every_n_train_steps=2)],
        plugins=[CostlyCheckpointIO(clock, 90)],
        enable_checkpointing=True,
    )

    assert costs_of(tmp_path) == [{}, saved := {"checkpoint": 90, "iteration": 90}, {}, saved]
    assert counts(tmp_path)["checkpoint"] == 2


def test_a_checkpoint_at_the_end_of_the_epoch_is_in_no_iteration(tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()
    fit_tiny(
        pl,
        tmp_path,
        tiny_module(pl, training_step=step_costing(clock, 10)),
        tiny_loader(3),
        callbacks=[stopwatch(clock), ModelCheckpoint(tmp_path)],
        plugins=[CostlyCheckpointIO(clock, 90)],
        enable_checkpointing=True,
        max_epochs=2,
    )

    assert costs_of(tmp_path) == [{"forward": 10, "iteration": 10}] * 6
    assert "checkpoint" not in counts(tmp_path)
    saved = summary(tmp_path)["stages"]["train"]["measurements"]["between_iterations/checkpoint"]
    assert (saved["count"], saved["parent"], saved["share"]) == (2, None, None)
    assert saved["total_s"] == 180e-9
