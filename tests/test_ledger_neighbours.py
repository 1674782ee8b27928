"""Nobody else is disturbed: the user's profiler sees what it saw, and what was replaced is put back."""

from __future__ import annotations

import contextlib
import itertools
import weakref
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import pytest
from known_cost import FakeClock
from known_cost_model import quiet_trainer
from ledger_records import both_flavours, lightning, rows, stopwatch
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.profilers import AdvancedProfiler, SimpleProfiler
from programs import run_program
from tiny_training import callback, fit_tiny, tiny_loader, tiny_module
from whole_suite import our_warnings

from lightning_timing import Stopwatch

if TYPE_CHECKING:
    from pathlib import Path

    import torch


def actions_of(profiler: SimpleProfiler) -> dict[str, int]:
    """How often each action was recorded, but for the hooks of our own callbacks."""
    recorded = profiler.recorded_durations.items()
    return {name: len(each) for name, each in recorded if "StopwatchCallback" not in name}


def step_with_an_action(self: Any, batch: Any, *_: Any) -> torch.Tensor:
    with self.trainer.profiler.profile("the user's own"):
        loss: torch.Tensor = self.layer(batch[0]).sum()
    return loss


@both_flavours
def test_a_simple_profiler_sees_the_same_actions(flavour: str, tmp_path: Path) -> None:
    pl = lightning(flavour)
    found = []
    for callbacks in ([], [stopwatch(FakeClock())]):
        profiler = pl.profilers.SimpleProfiler()
        module = tiny_module(pl, training_step=step_with_an_action)
        loaders = tiny_loader(4), tiny_loader(2)
        trainer = fit_tiny(pl, tmp_path, module, *loaders, callbacks=callbacks, profiler=profiler, max_epochs=2)
        assert trainer.profiler is profiler
        found.append(actions_of(profiler))
    assert found[0]["the user's own"] == 8
    assert found[0] == found[1]


@pytest.mark.parametrize("action", ["the user's own", "save_checkpoint"])
@pytest.mark.parametrize("profiler", [None, "simple"])
def test_a_function_may_be_decorated_with_an_action(profiler: str | None, action: str, tmp_path: Path) -> None:
    pl = lightning()
    calls: list[int] = []

    def decorated_step(self: Any, batch: Any, batch_idx: int) -> torch.Tensor:
        @self.trainer.profiler.profile(action)
        def compute(summand: int) -> torch.Tensor:
            calls.append(batch_idx)
            loss: torch.Tensor = self.layer(batch[0]).sum() + summand
            return loss

        return compute(1) + compute(summand=2)

    module = tiny_module(pl, training_step=decorated_step)
    trainer = fit_tiny(pl, tmp_path, module, tiny_loader(3), callbacks=[stopwatch(FakeClock())], profiler=profiler)

    assert calls == [0, 0, 1, 1, 2, 2]
    assert len(rows(tmp_path)) == 3
    if profiler is not None:
        assert actions_of(trainer.profiler)[action] == 6


def test_a_function_that_was_decorated_in_a_run_notes_nothing_after_it(tmp_path: Path) -> None:
    pl = lightning()
    decorated: list[Any] = []
    trails: list[Any] = []

    def decorate(self: Any, trainer: Any, *args: Any) -> None:
        trails.append(trainer.profiler._trail)
        decorated.append(trainer.profiler.profile("save_checkpoint")(len))

    callbacks = [stopwatch(FakeClock()), callback(pl, "Decorates", on_train_epoch_start=decorate)]
    fit_tiny(pl, tmp_path, tiny_module(pl), tiny_loader(3), callbacks=callbacks)

    assert [decorated[0]("abc") for _ in range(10)] == [3] * 10
    assert trails[0].edges == []


def test_a_callback_may_set_up_the_profiler_that_it_finds(tmp_path: Path) -> None:
    pl = lightning()
    profiler = SimpleProfiler()
    found = []

    def set_up(self: Any, trainer: Any, module: Any) -> None:
        found.append(isinstance(trainer.profiler, SimpleProfiler))
        trainer.profiler.dirpath, trainer.profiler.filename = tmp_path, "mine"

    callbacks = [stopwatch(FakeClock()), callback(pl, "SetsUp", on_train_start=set_up)]
    fit_tiny(pl, tmp_path, tiny_module(pl), tiny_loader(2), callbacks=callbacks, profiler=profiler)

    assert found == [True]
    assert (profiler.dirpath, profiler.filename) == (tmp_path, "mine")
    assert "run_training_epoch" in (tmp_path / "fit-mine.txt").read_text()


def test_what_a_profiler_has_itself_is_found_though_ours_stands_in_for_it(tmp_path: Path) -> None:
    """As `profiler`, by which Lightning's PyTorchProfiler calls torch's."""
    pl = lightning()
    profiler = SimpleProfiler()
    profiler.profiler = "torch's"  # type: ignore[attr-defined]  # as another class has it
    found = []

    def look(self: Any, trainer: Any, module: Any) -> None:
        found.append(trainer.profiler.profiler)
        trainer.profiler.mine = weakref.ref(trainer.profiler)
        del trainer.profiler.mine

    callbacks = [stopwatch(FakeClock()), callback(pl, "Looks", on_train_start=look)]
    trainer = fit_tiny(pl, tmp_path, tiny_module(pl), tiny_loader(2), callbacks=callbacks, profiler=profiler)

    assert found == ["torch's"]
    assert trainer.profiler is profiler
    assert not hasattr(profiler, "mine")


def test_a_mock_of_a_logger_keeps_its_methods(tmp_path: Path) -> None:
    pl = lightning()
    logger = MagicMock(spec=CSVLogger)
    logger.name, logger.version, logger.save_dir, logger.log_dir = "", "", str(tmp_path), str(tmp_path)
    fit_tiny(pl, tmp_path, tiny_module(pl), tiny_loader(2), callbacks=[stopwatch(FakeClock())], logger=logger)

    logger.finalize.assert_called_once_with("success")
    assert logger.save.called


def test_a_logger_that_takes_no_attributes_is_left_alone(tmp_path: Path) -> None:
    class Closed(CSVLogger):
        def __setattr__(self, name: str, value: Any) -> None:
            if name in ("save", "log_metrics"):
                raise ValueError(name)
            super().__setattr__(name, value)

    pl = lightning()
    logger = Closed(tmp_path, name="", version="")
    with our_warnings() as said:
        fit_tiny(pl, tmp_path, tiny_module(pl), tiny_loader(2), callbacks=[stopwatch(FakeClock())], logger=logger)

    assert said == []
    assert len(rows(tmp_path)) == 2


def test_an_advanced_profiler_reports_the_same_actions(tmp_path: Path) -> None:
    pl = lightning()
    found = []
    for callbacks in ([], [stopwatch(FakeClock())]):
        profiler = AdvancedProfiler(dirpath=tmp_path, filename=f"report{len(callbacks)}")
        module = tiny_module(pl, training_step=step_with_an_action)
        fit_tiny(pl, tmp_path, module, tiny_loader(2), callbacks=callbacks, profiler=profiler)
        report = (tmp_path / f"fit-report{len(callbacks)}.txt").read_text()
        actions = [line for line in report.splitlines() if line.startswith("Profile stats for: ")]
        found.append({action for action in actions if "StopwatchCallback" not in action})
    assert "Profile stats for: the user's own" in found[0]
    assert found[0] == found[1]


def test_the_time_of_the_user_s_profiler_is_not_lost(tmp_path: Path) -> None:
    """What a slow profiler does to the loop is in the iteration, and the rows still add up."""
    clock = FakeClock()
    pl = lightning()

    class SlowProfiler(SimpleProfiler):
        def start(self, action_name: str) -> None:
            clock.advance(1)
            super().start(action_name)

        def stop(self, action_name: str) -> None:
            super().stop(action_name)
            clock.advance(1)

    fit_tiny(pl, tmp_path, tiny_module(pl), tiny_loader(4), callbacks=[stopwatch(clock)], profiler=SlowProfiler())

    steady = [row["ns"]["iteration"] for row in rows(tmp_path)[1:-1]]
    starts = [row["start_ns"] for row in rows(tmp_path)[1:]]
    assert steady == [after - before for before, after in itertools.pairwise(starts)]
    assert min(steady) > 0


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def _fail(*_: Any, **__: Any) -> None:
    raise RuntimeError("on purpose")


@pytest.mark.parametrize(
    ("hook", "error"),
    [
        pytest.param(lambda *_: None, None, id="completed"),
        pytest.param(_fail, RuntimeError, id="failed"),
        pytest.param(_interrupt, SystemExit, id="interrupted"),
    ],
)
@both_flavours
def test_what_was_replaced_is_put_back_however_the_run_ends(
    hook: Any, error: type[BaseException] | None, flavour: str, tmp_path: Path
) -> None:
    pl = lightning(flavour)
    kept = []
    for ours in ([], [stopwatch(FakeClock())]):
        neighbour = callback(pl, "Neighbour", on_train_batch_end=hook)
        saver = pl.callbacks.ModelCheckpoint(tmp_path / f"{len(ours)}", every_n_train_steps=1)
        logger = pl.loggers.CSVLogger(tmp_path, version=f"{len(ours)}")
        options = {"logger": logger, "log_every_n_steps": 1, "enable_checkpointing": True, "max_epochs": 1}
        trainer = quiet_trainer(pl, tmp_path, callbacks=[*ours, neighbour, saver], **options)
        profiler, callbacks = trainer.profiler, list(trainer.callbacks)
        with contextlib.nullcontext() if error is None else pytest.raises(error):
            trainer.fit(tiny_module(pl), tiny_loader(3))

        assert trainer.profiler is profiler
        assert trainer.callbacks == callbacks
        assert not Stopwatch().is_enabled
        things = (trainer, trainer.strategy, trainer.strategy.precision_plugin, trainer.strategy.checkpoint_io)
        things += (trainer.fit_loop, trainer.fit_loop.epoch_loop, trainer.lightning_module, neighbour, saver, logger)
        kept.append([sorted(vars(thing)) for thing in things])
    assert kept[0] == kept[1]


@pytest.mark.parametrize(
    "hook",
    [
        "setup",
        "on_fit_start",
        "on_sanity_check_start",
        "on_train_start",
        "on_train_batch_start",
        "on_before_zero_grad",
        "on_after_backward",
        "on_validation_batch_end",
        "on_train_epoch_end",
        "on_fit_end",
        "teardown",
    ],
)
@pytest.mark.parametrize("ours_last", [False, True], ids=["ours-first", "ours-last"])
def test_a_callback_that_fails_anywhere_leaves_nothing_of_ours(hook: str, ours_last: bool, tmp_path: Path) -> None:
    pl = lightning()
    callbacks = [stopwatch(FakeClock()), callback(pl, "Fails", **{hook: _fail})]
    trainer = quiet_trainer(pl, tmp_path, callbacks=callbacks[::-1] if ours_last else callbacks, max_epochs=1)
    profiler = trainer.profiler
    with pytest.raises(RuntimeError, match="on purpose"):
        trainer.fit(tiny_module(pl), tiny_loader(2), tiny_loader(2))

    assert trainer.profiler is profiler
    assert not Stopwatch().is_enabled


def test_a_profiler_that_somebody_set_during_the_run_stays(tmp_path: Path) -> None:
    pl = lightning()
    theirs = SimpleProfiler()

    def replace(self: Any, trainer: Any, *_: Any) -> None:
        trainer.profiler = theirs

    callbacks = [stopwatch(FakeClock()), callback(pl, "Replaces", on_train_epoch_end=replace)]
    trainer = fit_tiny(pl, tmp_path, tiny_module(pl), tiny_loader(2), callbacks=callbacks)

    assert trainer.profiler is theirs
    assert len(rows(tmp_path)) == 2


def test_importing_ours_leaves_lightning_s_messages_where_they_went(tmp_path: Path) -> None:
    """Each of Lightning's packages, once imported, takes the messages of both; a program silences the one it uses."""
    program = """
        import logging, warnings
        warnings.simplefilter("ignore")  # torch's, where it was built for a newer driver than there is
        import lightning.pytorch as pl

        logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
        from lightning_timing import StopwatchCallback

        assert StopwatchCallback
        pl.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
        """
    assert run_program(program, tmp_path).stderr == ""
