"""Threads, worker processes, coroutines and the callbacks of others: nobody is disturbed, and the figures are right."""

from __future__ import annotations

import asyncio
import copy
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import torch
from known_cost import FakeClock
from known_cost_model import quiet_trainer
from ledger_records import costs_of, counts, headers, lightning, lines, rows, stopwatch, summary
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.profilers import SimpleProfiler
from timed_samples import TimedSamples
from tiny_training import callback, fit_tiny, tiny_loader, tiny_module
from torch.utils.data import DataLoader
from whole_suite import Suite, our_warnings

from lightning_timing import NVTXRangeWrapper, Stopwatch, span
from lightning_timing.measured_iterations import IterationLabel
from lightning_timing.names import MAX_MEASUREMENTS
from lightning_timing.phase_recorder import PhaseRecorder
from lightning_timing.recorder_settings import RecorderSettings
from lightning_timing.stopwatch import STOPWATCH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

THREADS = 8
PAIRS = 400
PATIENCE_S = 60


@contextmanager
def beside(work: Callable[[], object]) -> Iterator[None]:
    """Does something again and again on a thread of its own meanwhile. An exception of it fails the test."""
    stop = threading.Event()

    def again_and_again() -> None:
        while not stop.is_set():
            work()

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(again_and_again)
        try:
            yield
        finally:
            stop.set()
        running.result(PATIENCE_S)


# ---- threads ----


@pytest.mark.usefixtures("_threads_change_all_the_time")
def test_eight_threads_measure_at_once_while_another_ends_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    tool = Suite(monkeypatch).tool
    NVTXRangeWrapper().enable()
    mine = Stopwatch(num_warmup_iters=0, on_misuse="raise")
    done = threading.Barrier(THREADS + 1)

    def measure(number: int) -> None:
        for i in range(PAIRS):
            mine.start_meas("shared")
            with span("shared span"), span(f"own {number}"):
                mine.start_meas(f"own {number} {i % 3}")
                mine.end_meas(f"own {number} {i % 3}")
            mine.end_meas("shared")
        done.wait(PATIENCE_S)

    try:
        with ThreadPoolExecutor(THREADS) as pool:
            measuring = [pool.submit(measure, number) for number in range(THREADS)]
            while done.n_waiting < THREADS:
                mine.finish_iter()
            done.wait(PATIENCE_S)
            for each in measuring:
                each.result(PATIENCE_S)
        mine.finish_iter()
        measurements = mine.summary().stages["train"].measurements
        assert STOPWATCH._recorder is not None
        assert not any(each.is_open_on_any for each in STOPWATCH._recorder.stage.user_measurements.values())
    finally:
        mine.reset()
        NVTXRangeWrapper().disable()

    assert measurements["shared"].count == measurements["shared span"].count == THREADS * PAIRS
    assert {measurements[f"own {number}"].count for number in range(THREADS)} == {PAIRS}
    assert sum(each.count for name, each in measurements.items() if name.count(" ") == 2) == THREADS * PAIRS
    assert tool.events.count("+shared span") == tool.events.count("-shared span") == THREADS * PAIRS
    assert not any(tool.by_thread.values())
    assert tool.bare_pops == 0


@pytest.mark.usefixtures("_threads_change_all_the_time")
def test_names_that_threads_add_and_figures_that_they_ask_for_upset_no_iteration() -> None:
    recorder = PhaseRecorder(RecorderSettings(num_warmup_iters=0))
    STOPWATCH._attach(recorder)
    names = iter(range(10**9))

    def add_a_name_and_ask() -> None:
        name = f"name {next(names) % (MAX_MEASUREMENTS - 1)}"
        STOPWATCH.start_meas(name)
        STOPWATCH.end_meas(name)
        STOPWATCH.summary()

    try:
        with beside(add_a_name_and_ask):
            for i in range(3000):
                recorder.begin_iteration()
                recorder.enter(f"callbacks/{i % 50}")
                recorder.leave()
                recorder.close_iteration()
                recorder.count_iteration(IterationLabel())
    finally:
        STOPWATCH.reset()

    assert recorder.figures().stages["train"].iterations == 3000


@pytest.mark.usefixtures("_threads_change_all_the_time")
def test_figures_can_be_asked_for_while_another_thread_measures_what_comes_once() -> None:
    stopwatch = Stopwatch()
    try:
        with beside(stopwatch.summary):
            for _ in range(50):
                stopwatch.enable()
                for i in range(MAX_MEASUREMENTS):
                    stopwatch.start_one_time_measurement(f"name {i}")
                assert len(stopwatch.summary().one_time) == MAX_MEASUREMENTS
                stopwatch.disable()
    finally:
        stopwatch.reset()


def test_a_logger_that_another_thread_calls_is_no_part_of_the_loop(tmp_path: Path) -> None:
    pl = lightning()
    logger = CSVLogger(tmp_path, name="", version="")

    def step(self: Any, batch: Any, batch_idx: int) -> Any:
        writer = threading.Thread(target=logger.log_metrics, args=({"a": 1.0},))
        with span("while the other writes"):
            writer.start()
            writer.join(PATIENCE_S)
        return self.layer(batch[0]).sum()

    with our_warnings() as said:
        fit_tiny(pl, tmp_path, tiny_module(pl, training_step=step), tiny_loader(4), callbacks=[stopwatch(FakeClock())])

    assert said == []
    assert len(rows(tmp_path)) == 4
    assert not any("logging" in row["ns"] for row in rows(tmp_path))


@pytest.mark.parametrize("options", [{}, {"print_every_n_iters": 1}], ids=["late", "at once"])
def test_a_checkpoint_that_another_thread_saves_is_no_part_of_the_loop(options: Any, tmp_path: Path) -> None:
    clock = FakeClock()
    pl = lightning()
    has_begun, may_end = threading.Event(), threading.Event()
    savers: list[threading.Thread] = []

    def save_slowly(*_: Any) -> None:
        has_begun.set()
        may_end.wait(10)

    def step(self: Any, batch: Any, batch_idx: int) -> Any:
        clock.advance(10)
        if batch_idx == 1:
            saver = threading.Thread(target=self.trainer.save_checkpoint, args=(tmp_path / "beside.ckpt",))
            savers.append(saver)
            saver.start()
            has_begun.wait(10)
        clock.advance(10)
        return self.layer(batch[0]).sum()

    def end_it(*_: Any) -> None:
        clock.advance(5)
        for saver in savers:
            may_end.set()
            saver.join()

    saves = callback(pl, "Saves", on_save_checkpoint=save_slowly, on_train_batch_end=end_it)
    module = tiny_module(pl, training_step=step)
    fit_tiny(pl, tmp_path, module, tiny_loader(3), callbacks=[stopwatch(clock, **options), saves])

    parts = {"forward": 20, "callbacks": 5, "callbacks/Saves": 5, "iteration": 25}
    assert costs_of(tmp_path) == [parts] * 3
    assert "checkpoint" not in counts(tmp_path)


def test_a_training_in_a_thread_is_as_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite, pl = Suite(monkeypatch), lightning()
    with ThreadPoolExecutor(1) as pool:
        training = pool.submit(fit_tiny, pl, tmp_path, tiny_module(pl), tiny_loader(3), callbacks=suite.callbacks)
        training.result(PATIENCE_S)

    assert [row["batch_idx"] for row in rows(tmp_path)] == [0, 1, 2]
    suite.check_over(windows=1)


# ---- processes ----


@pytest.mark.parametrize(
    ("method", "on_misuse"),
    [("fork", "warn"), ("fork", "raise"), ("spawn", "warn")],  # a spawned worker does not know what its parent was told
)
def test_workers_of_a_loader_may_use_all_of_it_and_measure_nothing(
    method: str, on_misuse: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite, pl = Suite(monkeypatch, on_misuse=on_misuse), lightning()
    seen: list[torch.Tensor] = []

    def step(self: Any, batch: Any, batch_idx: int) -> Any:
        seen.extend(batch)
        return self.layer(batch[:, :2]).sum()

    loader = DataLoader(TimedSamples(), batch_size=2, num_workers=1, multiprocessing_context=method)
    with our_warnings() as said:
        fit_tiny(pl, tmp_path, tiny_module(pl, training_step=step), loader, callbacks=suite.callbacks)

    assert said == []
    samples = [dict(zip(TimedSamples.fields, sample.tolist(), strict=True)) for sample in seen]
    assert samples == [{"in_worker": 1, "enabled": 0, "names": 0, "measured_by_hand": 1}] * 4
    assert [row["batch_idx"] for row in rows(tmp_path)] == [0, 1]
    assert len(headers(tmp_path)) == len(lines(tmp_path, "end")) == 1
    assert "sample" not in summary(tmp_path)["stages"]["train"]["measurements"]
    suite.check_over(windows=1)


def test_without_workers_the_same_samples_are_measured_where_they_are_waited_for(tmp_path: Path) -> None:
    pl = lightning()
    module = tiny_module(pl, training_step=lambda self, batch, batch_idx: self.layer(batch[:, :2]).sum())
    loader = DataLoader(TimedSamples(), batch_size=2)
    fit_tiny(pl, tmp_path, module, loader, callbacks=[stopwatch(FakeClock())])

    found = summary(tmp_path)["stages"]["train"]["measurements"]["sample"]
    assert found["count"] == 4
    assert [row["ns"].get("sample") for row in rows(tmp_path)] == [None, 0]  # the first batch precedes its iteration


def test_a_trainer_that_is_copied_in_mid_run_has_the_user_s_own_profiler(tmp_path: Path) -> None:
    pl = lightning()
    copies: list[Any] = []
    copies_it = callback(
        pl, "Copies", on_train_start=lambda self, trainer, _: copies.append(copy.deepcopy(trainer.profiler))
    )
    callbacks = [stopwatch(FakeClock()), copies_it]
    fit_tiny(pl, tmp_path, tiny_module(pl), tiny_loader(1), callbacks=callbacks, profiler=SimpleProfiler())

    assert [type(each) for each in copies] == [SimpleProfiler]


# ---- coroutines ----


def test_spans_of_coroutines_that_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    mine = Stopwatch(num_warmup_iters=0, on_misuse="raise", clock=clock)

    @span("decorated")
    async def work(name: str, ns: int) -> None:
        with span(name):
            await asyncio.sleep(0)
            clock.advance(ns)
            await asyncio.sleep(0)

    async def both() -> None:
        with span("all"):
            await work("alone", 5)
            await asyncio.gather(in_turns("one", 10), in_turns("two", 100))

    async def in_turns(name: str, ns: int) -> None:
        with span(name):
            clock.advance(ns)
            await asyncio.sleep(0)
            clock.advance(ns)

    try:
        asyncio.run(both())
        mine.finish_iter()
        found = mine.summary().stages["train"].measurements
    finally:
        mine.reset()

    assert {name: round(each.total_s * 1e9) for name, each in found.items() if each.total_s is not None} == {
        "all": 225,
        "decorated": 5,
        "alone": 5,
        "one": 120,  # its own two turns, and the other's first one in between
        "two": 210,
    }


def test_one_name_in_coroutines_that_take_turns_is_dropped_with_one_warning() -> None:
    """On one thread nothing tells which of them ends it."""
    clock = FakeClock()
    mine = Stopwatch(num_warmup_iters=0, on_misuse="warn", clock=clock)

    async def work() -> None:
        with span("same"):
            await asyncio.sleep(0)

    async def several() -> None:
        with span("all"):
            await asyncio.gather(*(work() for _ in range(3)))
            clock.advance(7)

    try:
        with our_warnings() as said:
            asyncio.run(several())
        mine.finish_iter()
        found = mine.summary().stages["train"].measurements
    finally:
        mine.reset()

    assert len(said) == 1
    assert "'same' was started twice" in said[0]
    assert (found["same"].count, found["all"].count, found["all"].total_s) == (0, 1, 7e-9)


# ---- the callbacks of others ----


class BackboneModule:
    """What finetuning callbacks ask of a module: a part called `backbone`, frozen at first."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = torch.nn.Linear(2, 2)

    def training_step(self, batch: Any, *_: Any) -> Any:
        return self.layer(self.backbone(batch[0])).sum()  # type: ignore[attr-defined]  # the tiny module's

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD([each for each in self.parameters() if each.requires_grad], lr=0.01)  # type: ignore[attr-defined]


def neighbours() -> dict[str, Callable[[], Any]]:
    callbacks = lightning().callbacks
    made: dict[str, Callable[[], Any]] = {
        "StochasticWeightAveraging": lambda: callbacks.StochasticWeightAveraging(swa_lrs=0.01, swa_epoch_start=1),
        "BackboneFinetuning": lambda: callbacks.BackboneFinetuning(unfreeze_backbone_at_epoch=1, verbose=False),
        "GradientAccumulationScheduler": lambda: callbacks.GradientAccumulationScheduler({0: 2, 1: 1}),
        "ModelPruning": lambda: callbacks.ModelPruning("l1_unstructured", amount=0.5),
        "LearningRateFinder": lambda: callbacks.LearningRateFinder(num_training_steps=3, update_attr=False),
        "BatchSizeFinder": lambda: callbacks.BatchSizeFinder(max_trials=1, steps_per_trial=1, init_val=1),
    }
    if hasattr(callbacks, "EMAWeightAveraging"):
        made["EMAWeightAveraging"] = lambda: callbacks.EMAWeightAveraging(decay=0.5)
    return made


NEIGHBOURS = neighbours()


@pytest.mark.parametrize("neighbour", NEIGHBOURS)
@pytest.mark.parametrize("ours_first", [True, False])
def test_a_callback_that_changes_the_training_changes_it_alike_beside_ours(
    neighbour: str, ours_first: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite, pl = Suite(monkeypatch), lightning()
    weights, batches = [], []
    for ours in ([], suite.callbacks):
        torch.manual_seed(3)
        counted: list[int] = []

        def count(self: Any, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            counted.append(batch_idx)  # noqa: B023  # called in this turn of the loop only

        own = {
            "train_dataloader": lambda self: tiny_loader(3, self.batch_size),
            "val_dataloader": lambda self: tiny_loader(1),
        }
        base = type(tiny_module(pl, **own))
        module = type("TinyModule", (BackboneModule, base), {})()
        module.batch_size, module.lr = 1, 0.01
        others = [NEIGHBOURS[neighbour](), callback(pl, "Counts", on_train_batch_end=count)]
        callbacks = [*ours, *others] if ours_first else [*others, *ours]
        trainer = quiet_trainer(pl, tmp_path / f"{len(ours)}", callbacks=callbacks, max_epochs=3)
        trainer.fit(module)
        weights.append([parameter.tolist() for parameter in module.parameters()])
        batches.append(counted)

    assert weights[0] == weights[1]
    assert batches[0] == batches[1]
    assert [row["batch_idx"] for row in rows(tmp_path / "3")] == batches[0]
    suite.check_over(windows=1)
