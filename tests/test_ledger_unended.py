"""Whatever starts a phase and never ends it neither fails the run nor bills its time to someone else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from known_cost import FakeClock
from known_cost_model import quiet_trainer
from ledger_records import costs_of, counts, lightning, lines, rows, stopwatch, summary
from lightning.pytorch.callbacks import BatchSizeFinder, LearningRateFinder
from lightning.pytorch.tuner import Tuner
from tiny_training import CostlyLoader, callback, fit_tiny, tiny_loader, tiny_module

from lightning_timing import Stopwatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ONE = torch.ones(1, 2)
WHOLE = {"forward": 10, "iteration": 10}


def costly_step(clock: FakeClock, instead: Callable[[Any, int], None] = lambda module, batch_idx: None) -> Any:
    """A training step of 10 ns; `instead` may raise before it is through."""

    def step(self: Any, batch: Any, batch_idx: int) -> torch.Tensor:
        clock.advance(4)
        instead(self, batch_idx)
        clock.advance(6)
        return self.layer(batch if isinstance(batch, torch.Tensor) else batch[0]).sum()

    return step


def batches_of(root: Path) -> list[tuple[int, int]]:
    return [(row["epoch"], row["batch_idx"]) for row in rows(root)]


def test_the_rest_of_the_epoch_is_skipped(tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()

    def start(self: Any, batch: Any, batch_idx: int) -> int | None:
        clock.advance(100)
        return -1 if batch_idx == 2 else None

    module = tiny_module(pl, training_step=costly_step(clock), on_train_batch_start=start)
    fit_tiny(pl, tmp_path, module, CostlyLoader(clock, [ONE] * 5, 20), callbacks=[stopwatch(clock)], max_epochs=2)

    first = WHOLE | {"callbacks/TinyModule": 100, "callbacks": 100, "iteration": 110}
    assert costs_of(tmp_path) == [first, first | {"data_wait": 20, "iteration": 130}] * 2
    assert batches_of(tmp_path) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert summary(tmp_path)["status"] == "completed"


def test_the_step_leaves_the_loop(tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()

    def leave(module: Any, batch_idx: int) -> None:
        if batch_idx == 2:
            raise StopIteration

    module = tiny_module(pl, training_step=costly_step(clock, leave))
    fit_tiny(pl, tmp_path, module, tiny_loader(5), tiny_loader(1), callbacks=[stopwatch(clock)], max_epochs=2)

    assert costs_of(tmp_path) == [WHOLE] * 4
    assert batches_of(tmp_path) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert counts(tmp_path)["forward"] == 4


def test_a_stop_that_was_asked_for_ends_whole_iterations(tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()

    def stop(module: Any, batch_idx: int) -> None:
        module.trainer.should_stop = batch_idx == 2

    module = tiny_module(pl, training_step=costly_step(clock, stop))
    fit_tiny(pl, tmp_path, module, tiny_loader(5), callbacks=[stopwatch(clock)], max_epochs=3)

    assert costs_of(tmp_path) == [WHOLE] * 3


def _fail_in_step(clock: FakeClock) -> dict[str, Any]:
    def fail(module: Any, batch_idx: int) -> None:
        if batch_idx == 3:
            raise RuntimeError("in the step")

    return {"training_step": costly_step(clock, fail)}


def _fail_in_backward(clock: FakeClock) -> dict[str, Any]:
    def backward(self: Any, loss: torch.Tensor) -> None:
        clock.advance(50)
        if self.trainer.fit_loop.epoch_loop.batch_idx == 3:
            raise RuntimeError("in backward")

    return {"training_step": costly_step(clock), "backward": backward}


def _fail_in_scheduler(clock: FakeClock) -> dict[str, Any]:
    def scheduler_step(self: Any, *_: Any) -> None:
        if self.trainer.fit_loop.epoch_loop.batch_idx == 3:
            raise RuntimeError("in the scheduler")

    def optimizers(self: Any) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer)
        return [optimizer], [{"scheduler": scheduler, "interval": "step"}]

    hooks = {"configure_optimizers": optimizers, "lr_scheduler_step": scheduler_step}
    return {"training_step": costly_step(clock)} | hooks


def _fail_in_validation(clock: FakeClock) -> dict[str, Any]:
    def validation_step(self: Any, batch: Any, batch_idx: int) -> None:
        raise RuntimeError("in validation")

    return {"training_step": costly_step(clock), "validation_step": validation_step}


@pytest.mark.parametrize(
    ("hooks", "whole"),
    [
        pytest.param(_fail_in_step, [WHOLE] * 3, id="step"),
        pytest.param(_fail_in_backward, [WHOLE | {"backward": 50, "iteration": 60}] * 3, id="backward"),
        pytest.param(_fail_in_scheduler, [WHOLE] * 3, id="scheduler"),
        pytest.param(_fail_in_validation, [WHOLE] * 4, id="validation"),
    ],
)
def test_an_error_leaves_the_whole_iterations_and_a_clean_start(
    hooks: Callable[[FakeClock], dict[str, Any]], whole: list[dict[str, int]], tmp_path: Path
) -> None:
    clock = FakeClock()
    pl = lightning()
    ours = stopwatch(clock)
    options = {"callbacks": [ours], "val_check_interval": 4}
    with pytest.raises(RuntimeError, match="in "):
        fit_tiny(pl, tmp_path, tiny_module(pl, **hooks(clock)), tiny_loader(6), tiny_loader(1), **options)

    assert costs_of(tmp_path) == whole
    assert summary(tmp_path)["status"] == "failed"

    clock.advance(1_000_000)
    fit_tiny(pl, tmp_path, tiny_module(pl, training_step=costly_step(clock)), tiny_loader(2), callbacks=[ours])
    assert costs_of(tmp_path) == [*whole, WHOLE, WHOLE]
    assert [end["status"] for end in lines(tmp_path, "end")] == ["failed", "completed"]
    assert summary(tmp_path)["status"] == "completed"


def test_a_loader_that_fails_ends_no_iteration(tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()

    class FailingLoader(CostlyLoader):
        def __iter__(self) -> Iterator[Any]:
            for index, batch in enumerate(super().__iter__()):
                if index == 2:
                    raise RuntimeError("in the loader")
                yield batch

    module = tiny_module(pl, training_step=costly_step(clock))
    with pytest.raises(RuntimeError, match="in the loader"):
        fit_tiny(pl, tmp_path, module, FailingLoader(clock, [ONE] * 4, 20), callbacks=[stopwatch(clock)])

    assert costs_of(tmp_path) == [WHOLE, WHOLE | {"data_wait": 20, "iteration": 30}]
    assert summary(tmp_path)["status"] == "failed"


def test_ctrl_c_leaves_the_whole_iterations(tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()

    def interrupt(module: Any, batch_idx: int) -> None:
        if batch_idx == 2:
            raise KeyboardInterrupt

    module = tiny_module(pl, training_step=costly_step(clock, interrupt))
    with pytest.raises(SystemExit):
        fit_tiny(pl, tmp_path, module, tiny_loader(4), callbacks=[stopwatch(clock)])

    assert costs_of(tmp_path) == [WHOLE, WHOLE]
    assert summary(tmp_path)["status"] == "interrupted"


class TrialInMidFit(LearningRateFinder):
    """Looks for a learning rate again at the start of the second epoch, as Lightning's documentation shows."""

    def on_fit_start(self, *_: Any) -> None:
        """Not then."""

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        if trainer.current_epoch == 1:
            self.lr_find(trainer, pl_module)


@pytest.mark.parametrize("finder", [LearningRateFinder, TrialInMidFit], ids=["before", "in-mid-fit"])
def test_trial_fits_for_a_learning_rate_are_no_iterations(finder: type[LearningRateFinder], tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()
    module = tiny_module(
        pl,
        training_step=costly_step(clock),
        configure_optimizers=lambda self: torch.optim.SGD(self.parameters(), lr=self.lr),
    )
    module.lr = 0.01
    whole: list[tuple[int, int]] = []

    def count(self: Any, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        whole.append((trainer.current_epoch, batch_idx))

    others = callback(pl, "Counts", on_train_batch_end=count), finder(num_training_steps=4, update_attr=False)
    fit_tiny(pl, tmp_path, module, tiny_loader(3), callbacks=[stopwatch(clock), *others], max_epochs=2)

    assert whole[-3:] == [(1, 0), (1, 1), (1, 2)]  # Lightning 2.5 skips some batches after a trial before the fit
    assert batches_of(tmp_path) == whole
    assert costs_of(tmp_path) == [WHOLE] * len(whole)
    assert counts(tmp_path)["forward"] == len(whole)


def test_a_trial_in_which_nothing_is_logged_stays_the_finder_s(tmp_path: Path) -> None:
    """Though it has validations and ends of epochs of its own, at which what was logged is computed."""
    clock = FakeClock()
    pl = lightning()
    trained: list[int] = []  # in the trial other callbacks are not called
    counts_batches = callback(pl, "Counts", on_train_batch_end=lambda *arguments: trained.append(arguments[-1]))
    module = tiny_module(pl, training_step=costly_step(clock))
    module.lr = 0.1
    fit_tiny(
        pl,
        tmp_path,
        module,
        tiny_loader(8),
        tiny_loader(1),
        callbacks=[stopwatch(clock), LearningRateFinder(num_training_steps=30), counts_batches],
        val_check_interval=4,
    )

    found = {line["name"] for line in lines(tmp_path, "outside") if line["ns"]}
    assert found == {"between_iterations/callbacks", "between_iterations/callbacks/LearningRateFinder"}
    assert costs_of(tmp_path) == [WHOLE] * len(trained)  # with Lightning 2.5.0 those that the trial has left


def test_a_tuner_s_own_run_is_a_segment_without_iterations(tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()
    module = tiny_module(
        pl,
        training_step=costly_step(clock),
        configure_optimizers=lambda self: torch.optim.SGD(self.parameters(), lr=self.lr),
    )
    module.lr = 0.01
    trainer = quiet_trainer(pl, tmp_path, callbacks=[stopwatch(clock)], max_epochs=1)
    profiler = trainer.profiler
    Tuner(trainer).lr_find(module, tiny_loader(3), num_training=4, update_attr=False)

    assert rows(tmp_path) == []
    assert summary(tmp_path)["status"] == "completed"
    assert trainer.profiler is profiler
    assert not Stopwatch().is_enabled


def test_trial_fits_for_a_batch_size_are_no_iterations(tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()
    module = tiny_module(
        pl,
        training_step=costly_step(clock),
        train_dataloader=lambda self: tiny_loader(32 // self.batch_size, self.batch_size),
        val_dataloader=lambda self: tiny_loader(1),
    )
    module.batch_size = 1
    finder = BatchSizeFinder(max_trials=2, steps_per_trial=2, init_val=2)
    fit_tiny(pl, tmp_path, module, None, callbacks=[stopwatch(clock), finder])

    assert module.batch_size > 1
    assert costs_of(tmp_path) == [WHOLE] * (32 // module.batch_size)
    assert {row["samples"] for row in rows(tmp_path)} == {module.batch_size}
