"""However a run ends: what was measured is on disk, its status is true, and nothing of ours goes on."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import pytest
import torch
from known_cost_model import quiet_trainer
from ledger_records import headers, lightning, lines, rows, summary
from tiny_training import callback, fit_tiny, tiny_loader, tiny_module
from whole_suite import Suite, our_warnings

from lightning_timing.phases import PREDICT, SANITY_CHECK, STAGES, TEST, TRAIN, VALIDATE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LOOP_HOOKS = [
    f"on_{stage}{what}"
    for stage in ("train", "validation", "test", "predict")
    for what in ("_start", "_end", "_epoch_start", "_epoch_end", "_batch_start", "_batch_end")
]
CALLBACK_HOOKS = [
    "setup",
    "teardown",
    "on_fit_start",
    "on_fit_end",
    "on_sanity_check_start",
    "on_sanity_check_end",
    *LOOP_HOOKS,
    "on_before_zero_grad",
    "on_before_backward",
    "on_after_backward",
    "on_before_optimizer_step",
    "state_dict",
    "on_save_checkpoint",
    "on_load_checkpoint",
]
MODULE_HOOKS = [
    "setup",
    "teardown",
    "on_fit_start",
    "on_fit_end",
    *LOOP_HOOKS,
    "on_validation_model_zero_grad",
    "on_validation_model_eval",
    "on_validation_model_train",
    "on_test_model_eval",
    "on_test_model_train",
    "on_predict_model_eval",
    "on_before_zero_grad",
    "on_before_backward",
    "on_after_backward",
    "on_before_optimizer_step",
    "on_before_batch_transfer",
    "transfer_batch_to_device",
    "on_after_batch_transfer",
    "on_save_checkpoint",
    "on_load_checkpoint",
    "configure_model",
    "configure_callbacks",
    "configure_optimizers",
    "configure_gradient_clipping",
    "training_step",
    "validation_step",
    "test_step",
    "predict_step",
    "optimizer_zero_grad",
    "backward",
    "optimizer_step",
    "lr_scheduler_step",
    "train_dataloader",
    "val_dataloader",
    "test_dataloader",
    "predict_dataloader",
]


def entry_point_of(hook: str) -> str:
    """The Trainer's method in which a hook is called."""
    if hook.endswith("load_checkpoint"):
        return "resume"
    return next((name for name in ("test", "predict") if hook.startswith((f"{name}_", f"on_{name}_"))), "fit")


def busy_module(**hooks: Any) -> Any:
    """A module with loaders of its own and a scheduler that steps with every batch, so that every hook is called."""
    pl = lightning()

    def optimizers(self: Any) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.01)
        scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer)
        return [optimizer], [{"scheduler": scheduler, "interval": "step"}]

    own = {"configure_optimizers": optimizers, "train_dataloader": lambda self: tiny_loader(3)}
    own |= {f"{stage}_dataloader": lambda self: tiny_loader(2) for stage in ("val", "test", "predict")}
    base = type(tiny_module(pl, **own))
    return type(base.__name__, (base,), {name: wrap(getattr(base, name)) for name, wrap in hooks.items()})()


def run(entry_point: str, root: Path, module: Any, callbacks: list[Any]) -> None:
    """Runs one of the Trainer's methods, with as much in it as there can be."""
    pl = lightning()
    saver = pl.callbacks.ModelCheckpoint(root, every_n_train_steps=2)
    options = {"max_epochs": 2, "num_sanity_val_steps": 1, "gradient_clip_val": 1.0, "enable_checkpointing": True}
    trainer = quiet_trainer(pl, root, callbacks=[*callbacks, saver], **options)
    if entry_point == "resume":
        trainer.fit(module, ckpt_path=checkpoint(root))
    else:
        getattr(trainer, entry_point)(module)


def checkpoint(root: Path) -> Path:
    path = root / "resumed.ckpt"
    trainer = quiet_trainer(lightning(), root, max_epochs=1)
    trainer.fit(busy_module())
    trainer.save_checkpoint(path)
    return path


def counted(calls: Counter[str], name: str) -> Callable[[Any], Any]:
    """Counts the calls of a hook."""

    def wrap(original: Any) -> Any:
        def hook(*args: Any, **kwargs: Any) -> Any:
            calls[name] += 1
            return original(*args, **kwargs)

        return hook

    return wrap


def failing(error: BaseException, at: int) -> Callable[[Any], Any]:
    """Raises an error in the given call of a hook, counted from 1."""

    def wrap(original: Any) -> Any:
        calls = 0

        def hook(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == at:
                raise error
            return original(*args, **kwargs)

        return hook

    return wrap


def completing(completed: dict[str, int], hook: str) -> Callable[[Any], Any]:
    """Counts the batches whose last hook returned, by stage."""
    stage = {"train": TRAIN, "validation": VALIDATE, "test": TEST, "predict": PREDICT}[hook.split("_")[1]]

    def wrap(original: Any) -> Any:
        def last_hook(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            completed[SANITY_CHECK if self.trainer.sanity_checking else stage] += 1

        return last_hook

    return wrap


def one_in_another(inner: Callable[[Any], Any], outer: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda original: outer(inner(original))


CALLS_OF_A_BATCH_HOOK = 6
"""A hook that is called as often as this in `calls` is called in every batch: it fails in the second one."""


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Counter[str]]:
    """How often each hook of a callback and of the module is called in a run that nothing ends early."""
    of_callback: Counter[str] = Counter()
    of_module: Counter[str] = Counter()
    pl = lightning()
    for entry_point in ("fit", "test", "predict", "resume"):
        before = {name: counted(of_callback, name)(getattr(pl.Callback, name)) for name in CALLBACK_HOOKS}
        module = busy_module(**{name: counted(of_module, name) for name in MODULE_HOOKS})
        run(entry_point, tmp_path_factory.mktemp(entry_point), module, [callback(pl, "Counts", **before)])
    return {"callback": of_callback, "module": of_module}


@pytest.mark.parametrize(
    ("whose", "hook"),
    [
        *(("callback before ours", hook) for hook in CALLBACK_HOOKS),
        *(("callback after ours", hook) for hook in CALLBACK_HOOKS),
        *(("module", hook) for hook in MODULE_HOOKS),
    ],
)
def test_an_exception_in_any_hook_or_step_of_any_stage(
    whose: str, hook: str, calls: dict[str, Counter[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite, pl = Suite(monkeypatch), lightning()
    error = RuntimeError("the user's own")
    known = calls["module" if whose == "module" else "callback"][hook]
    fail = failing(error, at=1 if known < CALLS_OF_A_BATCH_HOOK else 2)
    completed: dict[str, int] = defaultdict(int)
    hooks = {name: completing(completed, name) for name in LOOP_HOOKS if name.endswith("_batch_end")}
    callbacks = list(suite.callbacks)
    if whose == "module":
        hooks[hook] = one_in_another(fail, hooks[hook]) if hook in hooks else fail
    else:
        fails = callback(pl, "Fails", **{hook: fail(getattr(pl.Callback, hook))})
        callbacks.insert(0 if whose == "callback before ours" else len(callbacks), fails)

    with our_warnings() as said, pytest.raises(RuntimeError) as raised:
        run(entry_point_of(hook), tmp_path, busy_module(**hooks), callbacks)

    assert raised.value is error
    assert raised.value.__context__ is None
    assert said == []
    never_began = (whose, hook) in {("callback before ours", "setup"), ("module", "configure_callbacks")}
    suite.check_over(windows=0 if never_began else 1)
    if never_began:
        assert not (tmp_path / "timing").exists()
    else:
        assert summary(tmp_path)["status"] == "failed"
        assert [end["status"] for end in lines(tmp_path, "end")] == ["failed"]
        assert {stage: len(rows(tmp_path, stage)) for stage in STAGES if rows(tmp_path, stage)} == completed
    suite.check_next_run_is_clean(tmp_path / "next")


def test_every_hook_that_is_tried_is_called(calls: dict[str, Counter[str]]) -> None:
    assert set(calls["callback"]) == set(CALLBACK_HOOKS)
    assert set(calls["module"]) == set(MODULE_HOOKS)


@pytest.mark.parametrize("hook", ["training_step", "validation_step"])
def test_the_same_trainer_fits_again_after_an_exception(
    hook: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite, pl = Suite(monkeypatch), lightning()
    error = RuntimeError("the user's own")
    completed: dict[str, int] = defaultdict(int)
    hooks = {hook: failing(error, at=4), "train_dataloader": lambda _: lambda self: tiny_loader(6)}
    hooks |= {name: completing(completed, name) for name in ("on_train_batch_end", "on_validation_batch_end")}
    options = {"max_epochs": 2, "num_sanity_val_steps": 0, "val_check_interval": 2}
    trainer = quiet_trainer(pl, tmp_path, callbacks=suite.callbacks, **options)
    module = busy_module(**hooks)
    with pytest.raises(RuntimeError) as raised:
        trainer.fit(module)
    assert raised.value is error
    assert summary(tmp_path)["status"] == "failed"
    assert len(rows(tmp_path)) == completed["train"] == (3 if hook == "training_step" else 4)
    suite.check_over(windows=1)

    with our_warnings() as said:
        trainer.fit(module)
    assert said == []
    first, second = headers(tmp_path)
    again = [row["batch_idx"] for row in rows(tmp_path) if row["segment"] == second["segment"]]
    assert again == list(range(6)) * 2
    assert [segment["status"] for segment in summary(tmp_path)["segments"]] == ["failed", "completed"]
    assert len(rows(tmp_path)) == summary(tmp_path)["stages"]["train"]["iterations"] == completed["train"]
    assert len(rows(tmp_path, VALIDATE)) == completed["validate"]
    assert first["segment"] != second["segment"]
    suite.check_over(windows=1)


@pytest.mark.parametrize("ours_first", [True, False])
def test_a_hook_that_fails_while_an_exception_is_told_keeps_nothing_running(
    ours_first: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite, pl = Suite(monkeypatch), lightning()
    first, second = RuntimeError("in the step"), RuntimeError("in on_exception")
    fails = callback(pl, "Fails", on_exception=failing(second, at=1)(pl.Callback.on_exception))
    callbacks = [*suite.callbacks, fails] if ours_first else [fails, *suite.callbacks]

    with pytest.raises(RuntimeError) as raised:
        run("fit", tmp_path, busy_module(training_step=failing(first, at=2)), callbacks)

    assert raised.value is second
    assert raised.value.__context__ is first
    assert summary(tmp_path)["status"] == "failed"
    assert len(rows(tmp_path)) == 1
    suite.check_over(windows=1)
    suite.check_next_run_is_clean(tmp_path / "next")


def test_an_exception_in_the_trial_of_a_tuner_which_has_put_our_callbacks_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite, pl = Suite(monkeypatch), lightning()
    error = RuntimeError("the user's own")
    module = busy_module(training_step=failing(error, at=2))
    module.lr = 0.01
    finder = pl.callbacks.LearningRateFinder(num_training_steps=4, update_attr=False)

    with pytest.raises(RuntimeError) as raised:
        run("fit", tmp_path, module, [*suite.callbacks, finder])

    assert raised.value is error
    assert summary(tmp_path)["status"] == "failed"
    assert rows(tmp_path) == []
    suite.check_over(windows=1)
    suite.check_next_run_is_clean(tmp_path / "next")


@pytest.mark.parametrize(
    ("error", "raises", "status"),
    [(KeyboardInterrupt(), SystemExit, "interrupted"), (SystemExit(7), SystemExit, "interrupted")],
    ids=["ctrl-c", "sys.exit"],
)
@pytest.mark.parametrize("hook", ["training_step", "validation_step", "test_step", "predict_step"])
def test_a_run_that_is_broken_off_in_any_stage(
    error: BaseException,
    raises: type[BaseException],
    status: str,
    hook: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    suite = Suite(monkeypatch)
    with pytest.raises(raises) as raised:
        run(entry_point_of(hook), tmp_path, busy_module(**{hook: failing(error, at=2)}), suite.callbacks)

    assert isinstance(error, KeyboardInterrupt) or raised.value is error
    assert summary(tmp_path)["status"] == status
    assert f"status: {status}" in capsys.readouterr().out.splitlines()
    suite.check_over(windows=1)
    suite.check_next_run_is_clean(tmp_path / "next")


class TrialPruned(Exception):  # noqa: N818  # Optuna's, by its name
    """Its callback raises this to give up a trial that promises little."""


def test_a_trial_that_a_search_gives_up_has_not_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite = Suite(monkeypatch)
    pruned = TrialPruned("pruned at epoch 0")
    with pytest.raises(TrialPruned) as raised:
        run("fit", tmp_path, busy_module(validation_step=failing(pruned, at=2)), suite.callbacks)

    assert raised.value is pruned
    assert summary(tmp_path)["status"] == "interrupted"
    suite.check_over(windows=1)
    suite.check_next_run_is_clean(tmp_path / "next")


def ends_after(batches: int) -> Callable[[Any], Any]:
    """A Trainer's time is over in the given batch: its Timer is told so."""

    def wrap(original: Any) -> Any:
        def step(self: Any, batch: Any, batch_idx: int) -> Any:
            if batch_idx == batches - 1:
                timer = next(each for each in self.trainer.callbacks if type(each).__name__ == "Timer")
                timer.load_state_dict({"time_elapsed": {"train": 3600.0}})
            return original(self, batch, batch_idx)

        return step

    return wrap


def logged(original: Any) -> Any:
    """Logs a loss that never falls."""

    def step(self: Any, batch: Any, batch_idx: int) -> Any:
        self.log("loss", 1.0, on_epoch=True)
        return original(self, batch, batch_idx)

    return step


def left_at(batch: int) -> Callable[[Any], Any]:
    """Leaves the epoch at the start of a batch."""
    return lambda original: lambda self, _, batch_idx: -1 if batch_idx == batch else None


def early_stopping() -> Any:
    return lightning().callbacks.EarlyStopping("loss", patience=2)


@pytest.mark.parametrize(
    ("options", "hooks", "batches"),
    [
        pytest.param({"max_time": {"hours": 1}}, {"training_step": ends_after(2)}, 2, id="max_time"),
        pytest.param({"max_steps": 1, "accumulate_grad_batches": 2}, {}, 2, id="max_steps-while-accumulating"),
        pytest.param({"max_steps": 1, "accumulate_grad_batches": 4}, {}, 3, id="max_steps-in-a-short-group"),
        pytest.param({"callbacks": [early_stopping]}, {"training_step": logged}, 9, id="EarlyStopping"),
        pytest.param({"max_epochs": 2}, {"on_train_batch_start": left_at(1)}, 2, id="epochs-left-early"),
        pytest.param({}, {"train_dataloader": lambda _: lambda self: tiny_loader(0)}, 0, id="an-empty-loader"),
        pytest.param({"limit_train_batches": 0}, {}, 0, id="no-batches"),
        pytest.param({"max_epochs": 0}, {}, 0, id="no-epochs"),
    ],
)
def test_a_run_that_ends_before_its_time_is_a_completed_one(
    options: dict[str, Any], hooks: dict[str, Any], batches: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite, pl = Suite(monkeypatch), lightning()
    others = [make() for make in options.get("callbacks", [])]
    options = {"max_epochs": 5, "num_sanity_val_steps": 0} | options | {"callbacks": [*suite.callbacks, *others]}
    trainer = quiet_trainer(pl, tmp_path, **options)
    trainer.fit(busy_module(**hooks))

    assert summary(tmp_path)["status"] == "completed"
    assert [end["status"] for end in lines(tmp_path, "end")] == ["completed"]
    assert len(rows(tmp_path)) == batches
    assert summary(tmp_path)["stages"].get("train", {"iterations": 0})["iterations"] == batches
    suite.check_over(windows=1)
    suite.check_next_run_is_clean(tmp_path / "next")


def test_ctrl_c_at_any_reading_of_the_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is, in the midst of whatever it is that we do."""
    suite, pl = Suite(monkeypatch, cpu_usage_meas_name=None), lightning()
    readings = count_readings(suite, tmp_path / "whole")
    assert readings > 20
    for at in range(1, readings + 1):
        root = tmp_path / f"{at}"
        suite.callbacks[0]._clock = failing(KeyboardInterrupt(), at=at)(suite.clock)
        with pytest.raises((SystemExit, KeyboardInterrupt)):
            fit_tiny(pl, root, tiny_module(pl), tiny_loader(2), callbacks=suite.callbacks)
        suite.check_over(windows=suite.runtime.calls.count("start"))
        if (root / "timing" / "summary.json").exists():
            assert summary(root)["status"] == "interrupted"
        suite.callbacks[0]._clock = suite.clock
        suite.check_next_run_is_clean(root / "next")


def count_readings(suite: Suite, root: Path) -> int:
    calls: Counter[str] = Counter()
    pl = lightning()
    suite.callbacks[0]._clock = counted(calls, "clock")(suite.clock)
    fit_tiny(pl, root, tiny_module(pl), tiny_loader(2), callbacks=suite.callbacks)
    suite.check_over(windows=1)
    return calls["clock"]
