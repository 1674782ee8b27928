"""Followed late or at once, a run is the same: its rows, its figures, what it prints and when. By scripted clocks."""

from __future__ import annotations

import itertools
import re
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
import torch
from known_cost import FakeClock
from known_cost_model import quiet_trainer
from ledger_records import lightning, lines, stopwatch, summary
from tiny_training import CostlyLoader, callback, tiny_module
from whole_suite import FakeRuntime, our_warnings

from lightning_timing import CUDAProfilerCallback, Stopwatch, span
from lightning_timing.callbacks.edges import STRIDE
from lightning_timing.callbacks.routine import Routines
from lightning_timing.callbacks.run_files import RunFiles
from lightning_timing.callbacks.trail import Trail
from lightning_timing.closed_iterations import MAX_WAITING
from lightning_timing.cpu_usage import CpuUsageMeter
from lightning_timing.late_recorder import LateRecorder
from lightning_timing.overhead import UnitCosts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

BATCHES = 150
EVERY_HOOK = (
    "on_train_batch_start",
    "on_before_zero_grad",
    "on_before_backward",
    "on_after_backward",
    "on_before_optimizer_step",
    "on_train_batch_end",
    "on_validation_batch_start",
    "on_validation_batch_end",
)


@dataclass
class Run:
    """One training of a scenario.

    Attributes:
        root: Its folder.
        is_late: Whether the Stopwatch is alone in it, and not beside a follower that has to be told at once.
        clock: Moves where the run spends time, each time by another amount.
        said: What the scenario notes: what should be the same however the run is followed.
        options: Of the Stopwatch's callback.
    """

    root: Path
    is_late: bool
    clock: FakeClock = field(default_factory=FakeClock)
    said: list[Any] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    _ticks: Iterator[int] = field(default_factory=itertools.count)

    def spend(self, *_: Any) -> None:
        """Lets time pass, unlike any time before."""
        self.clock.advance(1000 + next(self._ticks))

    def note(self, *what: Any) -> None:
        """Notes what should be the same in a run in another folder."""
        self.said.append(str(what).replace(str(self.root), ""))

    def spends(self, returned: Callable[..., Any]) -> Callable[..., Any]:
        """A hook that costs time before it does what it is to."""

        def hook(*args: Any, **kwargs: Any) -> Any:
            self.spend()
            return returned(*args, **kwargs)

        return hook

    def module(self, **hooks: Any) -> Any:
        """A module in which everything costs time; `hooks` replace its methods, or add some."""
        run = self

        class CostlySGD(torch.optim.SGD):
            def step(self, closure: Any = None) -> Any:
                result = super().step(closure)
                run.spend()
                return result

        costly = {
            "training_step": self.spends(lambda module, batch, _: module.layer(batch).sum()),
            "backward": self.spends(lambda _, loss: loss.backward()),
            "optimizer_zero_grad": self.spends(lambda *args: args[-1].zero_grad()),
            "configure_gradient_clipping": self.spends(lambda *_, **__: None),
            "transfer_batch_to_device": self.spends(lambda _, batch, *__: batch),
            "validation_step": self.spend,
            "on_train_batch_end": self.spend,
            "on_save_checkpoint": self.spend,
            "on_train_epoch_end": self.spend,
            "on_validation_epoch_end": self.spend,
            "lr_scheduler_step": self.spends(lambda _, scheduler, __: scheduler.step()),
            "configure_optimizers": lambda module: CostlySGD(module.layer.parameters(), lr=0.01),
            "print": self.spends(lambda module, text: self.note(module.trainer.global_step, text)),
        }
        return tiny_module(lightning(), **(costly | hooks))

    def loader(self, batches: int = BATCHES) -> CostlyLoader:
        """Batches of different sizes that each cost another time."""
        sizes = [1 + index % 3 for index in range(batches)]
        costs = [500 + 7 * index for index in range(batches)]
        return CostlyLoader(self.clock, [torch.ones(size, 2) for size in sizes], costs)

    def trainer(self, *callbacks: Any, **options: Any) -> Any:
        """A Trainer with the Stopwatch, followed as this run is."""
        beside = [] if self.is_late else [CUDAProfilerCallback(start_step=10**6, runtime=FakeRuntime())]
        ours = [stopwatch(self.clock, **self.options), *beside]
        quiet = {"max_epochs": 1, "num_sanity_val_steps": 0, "limit_val_batches": 0}
        return quiet_trainer(lightning(), self.root, callbacks=[*ours, *callbacks], **(quiet | options))

    def fit(self, module: Any, *callbacks: Any, loaders: tuple[Any, ...] = (), **options: Any) -> Any:
        """Fits, and returns the Trainer."""
        trainer = self.trainer(*callbacks, **options)
        trainer.fit(module, *(loaders or (self.loader(),)))
        return trainer


@dataclass(frozen=True)
class Outcome:
    """What a run left behind."""

    rows: list[dict[str, Any]]
    summary: dict[str, Any]
    said: list[Any]
    metered: list[tuple[str, int]]
    warned: list[str]
    printed: str
    end_ns: int


def outcome_of(run: Run, scenario: Callable[[Run], object], capsys: Any, monkeypatch: pytest.MonkeyPatch) -> Outcome:
    metered: list[tuple[str, int]] = []
    monkeypatch.setattr(CpuUsageMeter, "begin", lambda _: metered.append(("begin", run.clock())))
    monkeypatch.setattr(CpuUsageMeter, "end", lambda _: metered.append(("end", run.clock())))
    torch.manual_seed(0)
    with our_warnings() as warned:
        scenario(run)
    warned = [re.sub(r"\(at .*\)", "", warning) for warning in warned]  # the spy is in the stack
    found = summary(run.root)
    rows = [line for kind in ("iteration", "outside") for line in lines(run.root, kind)]
    for each in [*rows, *found["segments"]]:
        del each["segment"]
    kept = {name: found[name] for name in ("status", "stages", "one_time", "segments", "verdict")}
    printed = re.sub("timing itself: .*", "", capsys.readouterr().out.replace(str(run.root), ""))
    about_both = [warning for warning in warned if "capture window never opened" not in warning]
    return Outcome(rows, kept, run.said, metered, about_both, printed, run.clock())


@pytest.fixture(autouse=True)
def _costs_that_are_always_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """What timing costs late is not what it costs at once."""
    monkeypatch.setattr("lightning_timing.callbacks.stopwatch.try_out", lambda *_, **__: UnitCosts(0, 0, 0, 0))


@pytest.fixture
def catch_ups(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many edges were handled each time that there were any."""
    handled: list[int] = []
    catch_up = Trail.catch_up

    def noted(trail: Trail) -> None:
        before = len(trail.edges)
        catch_up(trail)
        if before > len(trail.edges):
            handled.append((before - len(trail.edges)) // STRIDE)

    monkeypatch.setattr(Trail, "catch_up", noted)
    return handled


# ---- scenarios ----


def plain(run: Run) -> None:
    run.fit(run.module())


def two_epochs(run: Run) -> None:
    run.fit(run.module(), max_epochs=2)


def warm_up(run: Run) -> None:
    run.options = {"num_warmup_iters": 10}
    run.fit(run.module(), max_epochs=2)


def slow_batches(run: Run) -> None:
    """Of which none may wait for as many as might."""
    run.fit(
        run.module(training_step=lambda module, batch, _: (run.clock.advance(90_000_000), module.layer(batch).sum())[1])
    )


def accumulation(run: Run) -> None:
    run.fit(run.module(), accumulate_grad_batches=4)


def manual(run: Run) -> None:
    def step(module: Any, batch: Any, _: int) -> None:
        for optimizer in module.optimizers():
            run.spend()
            optimizer.zero_grad()
            module.manual_backward(module.layer(batch).sum())
            run.spend()
            optimizer.step()
            run.spend()

    class CostlySGD(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            run.spend()
            return super().step(closure)

    optimizers = lambda module: [CostlySGD(module.layer.parameters(), lr=0.01) for _ in range(2)]  # noqa: E731
    run.fit(run.module(automatic_optimization=False, training_step=step, configure_optimizers=optimizers))


def manual_lbfgs(run: Run) -> None:
    def step(module: Any, batch: Any, _: int) -> None:
        def closure() -> Any:
            run.spend()
            optimizer.zero_grad()
            loss = module.layer(batch).pow(2).sum()
            module.manual_backward(loss)
            return loss

        optimizer = module.optimizers()
        optimizer.step(closure=closure)
        run.spend()

    optimizer = lambda module: torch.optim.LBFGS(module.layer.parameters(), lr=0.01, max_iter=3)  # noqa: E731
    run.fit(run.module(automatic_optimization=False, training_step=step, configure_optimizers=optimizer))


def steps_of_the_model_s_own(run: Run) -> None:
    def step(_: Any, epoch: int, index: int, optimizer: Any, closure: Any) -> None:
        if index % 3 == 0:
            optimizer.step(closure=closure)
            return
        closure()
        if index % 3 == 1:
            optimizer.optimizer.step()

    run.fit(run.module(optimizer_step=step))


def switched_optimization(run: Run) -> None:
    def step(module: Any, batch: Any, index: int) -> Any:
        run.spend()
        loss = module.layer(batch).sum() if index % 3 else None
        if loss is None or module.automatic_optimization:
            return loss
        module.manual_backward(loss)
        return module.optimizers().step()

    by_turns = lambda module: setattr(module, "automatic_optimization", module.current_epoch % 2 == 0)  # noqa: E731
    run.fit(run.module(training_step=step, on_train_epoch_start=by_turns), max_epochs=3)


def averaged_weights(run: Run) -> None:
    """With an epoch for the statistics of BatchNorm, in which no batch has a backward."""

    def step(module: Any, batch: Any, index: int) -> Any:
        run.spend()
        return module.layer(module.norm(batch)).sum() if index % 3 else None

    module = run.module(training_step=step)
    module.norm = torch.nn.BatchNorm1d(2)
    averaging = lightning().callbacks.StochasticWeightAveraging(swa_lrs=0.01, swa_epoch_start=1)
    loader = CostlyLoader(run.clock, [torch.ones(2, 2)] * BATCHES, 500)
    run.fit(module, averaging, loaders=(loader,), max_epochs=2, accumulate_grad_batches=4)
    assert summary(run.root)["stages"]["train"]["skipped_batches"] == 2 * BATCHES // 3


def clipping_at_times(run: Run) -> None:
    def switch(_: Any, trainer: Any, *args: Any) -> None:
        trainer.gradient_clip_val = 1.0 if args[-1] % 3 else None

    class CostlyPrecision(lightning().plugins.Precision):  # type: ignore[misc]  # found at run time
        def clip_gradients(self, *args: Any, **kwargs: Any) -> None:
            run.spend()
            super().clip_gradients(*args, **kwargs)

    module = run.module(configure_gradient_clipping=lightning().LightningModule.configure_gradient_clipping)
    switching = callback(lightning(), "Switches", on_train_batch_start=switch)
    run.fit(module, switching, plugins=[CostlyPrecision()])


def lbfgs(run: Run) -> None:
    optimizer = lambda module: torch.optim.LBFGS(module.layer.parameters(), lr=0.01, max_iter=3)  # noqa: E731
    run.fit(run.module(configure_optimizers=optimizer))


def validation_in_mid_epoch(run: Run) -> None:
    loaders = run.loader(), run.loader(20)
    run.fit(run.module(), loaders=loaders, val_check_interval=40, limit_val_batches=None, max_epochs=2)


def a_report_before_validation(run: Run) -> None:
    """Due after the last batch before it, amid accumulating, and no part of the wait for its first batch."""
    run.options = {"print_every_n_iters": 40, "num_warmup_iters": 0}
    loaders = run.loader(), run.loader(20)
    options = {"val_check_interval": 40, "limit_val_batches": None, "accumulate_grad_batches": 3}
    run.fit(run.module(), loaders=loaders, max_epochs=2, **options)
    wait = summary(run.root)["stages"]["validate"]["measurements"]["first_data_wait"]
    assert wait["max_s"] == pytest.approx(500e-9)  # what the loader's first batch costs


def ranks_that_wait(run: Run) -> None:
    """Also while validation is set up, when gradients are accumulated."""

    class OneOfTwo(lightning().strategies.SingleDeviceStrategy):  # type: ignore[misc]  # found at run time
        def __init__(self) -> None:
            super().__init__()
            self.world_size = 2

        def barrier(self, *_: Any, **__: Any) -> None:
            run.spend()

    options = {"val_check_interval": 41, "limit_val_batches": None, "reload_dataloaders_every_n_epochs": 1}
    module = run.module(val_dataloader=run.spends(lambda _: run.loader(20)))
    run.fit(module, strategy=OneOfTwo(), accumulate_grad_batches=2, max_epochs=2, **options)


def sanity_check(run: Run) -> None:
    loaders = run.loader(), run.loader(20)
    run.fit(run.module(), loaders=loaders, num_sanity_val_steps=3, limit_val_batches=None)


def checkpoints(run: Run) -> None:
    checkpoint = lightning().callbacks.ModelCheckpoint(dirpath=run.root / "checkpoints", every_n_train_steps=35)
    run.fit(run.module(), checkpoint, enable_checkpointing=True)


class _CostlyLogger:
    run: Run

    def log_metrics(self, *args: Any, **kwargs: Any) -> None:
        self.run.spend()
        super().log_metrics(*args, **kwargs)  # type: ignore[misc]  # CSVLogger's

    def save(self) -> None:
        self.run.spend()
        super().save()  # type: ignore[misc]  # CSVLogger's


def csv_logger(run: Run) -> Any:
    logger = type("Logger", (_CostlyLogger, lightning().loggers.CSVLogger), {})(run.root, name="", version="")
    logger.run = run
    return logger


def logged_step(run: Run) -> Callable[..., Any]:
    def step(module: Any, batch: Any, _: int) -> Any:
        run.spend()
        loss = module.layer(batch).sum()
        module.log("loss", loss)
        return loss

    return step


def logging(run: Run) -> None:
    run.fit(run.module(training_step=logged_step(run)), logger=csv_logger(run), log_every_n_steps=7)


def metrics_log(run: Run) -> None:
    run.options = {"log_to_logger": True}
    module = run.module(training_step=logged_step(run))
    run.fit(module, logger=csv_logger(run), log_every_n_steps=40, max_epochs=2)
    run.said.append((run.root / "metrics.csv").read_text())


def costly_callback(run: Run) -> None:
    costly = callback(lightning(), "Costly", **dict.fromkeys(EVERY_HOOK, run.spend))
    loaders = run.loader(), run.loader(20)
    run.fit(run.module(), costly, loaders=loaders, val_check_interval=40, limit_val_batches=None)


def scheduler(run: Run) -> None:
    def optimizers(module: Any) -> Any:
        optimizer = torch.optim.SGD(module.layer.parameters(), lr=0.01)
        return [optimizer], [{"scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 10), "interval": "step"}]

    run.fit(run.module(configure_optimizers=optimizers))


def none_for_some(run: Run) -> None:
    step = run.spends(lambda module, batch, index: module.layer(batch).sum() if index % 3 else None)
    run.fit(run.module(training_step=step))


def max_steps_within_a_group(run: Run) -> None:
    run.fit(run.module(), accumulate_grad_batches=4, max_steps=33, max_epochs=2)


def stopped_in_mid_epoch(run: Run) -> None:
    def skip_the_rest(_: Any, trainer: Any, module: Any, batch: Any, index: int) -> int | None:
        run.spend()
        return -1 if index == 100 else None

    run.fit(run.module(), callback(lightning(), "Skips", on_train_batch_start=skip_the_rest), max_epochs=2)


def _raising_at(run: Run, error: BaseException) -> Callable[..., Any]:
    def step(module: Any, batch: Any, index: int) -> Any:
        run.spend()
        if index == 99:
            raise error
        return module.layer(batch).sum()

    return step


def exception(run: Run) -> None:
    with pytest.raises(ValueError, match="the user's"):
        run.fit(run.module(training_step=_raising_at(run, ValueError("the user's"))))


def ctrl_c(run: Run) -> None:
    with pytest.raises(SystemExit):
        run.fit(run.module(training_step=_raising_at(run, SystemExit(1))))


def _with_spans(run: Run, first: int) -> Callable[..., Any]:
    def step(module: Any, batch: Any, index: int) -> Any:
        run.spend()
        if index < first:
            return module.layer(batch).sum()
        with span("outer"):
            run.spend()
            with span("inner"):
                run.spend()
            return module.layer(batch).sum()

    return step


def late_span(run: Run) -> None:
    run.fit(run.module(training_step=_with_spans(run, 70)), max_epochs=2)


def spans(run: Run) -> None:
    """In every batch, the first ones of epochs included."""
    module = run.module(training_step=_with_spans(run, 0), validation_step=_with_spans(run, 0))
    loaders = run.loader(), run.loader(20)
    run.fit(module, loaders=loaders, val_check_interval=40, limit_val_batches=None, max_epochs=2)


def spans_in_training(run: Run) -> None:
    run.fit(run.module(training_step=_with_spans(run, 0)), max_epochs=2)


def spans_in_the_loader(run: Run) -> None:
    """Of a name that is new in the first fetch of a later epoch, when nobody has measured in this stage before."""

    def validation_step(module: Any, batch: Any, index: int) -> None:
        if module.current_epoch:
            with span("decode"):
                run.spend()

    class Decoding:
        epochs = 0

        def __iter__(self) -> Iterator[Any]:
            self.epochs += 1
            for batch in run.loader(3):
                if self.epochs > 1:
                    with span("decode"):
                        run.spend()
                yield batch

        def __len__(self) -> int:
            return 3

    module = run.module(validation_step=validation_step)
    run.fit(module, loaders=(run.loader(3), Decoding()), limit_val_batches=None, max_epochs=2)


def _with_a_span_beside(run: Run, *places: tuple[int, int]) -> Callable[..., Any]:
    """A step that waits for another thread's span in some batches, given by their epoch and index."""

    def measure() -> None:
        with span("beside"):
            run.spend()

    def step(module: Any, batch: Any, index: int) -> Any:
        run.spend()
        if (module.current_epoch, index) in places:
            beside = threading.Thread(target=measure)
            beside.start()
            beside.join()
        return module.layer(batch).sum()

    return step


def span_on_another_thread(run: Run) -> None:
    """Of a name that is new amid the batches of which nobody was told yet."""
    run.options = {"num_warmup_iters": 10, "cpu_usage_meas_name": None}
    run.fit(run.module(training_step=_with_a_span_beside(run, (0, 5), (1, 40))), max_epochs=2)


def span_on_another_thread_amid_a_warm_up(run: Run) -> None:
    """Nor does an iteration of the second fit's warm-up, counted when the name is known, drop its sample."""
    run.options = {"num_warmup_iters": 10, "cpu_usage_meas_name": None}
    module = run.module(training_step=_with_a_span_beside(run, (1, 40)))
    trainer = run.fit(module)
    trainer.fit_loop.max_epochs = 2
    trainer.fit(module, run.loader())
    found = [(row["epoch"], row["batch_idx"]) for row in lines(run.root, "iteration") if "beside" in row["ns"]]
    assert found == [(1, 40)]


def spans_between(run: Run) -> None:
    def hook(*_: Any) -> None:
        with span("elsewhere"):
            run.spend()

    hooks = dict.fromkeys(
        ("on_train_epoch_start", "on_train_batch_start", "on_train_batch_end", "on_train_epoch_end"), hook
    )
    run.fit(run.module(), callback(lightning(), "Spans", **hooks), max_epochs=2)


def span_left_open(run: Run) -> None:
    def step(module: Any, batch: Any, index: int) -> Any:
        run.spend()
        if index == 70:
            Stopwatch().start_meas("open")
        if index == 72:
            Stopwatch().end_meas("open")
        return module.layer(batch).sum()

    run.fit(run.module(training_step=step))


def span_over_several_batches(run: Run) -> None:
    """On the loop's thread, which is misuse in each of them, and on another, which is none."""
    started, over = threading.Event(), threading.Event()

    def measure() -> None:
        with span("beside"):
            started.set()
            assert over.wait(30)

    beside = threading.Thread(target=measure)

    def step(module: Any, batch: Any, index: int) -> Any:
        run.spend()
        with span("each"):
            run.spend()
        if index == 20:
            beside.start()
            assert started.wait(30)
        if index == 95:
            over.set()
            beside.join()
        if index in (60, 90):
            Stopwatch().start_meas("long")
        if index in (65, 90):
            Stopwatch().end_meas("long")
        return module.layer(batch).sum()

    run.fit(run.module(training_step=step))


def spans_in_every_hook(run: Run) -> None:
    """With figures asked for amid an iteration, some batches skipped, and prints."""
    run.options = {"print_every_n_iters": 13, "cpu_usage_meas_name": None}

    def hook(*_: Any) -> None:
        with span("hook"):
            run.spend()

    def step(module: Any, batch: Any, index: int) -> Any:
        with span("step"):
            run.spend()
            if index % 37 == 5:
                run.said.append(Stopwatch().summary().stages)
            run.spend()
        return None if index % 7 == 3 else module.layer(batch).sum()

    hooks = ("on_train_batch_start", "on_before_zero_grad", "on_before_backward", "on_train_batch_end")
    spanned = callback(lightning(), "Spans", **dict.fromkeys(hooks, hook))
    run.fit(run.module(training_step=step), spanned, accumulate_grad_batches=2, max_epochs=2)


def spans_round_epochs_and_validations(run: Run) -> None:
    """In hooks between iterations; with no CPU usage, which would have an epoch's first iteration begin at once."""
    run.options = {"num_warmup_iters": 0, "cpu_usage_meas_name": None}

    def hook(*_: Any) -> None:
        with span("elsewhere"):
            run.spend()

    hooks = ("on_train_epoch_start", "on_train_epoch_end", "on_validation_start", "on_validation_epoch_start")
    spanned = callback(lightning(), "Spans", **dict.fromkeys(hooks, hook))
    loaders = run.loader(60), run.loader(5)
    run.fit(run.module(), spanned, loaders=loaders, val_check_interval=20, limit_val_batches=None, max_epochs=3)
    assert len([line for line in lines(run.root, "outside") if line["name"] == "elsewhere"]) == 6 + 2 * 9


def spans_and_a_loop_in_a_hook(run: Run) -> None:
    """Its turns end no iteration: what is measured in it is in the batch whose hook runs it."""

    def validate(_: Any, trainer: Any, module: Any, outputs: Any, batch: Any, index: int) -> None:
        if index % 10 == 5:
            connector, hook = trainer._logger_connector, module._current_fx_name
            first = connector._first_loop_iter
            trainer.validating = True
            trainer.fit_loop.epoch_loop.val_loop.run()
            trainer.training = True
            connector._first_loop_iter, module._current_fx_name = first, hook
            trainer.fit_loop.epoch_loop._results.batch = None
            module.train()

    module = run.module(validation_step=_with_spans(run, 0), training_step=_with_spans(run, 0))
    validating = callback(lightning(), "Validating", on_train_batch_end=validate)
    loaders = run.loader(40), run.loader(5)
    run.fit(module, validating, loaders=loaders, limit_val_batches=None, val_check_interval=20)


def spans_beside_batches_of_none(run: Run) -> None:
    """No hook of ours is told of those, so their iterations are dropped; another thread's span is new after one."""

    class WithNone:
        def __iter__(self) -> Iterator[Any]:
            for index, batch in enumerate(run.loader(40)):
                yield None if index in (20, 38) else batch

        def __len__(self) -> int:
            return 40

    spanned, beside = _with_spans(run, 0), _with_a_span_beside(run, (0, 39), (1, 30))

    def step(module: Any, batch: Any, index: int) -> Any:
        if index == 22:
            run.said.append(Stopwatch().get_num_nonwarmup_iters_measured())
        return beside(module, batch, index) if module.current_epoch == 0 else spanned(module, batch, index)

    run.fit(run.module(training_step=step), loaders=(WithNone(),), max_epochs=2)


def disabled_amid_the_run(run: Run) -> None:
    def step(module: Any, batch: Any, index: int) -> Any:
        run.spend()
        if index == 50:
            Stopwatch().disable()
        return module.layer(batch).sum()

    run.fit(run.module(training_step=step))


def spans_and_an_exception(run: Run) -> None:
    def step(module: Any, batch: Any, index: int) -> Any:
        with span("step"):
            run.spend()
            if index == 90:
                raise ValueError("the user's")
        return module.layer(batch).sum()

    with pytest.raises(ValueError, match="the user's"):
        run.fit(run.module(training_step=step))


def prints(run: Run) -> None:
    run.options = {"print_every_n_iters": 10, "cpu_usage_meas_name": None}
    run.fit(run.module())
    assert len(run.said) == BATCHES // 10


def summaries(run: Run) -> None:
    def step(module: Any, batch: Any, index: int) -> Any:
        run.spend()
        if index % 37 == 5:
            run.said.append(Stopwatch().summary().stages)
        return module.layer(batch).sum()

    run.fit(run.module(training_step=step))


def counts(run: Run) -> None:
    def count(*_: Any) -> None:
        run.said.append(Stopwatch().get_num_nonwarmup_iters_measured())

    hooks = {"on_train_batch_start": count, "on_train_batch_end": count}
    run.fit(run.module(), callback(lightning(), "Counts", **hooks))
    assert run.said == [index for index in range(BATCHES) for _ in range(2)]


def fetching_by_itself(run: Run) -> None:
    def step(module: Any, dataloader_iter: Iterator[Any]) -> Any:
        with span("before"):
            run.spend()
        batch, _, _ = next(dataloader_iter)
        with span("after"):
            run.spend()
        return module.layer(batch).sum()

    run.fit(run.module(training_step=step), max_epochs=2)


def without_a_length(run: Run) -> None:
    class Stream(torch.utils.data.IterableDataset[torch.Tensor]):
        def __iter__(self) -> Iterator[torch.Tensor]:
            yield from run.loader()

    loader = torch.utils.data.DataLoader(Stream(), batch_size=None)
    run.fit(run.module(training_step=_with_spans(run, 0)), loaders=(loader,), max_epochs=2)


def all_entry_points(run: Run) -> None:
    run.options = {"num_warmup_iters": 3}
    module = run.module(test_step=_with_spans(run, 5), predict_step=run.spend)
    trainer = run.trainer(limit_val_batches=None)
    trainer.fit(module, run.loader(), run.loader(20))
    trainer.validate(module, run.loader(20), verbose=False)
    trainer.test(module, run.loader(), verbose=False)
    trainer.predict(module, run.loader())
    trainer.fit_loop.max_epochs = 2
    trainer.fit(module, run.loader(), run.loader(20))


def users_profiler(run: Run) -> None:
    class SlowProfiler(lightning().profilers.SimpleProfiler):  # type: ignore[misc]  # found at run time
        def start(self, action_name: str) -> None:
            if not action_name.startswith("[Callback]"):  # of which there are more, where there are more callbacks
                run.spend()
            super().start(action_name)

    trainer = run.fit(run.module(), profiler=SlowProfiler())
    run.said.append(
        {name: len(each) for name, each in trainer.profiler.recorded_durations.items() if "[Call" not in name}
    )


def learning_rate_finder(run: Run) -> None:
    finder = lightning().callbacks.LearningRateFinder(num_training_steps=20)
    module = run.module()
    module.lr = 0.01
    run.fit(module, finder)


SCENARIOS = [
    plain,
    two_epochs,
    warm_up,
    slow_batches,
    accumulation,
    manual,
    manual_lbfgs,
    steps_of_the_model_s_own,
    switched_optimization,
    averaged_weights,
    clipping_at_times,
    lbfgs,
    validation_in_mid_epoch,
    a_report_before_validation,
    ranks_that_wait,
    sanity_check,
    checkpoints,
    logging,
    metrics_log,
    costly_callback,
    scheduler,
    none_for_some,
    max_steps_within_a_group,
    stopped_in_mid_epoch,
    exception,
    ctrl_c,
    late_span,
    spans,
    spans_in_training,
    spans_in_the_loader,
    span_on_another_thread,
    span_on_another_thread_amid_a_warm_up,
    spans_between,
    span_left_open,
    span_over_several_batches,
    spans_in_every_hook,
    spans_round_epochs_and_validations,
    spans_and_a_loop_in_a_hook,
    spans_beside_batches_of_none,
    disabled_amid_the_run,
    spans_and_an_exception,
    prints,
    summaries,
    counts,
    fetching_by_itself,
    without_a_length,
    all_entry_points,
    users_profiler,
    learning_rate_finder,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_a_run_is_the_same_followed_late_or_at_once(
    scenario: Callable[[Run], object],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    catch_ups: list[int],
) -> None:
    late = outcome_of(Run(tmp_path / "late", is_late=True), scenario, capsys, monkeypatch)
    was_late = max(catch_ups, default=0) > 0
    catch_ups.clear()
    at_once = outcome_of(Run(tmp_path / "at_once", is_late=False), scenario, capsys, monkeypatch)

    assert was_late == (scenario is not fetching_by_itself)
    assert not catch_ups
    assert at_once.rows
    assert late.rows == at_once.rows
    assert late == at_once


def test_a_killed_run_lacks_no_more_than_so_many_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though a checkpoint has it caught up in between."""
    written: list[Any] = []
    monkeypatch.setattr(RunFiles, "write_iteration", lambda _, iteration: written.append(iteration))
    run = Run(tmp_path, is_late=True)
    behind: list[int] = []

    def step(module: Any, batch: Any, index: int) -> Any:
        behind.append(index - len(written))
        return module.layer(batch).sum()

    checkpoint = lightning().callbacks.ModelCheckpoint(dirpath=tmp_path / "checkpoints", every_n_train_steps=35)
    run.fit(run.module(training_step=step), checkpoint, enable_checkpointing=True)

    assert max(behind) == MAX_WAITING - 1


@pytest.mark.parametrize(
    ("scenario", "kinds"),
    [(plain, 2), (accumulation, 4), (lbfgs, 3), (manual, 2), (none_for_some, 4), (spans_in_training, 3)],
)
def test_iterations_that_go_as_others_did_are_not_gone_through_again(
    scenario: Callable[[Run], object], kinds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone_through, taken = [], []
    learn, take = Routines._learn, LateRecorder.take_alike

    def note_and_take(recorder: LateRecorder, phases: Any, iterations: Any, labels: Any) -> None:
        taken.extend(iterations)
        take(recorder, phases, iterations, labels)

    monkeypatch.setattr(Routines, "_learn", lambda *args: gone_through.append(learn(*args)))
    monkeypatch.setattr(LateRecorder, "take_alike", note_and_take)
    scenario(Run(tmp_path, is_late=True))

    assert 0 < len(gone_through) <= kinds
    assert len(taken) > BATCHES / 2


@pytest.mark.parametrize(
    ("scenario", "at_most"),
    [(plain, 12), (accumulation, 12), (lbfgs, 12), (prints, 24), (spans_in_training, 24)],
)
def test_it_is_late_where_nobody_is_in_a_hurry(
    scenario: Callable[[Run], object], at_most: int, tmp_path: Path, catch_ups: list[int]
) -> None:
    scenario(Run(tmp_path, is_late=True))

    assert len(catch_ups) <= at_most
