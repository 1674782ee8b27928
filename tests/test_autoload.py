"""Timing with no code: by the environment, through Lightning's entry points, and by LightningCLI's YAML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ledger_records import both_flavours, lightning, rows
from programs import output_of, run_program
from tiny_training import fit_tiny, tiny_loader, tiny_module

from lightning_timing import CUDAProfilerCallback, NVTXCallback, StopwatchCallback
from lightning_timing.autoload import callbacks_from_environment
from lightning_timing.callbacks.from_environment import TimingFromEnvironment
from lightning_timing.errors import PresetError
from lightning_timing.preset_variable import VARIABLE

TESTS = Path(__file__).parent

ANYONES_SCRIPT = """
    import importlib
    import sys

    flavour = importlib.import_module(sys.argv[1])

    from pathlib import Path
    from tiny_training import fit_tiny, tiny_loader, tiny_module

    trainer = fit_tiny(flavour, Path.cwd(), tiny_module(flavour), tiny_loader(12))
    trainer.test(tiny_module(flavour), tiny_loader(3), verbose=False)
    print([type(callback).__name__ for callback in trainer.callbacks])
"""


@both_flavours
def test_the_variable_adds_a_preset_to_anyones_script(flavour: str, tmp_path: Path) -> None:
    program = run_program(ANYONES_SCRIPT, tmp_path, flavour, PYTHONPATH=str(TESTS), LIGHTNING_TIMING="evaluation")
    assert output_of(program).splitlines()[-1] == "['StopwatchCallback']"
    assert len(rows(tmp_path)) == 2  # 12 batches, of which 10 are warm-up
    assert (tmp_path / "timing" / "summary.json").is_file()


@pytest.mark.parametrize("environment", [{}, {VARIABLE: ""}, {VARIABLE: " "}], ids=["unset", "empty", "blank"])
def test_without_the_variable_nothing_is_added_or_imported(environment: dict[str, str], tmp_path: Path) -> None:
    code = """
        import sys
        from lightning_timing.autoload import callbacks_from_environment
        print(callbacks_from_environment())
        print(sorted({"torch", "lightning", "numpy", "hydra", "omegaconf"}.intersection(sys.modules)))
    """
    assert output_of(run_program(code, tmp_path, **environment)).splitlines() == ["[]", "[]"]


@both_flavours
def test_without_the_variable_a_trainer_gets_no_callback(flavour: str) -> None:
    trainer = lightning(flavour).Trainer(accelerator="cpu", logger=False)
    assert [
        callback for callback in trainer.callbacks if type(callback).__module__.startswith("lightning_timing")
    ] == []


@both_flavours
def test_a_wrong_name_is_an_error_when_the_trainer_is_made(flavour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "evalution")
    with pytest.raises(PresetError) as raised:
        lightning(flavour).Trainer(accelerator="cpu", logger=False)
    assert str(raised.value) == (
        "LIGHTNING_TIMING in the environment: there is no preset 'evalution': "
        "the presets are debug, evaluation, profiling, training"
    )


def test_what_is_behind_the_preset_changes_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VARIABLE, "profiling cuda_profiler.start_step=20 cuda_profiler.num_steps=10 stopwatch.folder=t")
    stopwatch, _, profiler = fit_for_a_moment("lightning.pytorch", tmp_path).callbacks[-3:]

    assert isinstance(stopwatch, StopwatchCallback)
    assert stopwatch.folder == "t"
    assert isinstance(profiler, CUDAProfilerCallback)
    assert (profiler.start_step, profiler.num_steps) == (20, 10)


def test_a_change_of_what_is_not_in_the_preset_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "profiling cuda_profiler.first=20")
    with pytest.raises(PresetError, match=r"LIGHTNING_TIMING in the environment: cannot apply 'cuda_profiler.first"):
        callbacks_from_environment()


def ours(trainer: Any) -> list[str]:
    return [type(callback).__name__ for callback in trainer.callbacks]


def fit_for_a_moment(flavour: str, root: Path, module: Any = None, **options: Any) -> Any:
    package = lightning(flavour)
    return fit_tiny(package, root, module or tiny_module(package), tiny_loader(2), **options)


@both_flavours
def test_the_training_preset_leaves_the_trainer_with_no_callback(
    flavour: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "training")
    assert ours(fit_for_a_moment(flavour, tmp_path)) == []


@both_flavours
def test_a_trainer_with_one_of_our_callbacks_gets_no_second_set(
    flavour: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "evaluation")
    mine = NVTXCallback(enable=False)
    with pytest.warns(UserWarning, match="has NVTXCallback of its own, so that LIGHTNING_TIMING='eval"):
        trainer = fit_for_a_moment(flavour, tmp_path, callbacks=[mine])
    assert trainer.callbacks == [mine]


@both_flavours
def test_a_module_that_brings_one_of_our_callbacks_gets_no_second_set(
    flavour: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "evaluation")
    mine = StopwatchCallback(num_warmup_iters=0)
    module = tiny_module(lightning(flavour), configure_callbacks=lambda _: [mine])
    with pytest.warns(UserWarning, match="has StopwatchCallback of its own"):
        trainer = fit_for_a_moment(flavour, tmp_path, module)
    assert trainer.callbacks == [mine]
    assert len(rows(tmp_path)) == 2


def test_two_stand_ins_make_one_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "evaluation")
    trainer = fit_for_a_moment("lightning.pytorch", tmp_path, callbacks=[TimingFromEnvironment("evaluation")])
    assert ours(trainer) == ["StopwatchCallback"]


def test_every_trainer_of_the_process_gets_a_set_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "evaluation")
    first, second = (fit_for_a_moment("lightning.pytorch", tmp_path / name) for name in ("first", "second"))
    assert ours(first) == ours(second) == ["StopwatchCallback"]
    assert first.callbacks[0] is not second.callbacks[0]


def test_the_set_takes_the_stand_ins_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lightning keeps checkpointing last, so that it sees what the other callbacks did."""
    monkeypatch.setenv(VARIABLE, "evaluation")
    trainer = fit_for_a_moment("lightning.pytorch", tmp_path, enable_checkpointing=True)
    assert ours(trainer) == ["StopwatchCallback", "ModelCheckpoint"]


def test_the_entry_point_returns_the_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "debug")
    assert [(type(callback), callback.preset) for callback in callbacks_from_environment()] == [
        (TimingFromEnvironment, "debug")
    ]


@both_flavours
def test_lightning_cli_takes_the_callbacks_from_its_yaml(flavour: str, tmp_path: Path) -> None:
    code = """
        import importlib
        import sys

        flavour = importlib.import_module(sys.argv[1])

        from tiny_training import tiny_loader, tiny_module

        class Module(type(tiny_module(flavour))):
            def train_dataloader(self):
                return tiny_loader(4)

        cli = importlib.import_module(f"{sys.argv[1]}.cli").LightningCLI(Module, args=["fit", "--config", "fit.yaml"])
        print([(type(callback).__name__, callback.enable) for callback in cli.trainer.callbacks[:2]])
    """
    (tmp_path / "fit.yaml").write_text(
        """
trainer:
  max_epochs: 1
  accelerator: cpu
  logger: false
  enable_progress_bar: false
  default_root_dir: .
  callbacks:
    - class_path: lightning_timing.StopwatchCallback
      init_args:
        num_warmup_iters: 1
        ranks: [0]
    - class_path: lightning_timing.NVTXCallback
      init_args:
        enable: false
"""
    )
    program = run_program(code, tmp_path, flavour, PYTHONPATH=str(TESTS))
    assert "[('StopwatchCallback', True), ('NVTXCallback', False)]" in output_of(program)
    assert len(rows(tmp_path)) == 3
