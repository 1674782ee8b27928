"""The steps of an optimizer are as many as the Trainer says, whoever counts them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from known_cost import FakeClock
from known_cost_model import quiet_trainer
from ledger_records import lightning, lines, rows, stopwatch
from tiny_training import callback, fit_tiny, tiny_loader, tiny_module

from lightning_timing.callbacks.step_count import AskTheTrainer, step_count_of

if TYPE_CHECKING:
    from pathlib import Path


def manual_step(self: Any, batch: Any, batch_idx: int) -> None:
    """Two optimizers, of which the second one steps in every other batch."""
    first, second = self.optimizers()
    for optimizer in [first, second][: 1 + batch_idx % 2]:
        optimizer.zero_grad()
        self.manual_backward(self.layer(batch[0]).sum())
        optimizer.step()


def two_optimizers(self: Any) -> Any:
    return [torch.optim.SGD(self.layer.parameters(), lr=0.01) for _ in range(2)]


def manual_module(pl: Any) -> Any:
    module = tiny_module(pl, training_step=manual_step, configure_optimizers=two_optimizers)
    module.automatic_optimization = False
    return module


MODULES = {"automatic": tiny_module, "manual": manual_module}


def fit_and_ask(tmp_path: Path, kind: str, **options: Any) -> list[tuple[str, int]]:
    """The stage of each batch and the Trainer's steps as it starts, in a fit of two epochs with validation."""
    asked: list[tuple[str, int]] = []

    def ask(stage: str) -> Any:
        return lambda self, trainer, *_: asked.append((stage, trainer.global_step))

    pl = lightning()
    asking = callback(pl, "Asking", on_train_batch_start=ask("train"), on_validation_batch_start=ask("validate"))
    callbacks = [stopwatch(FakeClock()), asking]
    options = {"max_epochs": 2, "num_sanity_val_steps": 0, "callbacks": callbacks} | options
    fit_tiny(pl, tmp_path, MODULES[kind](pl), tiny_loader(5), tiny_loader(2), **options)
    return asked


@pytest.mark.parametrize("kind", MODULES)
def test_each_row_has_the_trainer_s_number(tmp_path: Path, kind: str) -> None:
    asked = fit_and_ask(tmp_path, kind)

    assert [(row["stage"], row["global_step"]) for row in lines(tmp_path, "iteration")] == asked
    assert asked[-1][1] == {"automatic": 10, "manual": 14}[kind]


def test_also_where_gradients_are_accumulated(tmp_path: Path) -> None:
    asked = fit_and_ask(tmp_path, "automatic", accumulate_grad_batches=2)

    assert [(row["stage"], row["global_step"]) for row in lines(tmp_path, "iteration")] == asked
    assert [steps for stage, steps in asked if stage == "train"] == [0, 0, 1, 1, 2, 3, 3, 4, 4, 5]


def test_also_after_the_training_was_resumed(tmp_path: Path) -> None:
    pl = lightning()
    before = fit_tiny(pl, tmp_path / "before", tiny_module(pl), tiny_loader(5), max_epochs=1)
    before.save_checkpoint(tmp_path / "checkpoint.ckpt")
    trainer = quiet_trainer(pl, tmp_path, max_epochs=2, callbacks=[stopwatch(FakeClock())])
    trainer.fit(tiny_module(pl), tiny_loader(5), ckpt_path=tmp_path / "checkpoint.ckpt")

    assert [row["global_step"] for row in rows(tmp_path)] == [5, 6, 7, 8, 9]


@pytest.mark.parametrize("kind", MODULES)
def test_in_a_fit_it_need_not_ask_the_trainer(tmp_path: Path, kind: str) -> None:
    found: list[Any] = []

    def look(self: Any, trainer: Any, *_: Any) -> None:
        found.append(step_count_of(trainer, trainer.lightning_module.automatic_optimization))

    pl = lightning()
    asking = callback(pl, "Asking", on_train_batch_start=look)
    trainer = fit_tiny(pl, tmp_path, MODULES[kind](pl), tiny_loader(5), max_epochs=1, callbacks=[asking])

    assert not any(isinstance(count, AskTheTrainer) for count in found)
    assert {count.completed for count in found} == {trainer.global_step}


def other_loop(steps: int) -> Any:
    """A loop that has what Lightning's has, and does not count there."""
    total = SimpleNamespace(completed=steps)
    progress = SimpleNamespace(optimizer=SimpleNamespace(step=SimpleNamespace(total=total)))
    return SimpleNamespace(automatic_optimization=SimpleNamespace(optim_progress=progress))


@pytest.mark.parametrize("epoch_loop", [None, SimpleNamespace(), other_loop(steps=3)])
def test_where_a_loop_counts_otherwise_the_trainer_is_asked(epoch_loop: Any) -> None:
    trainer = SimpleNamespace(fit_loop=SimpleNamespace(epoch_loop=epoch_loop), global_step=7)
    count = step_count_of(trainer, is_automatic=True)
    trainer.global_step = 8

    assert count.completed == 8
