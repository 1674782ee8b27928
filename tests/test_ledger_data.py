"""What a batch waits for: loaders of every kind, their workers, the move to the device. By scripted clocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from known_cost import MILLISECOND, FakeClock, busy_wait
from known_cost_model import quiet_trainer
from ledger_records import costs_of, first_waits, lightning, rows, stopwatch, summary
from lightning.pytorch.utilities import CombinedLoader
from tiny_training import CostlyLoader, fit_tiny, spends, step_costing, tiny_loader, tiny_module
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from whole_suite import Suite

from lightning_timing import StopwatchCallback, span
from lightning_timing.phases import DATA_WAIT, SANITY_CHECK, VALIDATE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ONE = torch.ones(1, 2)


class Stream(IterableDataset[torch.Tensor]):
    """Batches without a length; finding out that there are no more costs time too."""

    def __init__(self, clock: FakeClock, batches: int, fetch_ns: int) -> None:
        self.clock = clock
        self.batches = batches
        self.fetch_ns = fetch_ns

    def __iter__(self) -> Iterator[torch.Tensor]:
        for _ in range(self.batches):
            self.clock.advance(self.fetch_ns)
            yield ONE
        self.clock.advance(self.fetch_ns)


def test_what_is_measured_in_a_dataset_has_its_share_of_the_iterations_it_is_fetched_in(tmp_path: Path) -> None:
    """The first fetch of an epoch lies outside of them."""
    clock = FakeClock()
    pl = lightning()

    def batches() -> Iterator[torch.Tensor]:
        for _ in range(4):
            with span("io"):
                clock.advance(20)
            yield ONE

    class Reading(CostlyLoader):
        def __iter__(self) -> Iterator[torch.Tensor]:
            return batches()

    loader = Reading(clock, [ONE] * 4, 0)
    module = tiny_module(pl, training_step=step_costing(clock, 15))
    fit_tiny(pl, tmp_path, module, loader, callbacks=[stopwatch(clock)], max_epochs=2)

    io = summary(tmp_path)["stages"]["train"]["measurements"]["io"]
    assert (io["count"], io["total_s"]) == (8, 160e-9)
    assert (io["share"], io["per_iteration_s"]) == (120 / 240, 120e-9 / 8)
    assert io["parent"] == DATA_WAIT


def test_without_a_length_every_wait_is_where_it_was_waited_for(tmp_path: Path) -> None:
    """Lightning fetches a batch ahead there: the last iteration waits to learn that there is no eighth batch."""
    clock = FakeClock()
    pl = lightning()
    loader = DataLoader(Stream(clock, 7, 20), batch_size=None)
    callbacks = [stopwatch(clock)]
    fit_tiny(pl, tmp_path, tiny_module(pl), loader, callbacks=callbacks, max_epochs=2)

    assert costs_of(tmp_path) == [{}, *[{DATA_WAIT: 20, "iteration": 20}] * 6] * 2
    assert [row["batch_idx"] for row in rows(tmp_path)] == [*range(7)] * 2
    # Each epoch fetches two batches before it begins: the first epoch one of them before training starts.
    assert first_waits(tmp_path) == [40, 40]


def test_an_epochs_first_wait_is_not_what_the_timing_costs(tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()
    loader = CostlyLoader(clock, [ONE] * 3, 4_000_000_000)
    module = tiny_module(pl, training_step=step_costing(clock, 1_000_000_000))
    fit_tiny(pl, tmp_path, module, loader, callbacks=[stopwatch(clock)], max_epochs=3)

    assert first_waits(tmp_path) == [4_000_000_000] * 3
    # All that it cost is its calibration on the real clock: none of the scripted one's time is its own.
    assert summary(tmp_path)["timing_overhead"]["share"] < 0.01


def test_combined_loaders_are_one_wait(tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()
    loaders = {
        "a": CostlyLoader(clock, [torch.ones(1, 2)] * 3, 20),
        "b": CostlyLoader(clock, [torch.ones(5, 2)] * 3, 7),
    }

    def step(self: Any, batch: Any, *_: Any) -> torch.Tensor:
        return self.layer(batch["a"]).sum() + self.layer(batch["b"]).sum()

    module = tiny_module(pl, training_step=step)
    fit_tiny(pl, tmp_path, module, CombinedLoader(loaders, "max_size"), callbacks=[stopwatch(clock)])

    assert costs_of(tmp_path) == [{}, *[{DATA_WAIT: 27, "iteration": 27}] * 2]


def test_a_step_that_fetches_for_itself_waits_inside_its_forward(tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()

    def step(self: Any, dataloader_iter: Iterator[Any]) -> torch.Tensor:
        clock.advance(5)
        batch, _, _ = next(dataloader_iter)
        clock.advance(10)
        loss: torch.Tensor = self.layer(batch).sum()
        return loss

    loader = CostlyLoader(clock, [ONE] * 3, 20)
    fit_tiny(pl, tmp_path, tiny_module(pl, training_step=step), loader, callbacks=[stopwatch(clock)], max_epochs=2)

    assert costs_of(tmp_path) == [{"forward": 15, DATA_WAIT: 20, "iteration": 35}] * 6


def test_of_a_step_that_fetches_for_itself_the_size_is_unknown_and_the_index_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the hooks before it are given is the batch before."""
    suite, pl = Suite(monkeypatch), lightning()

    def step(self: Any, dataloader_iter: Iterator[Any]) -> torch.Tensor:
        batch, _, _ = next(dataloader_iter)
        loss: torch.Tensor = self.layer(batch).sum()
        return loss

    hooks = {"training_step": step, "validation_step": step}
    loader = CostlyLoader(FakeClock(), [torch.ones(size, 2) for size in (1, 2, 3, 4)], 20)
    options = {"callbacks": suite.callbacks, "max_epochs": 2, "val_check_interval": 2}
    fit_tiny(pl, tmp_path, tiny_module(pl, **hooks), loader, loader, **options)

    assert [(row["batch_idx"], row["samples"]) for row in rows(tmp_path)] == [(index, None) for index in range(4)] * 2
    assert [row["batch_idx"] for row in rows(tmp_path, VALIDATE)] == [*range(4)] * 4
    assert summary(tmp_path)["stages"]["train"]["samples"] is None
    assert suite.tool.events[3:6] == ["+first_data_wait", "-first_data_wait", "+iteration"]
    suite.check_over(windows=1)


def test_ragged_batches_are_counted_by_their_real_sizes(tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()
    loader = CostlyLoader(clock, [torch.ones(size, 2) for size in (1, 2, 1)], 20)
    fit_tiny(pl, tmp_path, tiny_module(pl), loader, callbacks=[stopwatch(clock)])

    assert [row["samples"] for row in rows(tmp_path)] == [1, 2, 1]
    assert summary(tmp_path)["stages"]["train"]["samples"] == 4


IMAGES = [torch.ones(3, 8, 8)] * 16
BOXES = [{"boxes": torch.ones(2, 4)}] * 16
NAMES = tuple("abcdefghijklmnop")


class Graphs:
    """Several graphs in one, as of torch_geometric or DGL: no tensor's first dimension is their number."""

    def __init__(self, **attributes: Any) -> None:
        self.x = torch.ones(200, 3)
        vars(self).update(attributes)


class HandMadeGraphs(Graphs):
    """One that nobody collated: torch_geometric would ask the device for its size."""

    ptr = None

    @property
    def num_graphs(self) -> int:
        pytest.fail("the device was asked")

    batch_size = num_graphs


@pytest.mark.parametrize("sizes", [[8, 8], {"a": 8, "b": 8}, [8, 16]], ids=str)
def test_of_several_loaders_in_step_the_size_is_unknown(sizes: Any, tmp_path: Path) -> None:
    """Their batch looks as one of inputs and targets does."""
    each = sizes.values() if isinstance(sizes, dict) else sizes
    made = [tiny_loader(2, size) for size in each]
    loaders = dict(zip(sizes, made, strict=True)) if isinstance(sizes, dict) else made
    module = tiny_module(lightning(), training_step=lambda self, *_: self.layer(torch.ones(1, 2)).sum())
    fit_tiny(lightning(), tmp_path, module, loaders, callbacks=[stopwatch(FakeClock())])

    assert [row["samples"] for row in rows(tmp_path)] == [None] * 2


def test_several_training_loaders_leave_the_size_of_validation_s_batches_known(tmp_path: Path) -> None:
    module = tiny_module(
        lightning(),
        training_step=lambda self, *_: self.layer(torch.ones(1, 2)).sum(),
        validation_step=lambda *_: None,
    )
    loaders = [tiny_loader(2, 8), tiny_loader(2, 8)]
    fit_tiny(lightning(), tmp_path, module, loaders, tiny_loader(2, 8), callbacks=[stopwatch(FakeClock())])

    assert [row["samples"] for row in rows(tmp_path)] == [None] * 2
    assert [row["samples"] for row in rows(tmp_path, "validate")] == [8] * 2


@pytest.mark.parametrize(
    ("batch", "samples"),
    [
        pytest.param((torch.ones(16, 3), torch.ones(16)), 16, id="input-and-target"),
        pytest.param({"image": torch.ones(16, 3), "label": torch.ones(16)}, 16, id="mapping"),
        pytest.param(([torch.ones(16, 3), torch.ones(16, 2)], torch.ones(16)), 16, id="two-inputs"),
        pytest.param([[torch.ones(16, 3), torch.ones(16)], [torch.ones(16), torch.ones(16)]], 16, id="two-of-each"),
        pytest.param(((torch.ones(16, 3), torch.ones(16, 2)), torch.ones(16)), 16, id="two-inputs-in-a-tuple"),
        pytest.param([(torch.ones(16, 3), torch.ones(16))], 16, id="a-list-of-one-loader-s-batch"),
        pytest.param({"image": torch.ones(16, 3), "name": ["a"] * 16, "scale": torch.tensor(1.0)}, 16, id="a-scalar"),
        pytest.param({"labelled": torch.ones(2, 3), "other": torch.ones(28, 3)}, None, id="two-loaders"),
        pytest.param((torch.ones(9, 16), torch.ones(16)), None, id="time-first"),
        pytest.param({}, None, id="nothing"),
        pytest.param({"image": IMAGES[:2], "label": [1, 2]}, None, id="mapping-of-lists"),
        pytest.param({"image": IMAGES[:2]}, None, id="mapping-of-one-list"),
        pytest.param({"views": [torch.ones(16, 3)] * 2, "label": torch.ones(16)}, 16, id="mapping-of-views"),
        pytest.param((torch.ones(16, 3, 8, 8), BOXES), 16, id="images-and-boxes"),
        pytest.param(tuple(zip(IMAGES, BOXES, strict=True)), None, id="not-collated"),
        pytest.param(tuple(zip(*zip(IMAGES, BOXES, strict=True), strict=True)), None, id="detection"),
        pytest.param((tuple(IMAGES), tuple(IMAGES)), None, id="pairs-of-images"),
        pytest.param((IMAGES, BOXES), None, id="lists-of-samples"),
        pytest.param((IMAGES, list(range(16))), None, id="images-and-numbers"),
        pytest.param([[torch.ones(16, 3), torch.ones(16, 3)], torch.ones(16), NAMES], 16, id="views-targets-and-names"),
        pytest.param([IMAGES, torch.ones(16), NAMES], None, id="lists-of-samples-a-tensor-and-names"),
        pytest.param([IMAGES[:2], NAMES[:2]], None, id="images-and-names"),
        pytest.param([IMAGES, IMAGES, list(NAMES)], None, id="lists-of-images-and-names"),
        pytest.param({"text": list(NAMES), "label": torch.ones(16)}, 16, id="texts-and-label"),
        pytest.param([NAMES, torch.ones(16, 3), torch.ones(16)], 16, id="names-first"),
        pytest.param({"tokens": list(NAMES), "label": torch.ones(3)}, None, id="one-text-in-words"),
        pytest.param([["source", "target"]] * 16, None, id="pairs-of-texts"),
        pytest.param(Graphs(batch_size=16), 16, id="graphs"),
        pytest.param(Graphs(num_graphs=16), 16, id="graphs-of-older-versions"),
        pytest.param((Graphs(batch_size=16), torch.ones(16)), 16, id="graphs-and-target"),
        pytest.param((Graphs(batch_size=16), torch.ones(200)), None, id="graphs-and-a-target-for-each-node"),
        pytest.param(Graphs(), None, id="one-graph"),
        pytest.param(HandMadeGraphs(), None, id="graphs-that-would-ask-the-device"),
        pytest.param(Graphs(batch_size=-1, num_graphs=16), 16, id="graphs-of-a-size-that-is-none"),
        pytest.param([Graphs(batch_size=1)] * 16, None, id="graphs-not-collated"),
        pytest.param([[Graphs(batch_size=1)] * 16, [torch.ones(1)] * 16], None, id="lists-of-graphs-and-targets"),
        pytest.param([Graphs(batch_size=1), torch.ones(1)], 1, id="one-graph-and-its-target"),
        pytest.param(Graphs(batch_size=torch.ones(200)), None, id="a-graph-with-an-attribute-of-that-name"),
    ],
)
def test_a_batch_s_size_is_that_of_what_was_collated(batch: Any, samples: int | None, tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()
    module = tiny_module(pl, training_step=lambda self, *_: self.layer(ONE).sum())
    fit_tiny(pl, tmp_path, module, CostlyLoader(clock, [batch], 20), callbacks=[stopwatch(clock)])

    assert [row["samples"] for row in rows(tmp_path)] == [samples]


def test_a_batch_whose_size_cannot_be_told_is_no_error(tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()
    module = tiny_module(pl, training_step=lambda self, *_: self.layer(ONE).sum())
    fit_tiny(pl, tmp_path, module, CostlyLoader(clock, [object()] * 3, 20), callbacks=[stopwatch(clock)])

    assert [row["samples"] for row in rows(tmp_path)] == [None] * 3
    assert summary(tmp_path)["stages"]["train"]["samples"] is None


def test_a_batch_that_can_be_read_once_is_left_to_the_step(tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()
    read: list[int] = []

    def step(self: Any, batch: Iterator[torch.Tensor], _: int) -> torch.Tensor:
        parts = list(batch)
        read.append(len(parts))
        return self.layer(parts[0]).sum()

    loader = CostlyLoader(clock, [iter([ONE, ONE])], 20)
    fit_tiny(pl, tmp_path, tiny_module(pl, training_step=step), loader, callbacks=[stopwatch(clock)])

    assert read == [2]
    assert [row["samples"] for row in rows(tmp_path)] == [None]


class StartingLoader(DataLoader[torch.Tensor]):
    """A loader that pays for starting its workers: in each epoch, or only once where they persist."""

    def __init__(
        self, clock: FakeClock, batches: int, fetch_ns: int, start_ns: int, persistent: bool, **options: Any
    ) -> None:
        super().__init__(**({"dataset": TensorDataset(torch.ones(batches, 2))} | options))
        self.clock, self.batches, self.fetch_ns = clock, batches, fetch_ns  # Lightning makes it anew, to predict
        self.costly = CostlyLoader(clock, [ONE] * batches, fetch_ns)
        self.start_ns = start_ns
        self.persistent = persistent

    def __iter__(self) -> Iterator[torch.Tensor]:  # type: ignore[override]  # torch names its own iterator class
        self.clock.advance(self.start_ns)
        if self.persistent:
            self.start_ns = 0
        return iter(self.costly)


@pytest.mark.parametrize(
    ("persistent", "waits"), [(False, [1_020, 1_020, 1_020]), (True, [1_020, 20, 20])], ids=["anew", "persistent"]
)
def test_starting_the_workers_shows_in_the_first_wait_alone(persistent: bool, waits: list[int], tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()
    loader = StartingLoader(clock, 4, 20, 1_000, persistent)
    val_loader = StartingLoader(clock, 2, 30, 5_000, persistent)
    fit_tiny(pl, tmp_path, tiny_module(pl), loader, val_loader, callbacks=[stopwatch(clock)], max_epochs=3)

    assert first_waits(tmp_path) == waits
    assert costs_of(tmp_path) == [{}, *[{DATA_WAIT: 20, "iteration": 20}] * 3] * 3
    assert summary(tmp_path)["stages"]["train"]["measurements"][DATA_WAIT]["max_s"] == 20e-9
    assert first_waits(tmp_path, VALIDATE) == [5_030, *[30 if persistent else 5_030] * 2]


def test_only_the_wait_is_counted_and_not_what_comes_before_and_amid_it(tmp_path: Path) -> None:
    """The loader is made, its workers start, hooks run, the first batch is fetched: the second and the last count."""
    clock = FakeClock()
    pl = lightning()

    def make(batches: int) -> Any:
        clock.advance(300)
        return StartingLoader(clock, batches, 20, 1_000, persistent=False)

    hooks = {
        "train_dataloader": lambda self: make(3),
        "val_dataloader": lambda self: make(2),
        "on_train_start": spends(clock, 7),
        "on_train_epoch_start": spends(clock, 8),
        "on_validation_start": spends(clock, 9),
    }
    trainer = quiet_trainer(
        pl,
        tmp_path,
        callbacks=[stopwatch(clock)],
        max_epochs=2,
        num_sanity_val_steps=1,
        reload_dataloaders_every_n_epochs=2,
        accumulate_grad_batches=2,
    )
    trainer.fit(tiny_module(pl, **hooks))

    assert first_waits(tmp_path, SANITY_CHECK) == [1_020]
    assert first_waits(tmp_path) == first_waits(tmp_path, VALIDATE) == [1_020, 1_020]
    assert all(set(row) <= {DATA_WAIT, "iteration"} for row in costs_of(tmp_path))


@pytest.mark.parametrize("method", ["validate", "test", "predict"])
def test_each_method_of_the_trainer_has_the_workers_start_in_the_first_wait(method: str, tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()
    trainer = quiet_trainer(pl, tmp_path, callbacks=[stopwatch(clock)])
    getattr(trainer, method)(tiny_module(pl), StartingLoader(clock, 3, 20, 1_000, persistent=False))
    assert first_waits(tmp_path, method) == [1_020]
    assert "reset" not in vars(trainer.validate_loop)

    getattr(trainer, method)(tiny_module(pl), DataLoader(Stream(clock, 3, 20), batch_size=None))
    assert [row["ns"][DATA_WAIT] for row in rows(tmp_path, method)[-2:]] == [20, 20]
    assert first_waits(tmp_path, method)[1:] == [40]


def test_a_stream_of_one_batch_is_waited_for_before_training_starts(tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()
    loader = DataLoader(Stream(clock, 1, 20), batch_size=None)
    fit_tiny(pl, tmp_path, tiny_module(pl), loader, callbacks=[stopwatch(clock)], max_epochs=2)

    assert first_waits(tmp_path) == [40, 40]  # the batch, and that there is no other


def test_a_training_batch_that_is_none_is_no_iteration(tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()
    loader = CostlyLoader(clock, [None, ONE, None, ONE], 20)
    fit_tiny(pl, tmp_path, tiny_module(pl), loader, callbacks=[stopwatch(clock)])

    assert first_waits(tmp_path) == [20]
    assert costs_of(tmp_path) == [{DATA_WAIT: 20, "iteration": 20}] * 2


def test_a_slow_transfer_is_a_phase_and_not_lost(tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()
    hooks = {
        "on_before_batch_transfer": lambda self, batch, _: (clock.advance(3), batch)[1],
        "transfer_batch_to_device": lambda self, batch, *_: (clock.advance(50), batch)[1],
        "on_after_batch_transfer": lambda self, batch, _: (clock.advance(4), batch)[1],
    }
    fit_tiny(pl, tmp_path, tiny_module(pl, **hooks), tiny_loader(3), callbacks=[stopwatch(clock)])

    assert costs_of(tmp_path) == [{"batch_transfer": 57, "iteration": 57}] * 3


class SlowStart:
    """Starts a worker process slowly."""

    def __call__(self, worker: int) -> None:
        busy_wait(START_NS)


START_NS = 300 * MILLISECOND


def test_real_workers_are_waited_for_once_if_they_persist(tmp_path: Path) -> None:
    """Real processes on the real clock: the wait that a script can only stand in for."""
    epochs = 3
    found = {}
    for persistent in (False, True):
        root = tmp_path / str(persistent)
        dataset = TensorDataset(torch.ones(4, 2))
        loader = DataLoader(dataset, num_workers=1, persistent_workers=persistent, worker_init_fn=SlowStart())
        callbacks = [StopwatchCallback(num_warmup_iters=0)]
        fit_tiny(lightning(), root, tiny_module(lightning()), loader, callbacks=callbacks, max_epochs=epochs)
        found[persistent] = [ns > START_NS / 2 for ns in first_waits(root)]
        assert max(row["ns"][DATA_WAIT] for row in rows(root) if row["batch_idx"]) < START_NS / 2
    assert found == {False: [True] * epochs, True: [True, False, False]}
