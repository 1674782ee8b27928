"""Where a run's files go, and that ranks which know different folders agree without waiting for each other in vain."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize
from hydra.core.hydra_config import HydraConfig
from ledger_records import lightning, rows
from tiny_training import fit_tiny, tiny_loader, tiny_module

from lightning_timing import StopwatchCallback, TimingError
from lightning_timing.callbacks.run_dir import agree_on_place


class FakeRanks:
    """What rank 0 said, in the order in which it was asked; the other ranks are told."""

    def __init__(self) -> None:
        self.said: list[Any] = []

    def trainer(self, rank: int, log_dir: str | None = None, root: str = "/root") -> FakeTrainer:
        return FakeTrainer(self, rank, log_dir, root)


class FakeTrainer:
    """As much of a Trainer, and of its strategy, as is asked for a folder."""

    def __init__(self, ranks: FakeRanks, rank: int, log_dir: str | None, root: str) -> None:
        self.strategy = self
        self.default_root_dir = root
        self._said, self._rank, self._log_dir = ranks.said, rank, log_dir
        self.questions = 0

    @property
    def log_dir(self) -> Any:
        return self.broadcast(self._log_dir)

    def broadcast(self, own: Any) -> Any:
        self.questions += 1
        if self._rank == 0:
            self._said.append(own)
        return self._said[self.questions - 1]


@pytest.mark.parametrize("job_dirs", [("/job", None), (None, "/job"), ("/job", "/other"), (None, None)])
def test_every_rank_gets_rank_0_s_place_by_as_many_questions(job_dirs: tuple[str | None, str | None]) -> None:
    ranks = FakeRanks()
    trainers = [ranks.trainer(rank, log_dir=f"/logs-of-{rank}") for rank in range(2)]
    first, second = (agree_on_place(trainer, job_dir) for trainer, job_dir in zip(trainers, job_dirs, strict=True))

    assert first == second
    assert first.directory == Path(job_dirs[0] or "/logs-of-0")
    assert trainers[0].questions == trainers[1].questions


def test_without_a_job_and_a_logger_it_is_the_root() -> None:
    assert agree_on_place(FakeRanks().trainer(0), None).directory == Path("/root")


def test_a_relative_folder_is_rank_0_s_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = FakeRanks()
    monkeypatch.chdir(tmp_path)
    first = agree_on_place(ranks.trainer(0, root="runs"), None)
    monkeypatch.chdir("/")

    assert agree_on_place(ranks.trainer(1, root="runs"), None) == first
    assert first.directory == tmp_path / "runs"


def test_runs_that_share_a_folder_have_ids_of_their_own() -> None:
    assert len({agree_on_place(FakeRanks().trainer(0), None).run_id for _ in range(3)}) == 3


def test_what_is_no_folder_is_refused_on_every_rank() -> None:
    ranks = FakeRanks()
    for rank, root in enumerate(["s3://bucket/runs", "/root"]):
        with pytest.raises(TimingError, match="not to s3://bucket/runs"):
            agree_on_place(ranks.trainer(rank, root=root), None)


def test_a_run_without_a_folder_goes_on_untimed_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    root: Any = "memory://runs"
    with pytest.warns(UserWarning, match="the Stopwatch is off.*not to memory://runs"):
        trainer = fit_tiny(lightning(), root, tiny_module(lightning()), tiny_loader(2), callbacks=[StopwatchCallback()])

    assert trainer.global_step == 2
    assert list(tmp_path.iterdir()) == []


def test_a_config_composed_in_a_notebook_is_no_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Where an app reads `hydra:` itself, notebooks and tests set this config, in which no folder was made for a job.
    with initialize(version_base=None, config_path=None):
        config = compose(return_hydra_config=True)
    monkeypatch.setattr(HydraConfig.instance(), "cfg", None)
    HydraConfig.instance().set_config(config)

    stopwatch = copy.deepcopy(StopwatchCallback(num_warmup_iters=0))
    fit_tiny(lightning(), tmp_path, tiny_module(lightning()), tiny_loader(2), callbacks=[stopwatch])

    assert len(rows(tmp_path)) == 2
