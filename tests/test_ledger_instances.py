"""Several of our callbacks, several Trainers in one process: nothing is shared, doubled or overwritten."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from known_cost import FakeClock
from known_cost_model import quiet_trainer
from ledger_records import costs_of, counts, lightning, stopwatch, summary
from tiny_training import callback, fit_tiny, spends, step_costing, tiny_loader, tiny_module

from lightning_timing import Stopwatch, StopwatchCallback

if TYPE_CHECKING:
    from pathlib import Path


def costly_module(pl: Any, clock: FakeClock, ns: int) -> Any:
    return tiny_module(pl, training_step=step_costing(clock, ns), validation_step=spends(clock, ns + 1))


def test_trainers_one_after_the_other_share_nothing(tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()
    for ns in (10, 30):
        root = tmp_path / str(ns)
        fit_tiny(pl, root, costly_module(pl, clock, ns), tiny_loader(3), callbacks=[stopwatch(clock)])
        assert costs_of(root) == [{"forward": ns, "iteration": ns}] * 3
        assert counts(root)["forward"] == 3


def test_trainers_that_take_turns_share_nothing(tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()
    roots = [tmp_path / name for name in ("a", "b")]
    trainers = [quiet_trainer(pl, root, callbacks=[stopwatch(clock)], max_epochs=1) for root in roots]
    modules = [costly_module(pl, clock, ns) for ns in (10, 30)]
    for trainer, module in zip(trainers, modules, strict=True):
        trainer.fit(module, tiny_loader(3))
    for trainer, module in zip(trainers, modules, strict=True):
        trainer.validate(module, tiny_loader(2), verbose=False)

    for root, ns in zip(roots, (10, 30), strict=True):
        assert costs_of(root) == [{"forward": ns, "iteration": ns}] * 3
        assert costs_of(root, "validate") == [{"forward": ns + 1, "iteration": ns + 1}] * 2
        stages = summary(root)["stages"]
        assert {name: stage["iterations"] for name, stage in stages.items()} == {"train": 3, "validate": 2}


def test_a_trainer_inside_another_s_hook_leaves_both_right(tmp_path: Path) -> None:
    """The outer one's hook is where the inner run's time belongs; the inner one has a record of its own, or none."""
    clock = FakeClock()
    pl = lightning()

    def fit_another(self: Any, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx == 1:
            fit_tiny(pl, tmp_path / "inner", costly_module(pl, clock, 100), tiny_loader(2))

    callbacks = [stopwatch(clock), callback(pl, "Fits", on_train_batch_end=fit_another)]
    fit_tiny(pl, tmp_path, costly_module(pl, clock, 10), tiny_loader(3), callbacks=callbacks)

    plain = {"forward": 10, "iteration": 10}
    inner = {"callbacks/Fits": 200, "callbacks": 200, "iteration": 210}
    assert costs_of(tmp_path) == [plain, plain | inner, plain]


@pytest.mark.parametrize(
    "options", [{}, {"num_warmup_iters": 1}, {"folder": "mine"}], ids=["equal", "warmup", "folder"]
)
def test_two_in_a_trainer_write_each_to_a_folder_of_its_own(options: dict[str, Any], tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()
    callbacks = [stopwatch(clock), stopwatch(clock, **options)]
    fit_tiny(pl, tmp_path, costly_module(pl, clock, 10), tiny_loader(3), callbacks=callbacks)

    records = sorted(tmp_path.glob("*/rank0.jsonl"))
    assert len(records) == 2
    measured = [
        [line["batch_idx"] for line in map(json.loads, record.read_text().splitlines()) if line["kind"] == "iteration"]
        for record in records
    ]
    assert sorted(measured, key=len) == [[1, 2] if "num_warmup_iters" in options else [0, 1, 2], [0, 1, 2]]
    assert costs_of(tmp_path) == [{"forward": 10, "iteration": 10}] * 3
    assert not Stopwatch().is_enabled


def test_instances_that_differ_have_keys_that_differ() -> None:
    clock = FakeClock()
    callbacks = [stopwatch(clock), stopwatch(clock, num_warmup_iters=1), stopwatch(clock, folder="mine")]
    assert len({each.state_key for each in callbacks}) == 3


def test_one_callback_in_two_trainers_belongs_to_the_one_that_runs(tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()
    shared: StopwatchCallback = stopwatch(clock)
    for ns in (10, 30):
        root = tmp_path / str(ns)
        fit_tiny(pl, root, costly_module(pl, clock, ns), tiny_loader(2), callbacks=[shared])
        assert costs_of(root) == [{"forward": ns, "iteration": ns}] * 2
