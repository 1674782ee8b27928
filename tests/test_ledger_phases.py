"""Each phase on its own, by scripted clocks: where the time of one kind of work goes when it turns up in odd places."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pytest
import torch
from known_cost import FakeClock
from ledger_records import both_flavours, costs_of, counts, lightning, rows, stopwatch, summary
from lightning.pytorch.strategies import SingleDeviceStrategy
from tiny_training import callback, fit_tiny, optimizer_costing, spends, step_costing, tiny_loader, tiny_module

from lightning_timing import CUDAProfilerCallback, NVTXCallback, Stopwatch, span

if TYPE_CHECKING:
    from pathlib import Path


@both_flavours
def test_overridden_hooks_of_the_module_are_named_by_its_class(flavour: str, tmp_path: Path) -> None:
    clock = FakeClock()
    hooks = ("on_train_batch_start", "on_after_backward", "on_before_optimizer_step", "on_before_zero_grad")
    module = tiny_module(lightning(flavour), **{hook: spends(clock, 7) for hook in hooks})
    fit_tiny(lightning(flavour), tmp_path, module, tiny_loader(3), callbacks=[stopwatch(clock)])

    assert costs_of(tmp_path) == [{"callbacks/TinyModule": 28, "callbacks": 28, "iteration": 28}] * 3


def test_other_callbacks_are_named_one_by_one_wherever_their_hooks_run(tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()
    shallow = callback(pl, "Shallow", on_before_backward=spends(clock, 5), on_after_backward=spends(clock, 6))
    deep = callback(pl, "Deep", on_before_zero_grad=spends(clock, 7), on_before_optimizer_step=spends(clock, 8))
    fit_tiny(pl, tmp_path, tiny_module(pl), tiny_loader(2), callbacks=[shallow, stopwatch(clock), deep])

    expected = {"callbacks/Shallow": 11, "callbacks/Deep": 15, "callbacks": 26, "iteration": 26}
    assert costs_of(tmp_path) == [expected] * 2


def test_callbacks_with_one_state_key_are_charged_for_the_hooks_of_each(tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()
    one = pl.callbacks.LambdaCallback(on_train_batch_start=spends(clock, 1))
    other = pl.callbacks.LambdaCallback(on_train_batch_end=spends(clock, 4))
    fit_tiny(pl, tmp_path, tiny_module(pl), tiny_loader(2), callbacks=[stopwatch(clock), one, other])

    assert costs_of(tmp_path) == [{"callbacks": 5, "callbacks/LambdaCallback": 5, "iteration": 5}] * 2


def test_schedulers_are_named_and_only_in_the_iterations_in_which_they_step(tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()

    def optimizers(self: Any) -> Any:
        optimizer = torch.optim.SGD(self.layer.parameters(), lr=0.1)
        every_step = torch.optim.lr_scheduler.LambdaLR(optimizer, _rate_costing(clock, 13))
        every_epoch = torch.optim.lr_scheduler.LambdaLR(optimizer, _rate_costing(clock, 17))
        return [optimizer], [{"scheduler": every_step, "interval": "step"}, every_epoch]

    module = tiny_module(pl, configure_optimizers=optimizers)
    fit_tiny(pl, tmp_path, module, tiny_loader(4), callbacks=[stopwatch(clock)], accumulate_grad_batches=2)

    stepped, stepped_twice = ({"lr_scheduler": ns, "iteration": ns} for ns in (13, 13 + 17))
    assert costs_of(tmp_path) == [{}, stepped, {}, stepped_twice]
    assert ["lr_scheduler" in row["ns"] for row in rows(tmp_path)] == [False, True, False, True]


def _rate_costing(clock: FakeClock, ns: int) -> Any:
    def rate(_: int) -> float:
        clock.advance(ns)
        return 1.0

    return rate


def test_a_closure_of_the_user_s_own_is_no_part_of_the_optimizer_step(tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()

    def step(self: Any, batch: Any, *_: Any) -> None:
        def closure() -> torch.Tensor:
            clock.advance(10)
            loss: torch.Tensor = self.layer(batch[0]).sum()
            self.manual_backward(loss)
            return loss

        self.optimizers().step(closure=closure)

    module = tiny_module(pl, training_step=step, configure_optimizers=optimizer_costing(clock, 23))
    module.automatic_optimization = False
    fit_tiny(pl, tmp_path, module, tiny_loader(2), callbacks=[stopwatch(clock)])

    assert costs_of(tmp_path) == [{"forward": 10, "optimizer_step": 23, "iteration": 33}] * 2


def test_the_user_s_measurements_lie_below_their_phase_and_take_nothing_from_it(tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()

    def batch_start(*_: Any) -> None:
        Stopwatch().start_meas("crossing")
        clock.advance(3)

    def step(self: Any, batch: Any, *_: Any) -> torch.Tensor:
        clock.advance(1)
        with span("matcher"):
            clock.advance(5)
            with span("inside"):
                clock.advance(2)
        Stopwatch().end_meas("crossing")
        loss: torch.Tensor = self.layer(batch[0]).sum()
        return loss

    module = tiny_module(pl, training_step=step, on_train_batch_start=batch_start)
    fit_tiny(pl, tmp_path, module, tiny_loader(3), callbacks=[stopwatch(clock)])

    phases = {"forward": 8, "callbacks": 3, "callbacks/TinyModule": 3, "iteration": 11}
    assert costs_of(tmp_path) == [phases | {"matcher": 7, "inside": 2, "crossing": 11}] * 3
    measurements = summary(tmp_path)["stages"]["train"]["measurements"]
    parents = {name: measurements[name]["parent"] for name in ("matcher", "inside", "crossing")}
    assert parents == {"matcher": "forward", "inside": "matcher", "crossing": "iteration"}


def test_our_other_callbacks_are_no_phase(tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()
    module = tiny_module(pl, training_step=step_costing(clock, 10))
    callbacks = [NVTXCallback(), stopwatch(clock), CUDAProfilerCallback()]
    with pytest.warns(UserWarning, match="no CUDA here"):
        fit_tiny(pl, tmp_path, module, tiny_loader(3), callbacks=callbacks)

    assert costs_of(tmp_path) == [{"forward": 10, "iteration": 10}] * 3
    assert not [name for name in counts(tmp_path) if name.startswith("callbacks")]


def test_clipping_may_be_switched_on_in_mid_run(tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()

    class CostlyPrecision(pl.plugins.Precision):
        def clip_gradients(self, optimizer: Any, clip_val: float = 0.0, *args: Any, **kwargs: Any) -> None:
            clock.advance(8 if clip_val else 0)
            super().clip_gradients(optimizer, clip_val, *args, **kwargs)

    def switch_on(self: Any, trainer: Any, module: Any, batch: Any, batch_idx: int) -> None:
        trainer.gradient_clip_val = 1.0 if batch_idx else None

    callbacks = [stopwatch(clock), callback(pl, "SwitchesOn", on_train_batch_start=switch_on)]
    fit_tiny(pl, tmp_path, tiny_module(pl), tiny_loader(3), callbacks=callbacks, plugins=[CostlyPrecision()])

    assert costs_of(tmp_path) == [{}, *[{"grad_clip": 8, "iteration": 8}] * 2]
    assert counts(tmp_path)["grad_clip"] == 2


def test_what_did_not_occur_is_absent(tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()
    fit_tiny(pl, tmp_path, tiny_module(pl), tiny_loader(2), callbacks=[stopwatch(clock)])

    occurred = {"batch_transfer", "forward", "zero_grad", "backward", "optimizer_step", "other", "iteration"}
    assert [set(row["ns"]) for row in rows(tmp_path)] == [occurred, occurred | {"data_wait"}]


def test_what_no_phase_claims_is_other(tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()

    class CostlyStrategy(SingleDeviceStrategy):
        def on_train_batch_start(self, *_: Any) -> None:
            clock.advance(19)

    strategy = CostlyStrategy(device=torch.device("cpu"))
    module = tiny_module(pl, training_step=step_costing(clock, 10))
    fit_tiny(pl, tmp_path, module, tiny_loader(2), callbacks=[stopwatch(clock)], strategy=strategy)

    assert costs_of(tmp_path) == [{"forward": 10, "other": 19, "iteration": 29}] * 2


def test_printing_our_own_report_is_in_no_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    pl = lightning()

    class CostlyStream(io.StringIO):
        def write(self, text: str) -> int:
            clock.advance(1_000)
            return super().write(text)

    stream = CostlyStream()
    monkeypatch.setattr("sys.stdout", stream)
    callbacks = [stopwatch(clock, print_every_n_iters=1)]
    fit_tiny(pl, tmp_path, tiny_module(pl, training_step=step_costing(clock, 10)), tiny_loader(4), callbacks=callbacks)

    assert "forward" in stream.getvalue()
    assert costs_of(tmp_path) == [{"forward": 10, "iteration": 10}] * 4
