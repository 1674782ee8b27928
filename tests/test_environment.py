"""What a record says of the loaders and of the Hydra job, and that comparisons name what differs in them."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from known_cost import FakeClock
from ledger_records import headers, lightning, stopwatch, summary
from tiny_training import CostlyLoader, callback, fit_tiny, tiny_loader, tiny_module
from torch.utils.data import DataLoader, TensorDataset

from lightning_timing import StopwatchCallback
from lightning_timing.callbacks.environment import loaders
from lightning_timing.cli.main import main
from lightning_timing.conditions import Difference
from lightning_timing.run_comparison import compare_runs
from lightning_timing.run_times import read_times

if TYPE_CHECKING:
    from pathlib import Path

PLAIN = {"num_workers": 0, "persistent_workers": False, "pin_memory": False, "prefetch_factor": None, "batch_size": 1}


def loader_of(**options: Any) -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.ones(4, 2)), **options)


def loaders_of(train_dataloader: Any) -> Any:
    """What is told of a Trainer's loaders for training, when it has no others."""
    trainer = SimpleNamespace(
        train_dataloader=train_dataloader, val_dataloaders=None, test_dataloaders=None, predict_dataloaders=None
    )
    return loaders(trainer).get("train_loader")


def fit(root: Path, *loaders: Any, **options: Any) -> None:
    pl = lightning()
    fit_tiny(pl, root, tiny_module(pl), *loaders, callbacks=[stopwatch(FakeClock())], **options)


def test_how_often_a_run_logs_and_validates_is_a_condition(tmp_path: Path) -> None:
    fit(tmp_path / "a", tiny_loader(2), tiny_loader(1))
    fit(tmp_path / "b", tiny_loader(2), tiny_loader(1), log_every_n_steps=7, val_check_interval=1)

    found = compare_runs([read_times(tmp_path / "a")], [read_times(tmp_path / "b")]).differences
    changed = {difference.condition: difference.after for difference in found}
    assert (changed["log_every_n_steps"], changed["val_check_interval"]) == (("7",), ("1",))


class SlowDataset(torch.utils.data.Dataset[torch.Tensor]):
    """Each sample costs time on a scripted clock."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock

    def __len__(self) -> int:
        return 14

    def __getitem__(self, index: int) -> torch.Tensor:
        self.clock.advance(1000)
        return torch.ones(2)


@pytest.mark.parametrize("with_summary", [True, False])
def test_the_advice_on_data_knows_the_loader_s_workers(
    with_summary: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pl, clock = lightning(), FakeClock()
    callbacks = [stopwatch(clock, cpu_usage_meas_name=None)]  # whose clock is no scripted one
    fit_tiny(pl, tmp_path, tiny_module(pl), DataLoader(SlowDataset(clock)), callbacks=callbacks)

    advice = "next: set the DataLoader's num_workers, which is 0, above that, or"
    assert advice in " ".join(capsys.readouterr().out.split())
    if not with_summary:
        (tmp_path / "timing" / "summary.json").unlink()
    assert main(["report", str(tmp_path)]) == 0
    assert advice in " ".join(capsys.readouterr().out.split())


def test_the_record_has_the_settings_of_the_loaders(tmp_path: Path) -> None:
    val_loader = loader_of(num_workers=2, persistent_workers=True, batch_size=2)
    fit(tmp_path, tiny_loader(2), val_loader, num_sanity_val_steps=1)

    (header,) = headers(tmp_path)
    found = header["settings"]
    assert found["train_loader"] == PLAIN
    assert found["val_loader"] == {
        "num_workers": 2,
        "persistent_workers": True,
        "pin_memory": False,
        "prefetch_factor": 2,
        "batch_size": 2,
    }
    assert found.keys() & {"test_loader", "predict_loader"} == set()
    assert summary(tmp_path)["settings"] == found


@pytest.mark.parametrize("entry_point", ["validate", "test", "predict"])
def test_each_call_of_the_trainer_has_its_loaders(entry_point: str, tmp_path: Path) -> None:
    pl = lightning()
    trainer = pl.Trainer(
        default_root_dir=tmp_path, callbacks=[stopwatch(FakeClock())], logger=False, enable_progress_bar=False
    )
    getattr(trainer, entry_point)(tiny_module(pl), tiny_loader(2))

    (header,) = headers(tmp_path)
    found = header["settings"][f"{'val' if entry_point == 'validate' else entry_point}_loader"]
    # For predict, Lightning puts a batch sampler of its own into the loader, which then has no batch size.
    assert found == {**PLAIN, "batch_size": None if entry_point == "predict" else 1}


def test_a_summary_has_the_loaders_of_all_calls(tmp_path: Path) -> None:
    """After a `fit` and a `test` it is training that is judged, and its loader's workers count."""
    pl, timing = lightning(), StopwatchCallback(num_warmup_iters=0)
    options = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False}
    trainer = pl.Trainer(default_root_dir=tmp_path, callbacks=[timing], max_epochs=1, **options)
    model = tiny_module(pl)
    trainer.fit(model, loader_of(num_workers=1))
    trainer.test(model, tiny_loader(2))

    found = summary(tmp_path)["settings"]
    assert (found["train_loader"]["num_workers"], found["test_loader"]["num_workers"]) == (1, 0)
    assert timing._run is not None
    assert timing._run.recorder.figures().loader_workers == {"train": 1, "test": 0}


def test_a_changed_number_of_workers_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fit(tmp_path / "before", loader_of())
    fit(tmp_path / "after", loader_of(num_workers=1))

    before, after = read_times(tmp_path / "before"), read_times(tmp_path / "after")
    assert compare_runs([before], [after]).differences == (
        Difference("train_loader.num_workers", ("0",), ("1",)),
        Difference("train_loader.prefetch_factor", ("null",), ("2",)),
    )
    assert main(["compare", str(tmp_path / "before"), str(tmp_path / "after")]) == 0
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["train_loader.num_workers", "0", "1"] in shown


def test_a_test_after_the_fit_does_not_hide_how_it_was_fitted(tmp_path: Path) -> None:
    for name, workers in (("before", 0), ("after", 1)):
        pl = lightning()
        ours, module = stopwatch(FakeClock()), tiny_module(pl)
        trainer = fit_tiny(pl, tmp_path / name, module, loader_of(num_workers=workers), callbacks=[ours])
        trainer.test(module, tiny_loader(1), verbose=False)

    found = compare_runs([read_times(tmp_path / "before")], [read_times(tmp_path / "after")]).differences
    assert found[0] == Difference("train_loader.num_workers", ("0",), ("1",))


def test_of_several_loaders_each_is_told() -> None:
    several = {"a": loader_of(num_workers=2), "b": [loader_of(), [torch.ones(1)]]}

    found = loaders_of(several)

    assert found["num_workers"] == "2, 0, unknown"
    assert found["batch_size"] == "1, 1, unknown"
    assert len(loaders_of([loader_of()] * 1000)["num_workers"]) < 100


class Hostile:
    """Whoever asks it for anything but its own attributes gets an error, or a loader built."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"asked for {name}")

    @property
    def num_workers(self) -> int:
        raise AssertionError("built a loader")

    def __len__(self) -> int:
        raise AssertionError("counted")

    def __iter__(self) -> Any:
        raise AssertionError("built an iterator")

    def __bool__(self) -> bool:
        raise AssertionError("asked for a truth value")


def endless() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


# With names of their own, since pytest would ask some of these for theirs.
ODD_LOADERS: dict[str, Any] = {
    "none": None,
    "hostile": Hostile(),
    "a list of a hostile one": [Hostile()],
    "an empty list": [],
    "an empty mapping": {},
    "a list of itself": endless(),
    "a range": range(3),
    "a number": 7,
    "an iterator": iter([1]),
    "a class": DataLoader,
    "an object": object(),
}


@pytest.mark.parametrize("loader", ODD_LOADERS.values(), ids=ODD_LOADERS.keys())
def test_what_does_not_tell_is_left_alone(loader: Any) -> None:
    assert loaders_of(loader) is None


def test_what_is_no_number_or_text_is_left_out() -> None:
    assert loaders_of(SimpleNamespace(num_workers=torch.ones(2), batch_size=[3], pin_memory=True)) == {
        "pin_memory": True
    }


def test_a_trainer_that_fails_to_tell_costs_nothing() -> None:
    assert loaders(object()) == {}


def test_a_loader_of_ones_own_leaves_the_record_as_it_is(tmp_path: Path) -> None:
    clock, pl = FakeClock(), lightning()
    fit_tiny(
        pl, tmp_path, tiny_module(pl), CostlyLoader(clock, [torch.ones(1, 2)] * 2, 5), callbacks=[stopwatch(clock)]
    )

    (header,) = headers(tmp_path)
    assert "train_loader" not in header["settings"]


def test_a_run_that_ends_in_the_sanity_check_has_its_header(tmp_path: Path) -> None:
    pl = lightning()
    stops = callback(pl, "Stops", on_sanity_check_end=lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        fit_tiny(
            pl,
            tmp_path,
            tiny_module(pl),
            tiny_loader(1),
            tiny_loader(1),
            callbacks=[stopwatch(FakeClock()), stops],
            num_sanity_val_steps=1,
        )

    (header,) = headers(tmp_path)
    assert "train_loader" not in header["settings"]


def test_the_overrides_of_a_hydra_job_are_recorded_and_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, overrides in (("a", ["data.num_workers=0", "lr=0.1"]), ("b", ["data.num_workers=2", "lr=0.1", "+x=a=b"])):
        monkeypatch.setitem(sys.modules, HYDRA_CONFIG, job(tmp_path / name, overrides))
        fit(tmp_path / name, tiny_loader(2))

    (header,) = headers(tmp_path / "a")
    assert header["settings"]["overrides"] == {"data.num_workers": "0", "lr": "0.1"}
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    lines = capsys.readouterr().out.splitlines()
    place = lines.index("Differing conditions")
    assert [line.split() for line in lines[place + 2 : place + 4]] == [
        ["overrides.data.num_workers", "0", "2"],
        ["overrides.+x", "not", "given", "a=b"],
    ]


def test_settings_stay_small_however_many_overrides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many = [f"{'key' * 1000}{number}={'value' * 1000}" for number in range(1000)]
    many[:0] = [f"x{number}=1" for number in range(200)]
    monkeypatch.setitem(sys.modules, HYDRA_CONFIG, job(tmp_path, many))
    fit(tmp_path, tiny_loader(2))

    (header,) = headers(tmp_path)
    assert len(str(header)) < 10_000


HYDRA_CONFIG = "hydra.core.hydra_config"


def job(folder: Path, overrides: list[str]) -> Any:
    """Stands in for Hydra's module in a job that has this folder and these overrides."""
    config = SimpleNamespace(runtime={"output_dir": str(folder)}, overrides=SimpleNamespace(task=overrides))
    return SimpleNamespace(HydraConfig=SimpleNamespace(initialized=lambda: True, get=lambda: config))


def test_a_copy_for_a_spawned_rank_takes_the_job_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, HYDRA_CONFIG, job(tmp_path, ["lr=1"]))
        state = StopwatchCallback().__getstate__()
    copied = stopwatch(FakeClock())
    copied.__dict__["_job"] = state["_job"]
    pl = lightning()
    fit_tiny(pl, tmp_path / "elsewhere", tiny_module(pl), tiny_loader(2), callbacks=[copied])

    (header,) = headers(tmp_path)
    assert header["settings"]["overrides"] == {"lr": "1"}
