"""A callback in two runs at once, and in a process that a run has forked: only the run that it began with ends it."""

from __future__ import annotations

import gc
import os
import weakref
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pytest
from known_cost_model import quiet_trainer
from ledger_records import lightning, lines, rows, summary
from programs import output_of, run_program
from tiny_training import callback, fit_tiny, tiny_loader, tiny_module
from whole_suite import Suite, our_warnings

from lightning_timing import StopwatchCallback

if TYPE_CHECKING:
    from pathlib import Path


def module_that_trains_within(inner: Any) -> Any:
    """A module whose second step does something else, such as train another one, in between."""

    def step(self: Any, batch: Any, batch_idx: int) -> Any:
        if batch_idx == 1:
            inner()
        return self.layer(batch[0]).sum()

    return tiny_module(lightning(), training_step=step)


def test_callbacks_that_a_trainer_inside_another_s_run_has_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite, pl = Suite(monkeypatch), lightning()

    def probe() -> None:
        fit_tiny(pl, tmp_path / "inner", tiny_module(pl), tiny_loader(5), callbacks=suite.callbacks)

    trainer = quiet_trainer(pl, tmp_path, max_epochs=1, callbacks=suite.callbacks)
    profiler = trainer.profiler
    with our_warnings() as said:
        trainer.fit(module_that_trains_within(probe), tiny_loader(4))

    assert [each.partition(" is off for the rest of this run: ")[2] for each in said] == [
        "another Trainer, whose run is not over, has the same callback"
    ] * 3
    assert [row["batch_idx"] for row in rows(tmp_path)] == list(range(4))
    assert summary(tmp_path)["status"] == "completed"
    assert not (tmp_path / "inner" / "timing").exists()
    assert trainer.profiler is profiler
    suite.check_over(windows=1)
    suite.check_next_run_is_clean(tmp_path / "next")


def test_a_run_inside_that_fails_ends_only_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite, pl = Suite(monkeypatch, on_misuse="raise"), lightning()

    def fail(*_: Any) -> None:
        raise RuntimeError("the user's own")

    def probe() -> None:
        inner = tiny_module(pl, training_step=fail)
        with pytest.raises(RuntimeError, match="the user's own"):
            fit_tiny(pl, tmp_path / "inner", inner, tiny_loader(2), callbacks=suite.callbacks)

    with our_warnings() as said:
        fit_tiny(pl, tmp_path, module_that_trains_within(probe), tiny_loader(4), callbacks=suite.callbacks)

    assert len(said) == 3
    assert [row["batch_idx"] for row in rows(tmp_path)] == list(range(4))
    assert [end["status"] for end in lines(tmp_path, "end")] == ["completed"]
    suite.check_over(windows=1)


def test_a_call_of_the_same_trainer_within_a_hook_does_not_end_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lightning fails to go on with the fit after that, unless its state is put back."""
    suite, pl = Suite(monkeypatch), lightning()

    def validates(*arguments: Any) -> None:
        _, trainer, module = arguments
        state = deepcopy(trainer.state)
        trainer.validate(module, verbose=False)
        if trainer.current_epoch == 0:
            trainer.state = state

    inner = callback(pl, "Validates", on_train_epoch_end=validates)
    loaders = {"train_dataloader": lambda _: tiny_loader(3), "val_dataloader": lambda _: tiny_loader(2)}
    options = {"callbacks": [*suite.callbacks, inner], "max_epochs": 2, "check_val_every_n_epoch": 3}
    with pytest.raises(AssertionError):
        fit_tiny(pl, tmp_path, tiny_module(pl, **loaders), None, **options)

    assert [(row["epoch"], row["batch_idx"]) for row in rows(tmp_path)] == [(e, b) for e in range(2) for b in range(3)]
    assert rows(tmp_path, "validate") == []  # it is time of the callback
    assert summary(tmp_path)["status"] == "failed"
    suite.check_over(windows=1)
    suite.check_next_run_is_clean(tmp_path / "next")


def test_a_run_inside_that_optimizes_otherwise_changes_no_hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that optimizes by hand needs to hear of each step."""
    suite, pl = Suite(monkeypatch), lightning()
    hooks: list[bool] = []

    def probe(self: Any, batch: Any, batch_idx: int) -> None:
        if not batch_idx:
            fit_tiny(pl, tmp_path / "inner", tiny_module(pl), tiny_loader(1), callbacks=suite.callbacks)
        hooks.append(callable(suite.callbacks[0].on_before_optimizer_step))
        self.manual_backward(self.layer(batch[0]).sum())
        self.optimizers().step()

    module = tiny_module(pl, training_step=probe, automatic_optimization=False)
    with our_warnings():
        fit_tiny(pl, tmp_path, module, tiny_loader(2), callbacks=suite.callbacks)

    assert hooks == [True, True]


@pytest.mark.parametrize("enable", [True, False])
def test_somebody_s_callback_may_hand_all_hooks_on_to_ours(enable: bool, tmp_path: Path) -> None:
    """Lightning skips hooks that are None in ours, which nobody else knows to do."""
    pl = lightning()
    inner = StopwatchCallback(enable, num_warmup_iters=0)

    def hand_on(hook: str) -> Any:
        return lambda self, *args, **options: getattr(inner, hook)(*args, **options)

    outer = callback(pl, "Outer", **{hook: hand_on(hook) for hook in vars(pl.Callback) if hook.startswith("on_")})
    outer.setup, outer.teardown = inner.setup, inner.teardown
    fit_tiny(pl, tmp_path, tiny_module(pl), tiny_loader(3), tiny_loader(2), callbacks=[outer])

    assert (tmp_path / "timing").exists() == enable
    if enable:
        assert (len(rows(tmp_path)), len(rows(tmp_path, "validate"))) == (3, 2)


def test_what_a_run_did_without_the_next_one_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite, pl = Suite(monkeypatch), lightning()
    stopwatch = suite.callbacks[0]
    stopwatch.ranks = (1,)
    fit_tiny(pl, tmp_path / "first", tiny_module(pl), tiny_loader(2), callbacks=[stopwatch])
    stopwatch.ranks = (0,)
    fit_tiny(pl, tmp_path, tiny_module(pl), tiny_loader(2), callbacks=[stopwatch])

    assert len(rows(tmp_path)) == 2


def test_nothing_keeps_a_trainer_and_its_weights_once_the_run_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite, pl = Suite(monkeypatch), lightning()
    module = tiny_module(pl)
    trainer = fit_tiny(pl, tmp_path, module, tiny_loader(2), callbacks=suite.callbacks)
    left = weakref.ref(trainer), weakref.ref(module)
    suite.callbacks.clear()
    del trainer, module
    gc.collect()

    assert [each() for each in left] == [None, None]


FORKING = """
import os, sys, time
from pathlib import Path
import torch
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader, TensorDataset
from lightning_timing import StopwatchCallback

torch.set_num_threads(1)
over = Path("over")

class Model(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch, batch_idx):
        if batch_idx == 2:
            self.child = os.fork()
            while not self.child and not over.exists():
                time.sleep(0.01)
            if not self.child:
                sys.exit(7)
        return self.layer(batch[0]).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

model = Model()
trainer = Trainer(
    max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
    enable_model_summary=False, callbacks=[StopwatchCallback(num_warmup_iters=0)],
)
trainer.fit(model, DataLoader(TensorDataset(torch.ones(5, 2))))
over.touch()
print("CHILD", os.waitstatus_to_exitcode(os.waitpid(model.child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_that_unwinds_leaves_the_run_s_files_alone(tmp_path: Path) -> None:
    assert "CHILD 7" in output_of(run_program(FORKING, tmp_path))

    assert summary(tmp_path)["status"] == "completed"
    assert summary(tmp_path)["stages"]["train"]["iterations"] == len(rows(tmp_path)) == 5
    assert [end["status"] for end in lines(tmp_path, "end")] == ["completed"]
