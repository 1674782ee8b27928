"""Callbacks are pickled and copied before, during and after a run: all of it but what belongs to the run goes along."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from copies import copied_both_ways
from ledger_records import both_flavours, costs_of, lightning, rows
from tiny_training import callback, fit_tiny, tiny_loader, tiny_module

from lightning_timing import CUDAProfilerCallback, NVTXCallback, StopwatchCallback
from lightning_timing.callbacks.from_environment import TimingFromEnvironment
from lightning_timing.phases import OPTIMIZER_STEP

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def every_callback() -> list[Any]:
    return [
        StopwatchCallback(num_warmup_iters=0, ranks="all"),
        NVTXCallback(keep_track_of_range_order=True),
        CUDAProfilerCallback(start_step=1, ranks=[0, 3]),
        TimingFromEnvironment("debug"),
    ]


@copied_both_ways
@pytest.mark.parametrize("original", every_callback(), ids=lambda each: type(each).__name__)
def test_before_a_run(original: Any, copied: Callable[[Any], Any]) -> None:
    copy = copied(original)

    assert type(copy) is type(original)
    assert copy.state_key == original.state_key


@both_flavours
@copied_both_ways
@pytest.mark.filterwarnings("ignore:lightning_timing. no CUDA here")
def test_during_and_after_a_run(flavour: str, copied: Callable[[Any], Any], tmp_path: Path) -> None:
    """A copy made in the middle of a run neither disturbs it nor takes anything of it along."""
    pl = lightning(flavour)
    originals = every_callback()[:3]
    copies: list[Any] = []

    def copy_all(self: Any, *_: Any) -> None:
        copies.extend(map(copied, originals))

    fit_tiny(
        pl,
        tmp_path / "original",
        tiny_module(pl),
        tiny_loader(3),
        callbacks=[*originals, callback(pl, "Copies", on_train_batch_end=copy_all)],
    )
    assert len(rows(tmp_path / "original")) == 3
    assert len(copies) == 3 * len(originals)

    for number, each in enumerate([copies[:3], copies[6:], list(map(copied, originals))]):
        root = tmp_path / f"copy{number}"
        fit_tiny(pl, root, tiny_module(pl), tiny_loader(2), callbacks=each)
        assert [row["batch_idx"] for row in rows(root)] == [0, 1]
    assert len(rows(tmp_path / "original")) == 3


@copied_both_ways
def test_a_copy_made_in_a_run_works_with_a_module_that_optimizes_by_hand(
    copied: Callable[[Any], Any], tmp_path: Path
) -> None:
    pl = lightning()
    original = StopwatchCallback(num_warmup_iters=0)
    copies: list[Any] = []
    copies_it = callback(pl, "Copies", on_train_start=lambda *_: copies.append(copied(original)))
    fit_tiny(pl, tmp_path / "automatic", tiny_module(pl), tiny_loader(1), callbacks=[original, copies_it])

    def two_steps(self: Any, batch: Any, batch_idx: int) -> None:
        for optimizer in self.optimizers():
            optimizer.zero_grad()
            self.manual_backward(self.layer(batch[0]).sum())
            optimizer.step()

    automatic = tiny_module(pl)
    by_hand = tiny_module(
        pl,
        training_step=two_steps,
        configure_optimizers=lambda self: [type(automatic).configure_optimizers(self) for _ in range(2)],
    )
    by_hand.automatic_optimization = False
    fit_tiny(pl, tmp_path / "by hand", by_hand, tiny_loader(1), callbacks=copies)

    (costs,) = costs_of(tmp_path / "by hand")
    assert {f"{OPTIMIZER_STEP}/0", f"{OPTIMIZER_STEP}/1"} <= costs.keys()


def test_weight_averaging_copies_the_module_beside_ours(tmp_path: Path) -> None:
    pl = lightning()
    averaging = pl.callbacks.StochasticWeightAveraging(swa_lrs=0.01, swa_epoch_start=1)
    ours = StopwatchCallback(num_warmup_iters=0)
    fit_tiny(pl, tmp_path, tiny_module(pl), tiny_loader(3), callbacks=[ours, averaging], max_epochs=3)

    assert [row["epoch"] for row in rows(tmp_path)] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
