"""Who steps when: accumulation, closures, several optimizers, steps without a loss. By scripted clocks."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
import torch
from known_cost import Books, Costs, FakeClock
from known_cost_model import Setting, fit_known_cost
from ledger_records import costs_of, counts, lightning, rows, stopwatch, summary
from tiny_training import callback, fit_tiny, optimizer_costing, spends, step_costing, tiny_loader, tiny_module

from lightning_timing import span
from lightning_timing.run_report import read_report

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

COSTS = Costs().scaled(0.001)


def fit_books(tmp_path: Path, setting: Setting, others: Sequence[Any] = (), **options: Any) -> Books:
    clock = FakeClock()
    books = Books(COSTS, clock.advance)
    fit_known_cost(lightning(), setting, books, tmp_path, callbacks=[stopwatch(clock), *others], epochs=1, **options)
    return books


def test_accumulation_gives_a_sample_only_where_there_was_a_step(tmp_path: Path) -> None:
    fit_books(tmp_path, Setting(name="accumulation", accumulate=4), batches=10)

    measurements = summary(tmp_path)["stages"]["train"]["measurements"]
    assert [measurements[name]["count"] for name in ("iteration", "forward", "backward")] == [10, 10, 10]
    step = measurements["optimizer_step"]
    assert (step["count"], measurements["zero_grad"]["count"], measurements["grad_clip"]["count"]) == (3, 3, 3)
    assert step["total_s"] == pytest.approx(3 * COSTS.optimizer / 1e9)
    assert step["mean_s"] == pytest.approx(COSTS.optimizer / 1e9)
    assert step["per_iteration_s"] == pytest.approx(3 * COSTS.optimizer / 10 / 1e9)
    stepped = [row["batch_idx"] for row in rows(tmp_path) if "optimizer_step" in row["ns"]]
    assert stepped == [3, 7, 9]
    assert [row["global_step"] for row in rows(tmp_path)] == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2]


def test_lbfgs_has_a_sample_for_each_evaluation_and_one_for_each_step(tmp_path: Path) -> None:
    books = fit_books(tmp_path, Setting(name="LBFGS", optimization="lbfgs"), batches=3)

    evaluations = books.totals("train")["forward"] // COSTS.step
    assert evaluations > 3
    found = counts(tmp_path)
    assert {found[name] for name in ("forward", "zero_grad", "backward", "grad_clip")} == {evaluations}
    assert (found["iteration"], found["optimizer_step"]) == (3, 3)


class Fails(torch.autograd.Function):
    """Fails in its backward, as where the memory does not suffice."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("out of memory")


def test_after_a_manual_backward_that_failed_the_step_goes_on(tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()

    def step(self: Any, batch: Any, batch_idx: int) -> None:
        clock.advance(5)
        loss = self.layer(batch[0]).sum()
        with suppress(RuntimeError):
            self.manual_backward(Fails.apply(loss) if batch_idx == 1 else loss)
        clock.advance(40)

    module = tiny_module(pl, training_step=step)
    module.automatic_optimization = False
    fit_tiny(pl, tmp_path, module, tiny_loader(3), callbacks=[stopwatch(clock)])

    assert costs_of(tmp_path) == [{"forward": 45, "iteration": 45}] * 3
    assert [row["ns"]["backward"] for row in rows(tmp_path)] == [0] * 3


def test_a_closure_of_the_user_s_own_is_forward_each_time_that_it_is_evaluated(tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()

    def step(self: Any, batch: Any, *_: Any) -> None:
        def closure() -> torch.Tensor:
            clock.advance(10)
            optimizer.zero_grad()
            loss: torch.Tensor = self.layer(batch[0]).pow(2).sum()
            self.manual_backward(loss)
            return loss

        optimizer = self.optimizers()
        clock.advance(1)
        optimizer.step(closure=closure)
        clock.advance(20)

    module = tiny_module(
        pl,
        automatic_optimization=False,
        training_step=step,
        configure_optimizers=lambda self: torch.optim.LBFGS(self.layer.parameters(), lr=0.01, max_iter=3),
    )
    trainer = fit_tiny(pl, tmp_path, module, tiny_loader(3), callbacks=[stopwatch(clock)])

    assert costs_of(tmp_path) == [{"forward": 51, "iteration": 51}] * 3
    found = counts(tmp_path)
    assert (found["forward"], found["backward"], found["optimizer_step"]) == (3, 9, 3)
    assert not trainer.optimizers[0]._optimizer_step_pre_hooks


def test_a_step_of_the_model_s_own_is_one_where_the_optimizer_is_asked_to_step(tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()

    def optimizer_step(_: Any, epoch: int, batch_idx: int, optimizer: Any, closure: Any) -> None:
        if batch_idx % 3 == 0:
            optimizer.step(closure=closure)
            return
        closure()
        if batch_idx % 3 == 1:
            optimizer.optimizer.step()

    module = tiny_module(
        pl,
        training_step=step_costing(clock, 10),
        optimizer_step=optimizer_step,
        configure_optimizers=lambda self: _costly_sgd(clock, self),
    )
    trainer = fit_tiny(pl, tmp_path, module, tiny_loader(6), callbacks=[stopwatch(clock)])

    stepped = {"forward": 10, "optimizer_step": 3, "iteration": 13}
    assert costs_of(tmp_path) == [stepped, stepped, {"forward": 10, "iteration": 10}] * 2
    assert counts(tmp_path)["optimizer_step"] == 4
    assert not trainer.optimizers[0]._optimizer_step_pre_hooks


def test_two_optimizers_count_batches_and_not_steps(tmp_path: Path) -> None:
    clock = FakeClock()
    books = Books(COSTS, clock.advance)
    setting = Setting(name="GAN", optimization="manual")
    callbacks = [stopwatch(clock, num_warmup_iters=2)]
    trainer = fit_known_cost(lightning(), setting, books, tmp_path, callbacks=callbacks, epochs=1)

    assert trainer.global_step == 10
    stage = summary(tmp_path)["stages"]["train"]
    assert (stage["iterations"], stage["warmup_iterations"]) == (3, 2)
    found = counts(tmp_path)
    assert (found["forward"], found["backward"], found["optimizer_step"]) == (3, 6, 6)
    assert (found["optimizer_step/0"], found["optimizer_step/1"]) == (3, 3)
    per_iteration = stage["measurements"]["optimizer_step"]["per_iteration_s"]
    assert per_iteration == pytest.approx(2 * COSTS.optimizer / 1e9)


def test_the_parts_of_a_phase_lie_in_it_in_a_killed_run_too(tmp_path: Path) -> None:
    pl = lightning()
    other = callback(pl, "Other", on_train_epoch_end=lambda *_: None, on_train_batch_end=lambda *_: None)
    fit_books(tmp_path, Setting(name="GAN", optimization="manual"), others=[other])
    finished = _parents(tmp_path)
    (tmp_path / "timing" / "summary.json").unlink()

    parts = "optimizer_step/0", "optimizer_step/1", "callbacks/Other", "between_iterations/callbacks/Other"
    assert [finished[part] for part in parts] == [part.rpartition("/")[0] for part in parts]
    assert _parents(tmp_path) == finished


def test_a_span_that_reaches_across_phases_lies_in_none_of_them(tmp_path: Path) -> None:
    """Around a whole update in manual optimization, whose backward and optimizer's step are no part of forward."""
    clock = FakeClock()

    def step(self: Any, batch: Any, *_: Any) -> None:
        optimizer = self.optimizers()
        with span("update"):
            with span("loss"):
                clock.advance(10)
                loss = self.layer(batch[0]).sum()
            with span("down"):
                clock.advance(1)
                self.manual_backward(loss)
                clock.advance(1)
            optimizer.step()

    module = tiny_module(lightning(), training_step=step, configure_optimizers=lambda self: _costly_sgd(clock, self))
    module.automatic_optimization = False
    fit_tiny(lightning(), tmp_path, module, tiny_loader(3), callbacks=[stopwatch(clock, num_warmup_iters=0)])

    finished = _parents(tmp_path)
    assert {name: finished[name] for name in ("update", "loss", "down")} == {
        "update": "iteration",
        "loss": "update",
        "down": "update",
    }
    (tmp_path / "timing" / "summary.json").unlink()
    assert _parents(tmp_path) == finished


def test_a_span_round_lightning_s_own_step_lies_in_no_phase(tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()

    def optimizer_step(self: Any, *args: Any, **kwargs: Any) -> None:
        with span("whole step"):
            clock.advance(1)
            super(type(self), self).optimizer_step(*args, **kwargs)
            clock.advance(1)

    module = tiny_module(pl, training_step=step_costing(clock, 10), optimizer_step=optimizer_step)
    fit_tiny(pl, tmp_path, module, tiny_loader(3), callbacks=[stopwatch(clock, num_warmup_iters=0)])

    finished = _parents(tmp_path)
    assert finished["whole step"] == "iteration"
    (tmp_path / "timing" / "summary.json").unlink()
    assert _parents(tmp_path) == finished


def test_a_span_that_no_phase_has_lies_in_other(tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()

    def optimizer_step(self: Any, *args: Any, **kwargs: Any) -> None:
        clock.advance(1)
        with span("ema"):
            clock.advance(20)
        super(type(self), self).optimizer_step(*args, **kwargs)

    module = tiny_module(pl, training_step=step_costing(clock, 5), optimizer_step=optimizer_step)
    fit_tiny(pl, tmp_path, module, tiny_loader(12), callbacks=[stopwatch(clock, num_warmup_iters=0)])

    finished = _parents(tmp_path)
    assert finished["ema"] == "other"
    verdict = read_report(tmp_path).verdict
    assert verdict is not None
    assert verdict.evidence.startswith(
        "what no phase claims, Lightning's own loop and code of yours outside of its hooks"
    )
    assert ", most of it in ema, " in verdict.evidence
    (tmp_path / "timing" / "summary.json").unlink()
    assert _parents(tmp_path) == finished


def _parents(run: Path) -> dict[str, str | None]:
    measurements = read_report(run).stages["train"].measurements
    return {name: figures.parent for name, figures in measurements.items()}


def _step_by_hand(module: Any, batch: Any) -> None:
    optimizers = module.optimizers()
    for optimizer in optimizers if isinstance(optimizers, list) else [optimizers]:
        optimizer.zero_grad()
        module.manual_backward(module.layer(batch[0]).sum())
        optimizer.step()


def _costly_sgd(clock: FakeClock, module: Any) -> torch.optim.Optimizer:
    optimizer = torch.optim.SGD(module.layer.parameters(), lr=0.1)
    optimizer.register_step_post_hook(spends(clock, 3))
    return optimizer


def test_automatic_optimization_may_be_switched_off_in_the_module_s_setup(tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()

    def step(self: Any, batch: Any, *_: Any) -> None:
        clock.advance(10)
        _step_by_hand(self, batch)

    module = tiny_module(
        pl,
        setup=lambda self, stage: setattr(self, "automatic_optimization", False),
        training_step=step,
        configure_optimizers=lambda self: [_costly_sgd(clock, self), _costly_sgd(clock, self)],
    )
    fit_tiny(pl, tmp_path, module, tiny_loader(3), callbacks=[stopwatch(clock)])

    steps = {"optimizer_step/0": 3, "optimizer_step/1": 3, "optimizer_step": 6}
    assert costs_of(tmp_path) == [{"forward": 10, **steps, "iteration": 16}] * 3
    assert summary(tmp_path)["stages"]["train"]["skipped_batches"] == 0


def test_optimization_may_change_from_epoch_to_epoch(tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()

    def step(self: Any, batch: Any, *_: Any) -> Any:
        clock.advance(10)
        if self.automatic_optimization:
            return self.layer(batch[0]).sum()
        return _step_by_hand(self, batch)

    module = tiny_module(
        pl,
        training_step=step,
        backward=lambda self, loss: (clock.advance(40), loss.backward()),
        on_train_epoch_start=lambda self: setattr(self, "automatic_optimization", self.current_epoch == 1),
        configure_optimizers=lambda self: _costly_sgd(clock, self),
    )
    fit_tiny(pl, tmp_path, module, tiny_loader(2), callbacks=[stopwatch(clock)], max_epochs=3)

    assert costs_of(tmp_path) == [{"forward": 10, "backward": 40, "optimizer_step": 3, "iteration": 53}] * 6
    assert summary(tmp_path)["stages"]["train"]["skipped_batches"] == 0


def test_an_epoch_for_the_statistics_of_batch_norm_skips_no_batch(tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()
    module = tiny_module(
        pl, training_step=lambda self, batch, index: self.layer(self.norm(batch[0])).sum() if index else None
    )
    module.norm = torch.nn.BatchNorm1d(2)
    averaging = pl.callbacks.StochasticWeightAveraging(swa_lrs=0.01, swa_epoch_start=1)
    fit_tiny(pl, tmp_path, module, tiny_loader(4, 2), callbacks=[stopwatch(clock), averaging], max_epochs=2)

    assert [row["epoch"] for row in rows(tmp_path)] == [0] * 4 + [1] * 4 + [2] * 4
    assert summary(tmp_path)["stages"]["train"]["skipped_batches"] == 2


def test_a_step_that_returns_none_ends_its_forward_and_has_no_backward(tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()

    def step(self: Any, batch: Any, batch_idx: int) -> torch.Tensor | None:
        clock.advance(10)
        return None if batch_idx % 2 else self.layer(batch[0]).sum()

    module = tiny_module(
        pl,
        training_step=step,
        backward=lambda self, loss: (clock.advance(40), loss.backward()),
        configure_optimizers=optimizer_costing(clock, 23),
    )
    trainer = fit_tiny(pl, tmp_path, module, tiny_loader(6), callbacks=[stopwatch(clock)])

    assert trainer.global_step == 6
    with_loss = {"forward": 10, "backward": 40, "optimizer_step": 23, "iteration": 73}
    assert costs_of(tmp_path) == [with_loss, {"forward": 10, "optimizer_step": 23, "iteration": 33}] * 3
    found = counts(tmp_path)
    assert (found["forward"], found["backward"], found["optimizer_step"]) == (6, 3, 6)
    assert summary(tmp_path)["stages"]["train"]["skipped_batches"] == 3
