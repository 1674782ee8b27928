"""Storage that refuses, fills up or disappears costs the record; the training goes on and the figures are printed."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from known_cost import FakeClock
from known_cost_model import quiet_trainer
from ledger_records import headers, lightning, lines, rows, stopwatch, summary
from records import load_run
from tiny_training import tiny_loader, tiny_module
from whole_suite import our_warnings

from lightning_timing import span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

BATCHES = 4


def train(root: Path, at_batch: Callable[[int], None] = lambda batch_idx: None, batches: int = BATCHES) -> list[str]:
    """Trains to the end, whatever happens in between. Returns our warnings."""
    pl = lightning()
    steps = []

    def step(self: Any, batch: Any, batch_idx: int) -> Any:
        at_batch(batch_idx)
        steps.append(batch_idx)
        with span("encoder"):
            return self.layer(batch[0]).sum()

    trainer = quiet_trainer(pl, root, callbacks=[stopwatch(FakeClock())], max_epochs=1)
    with our_warnings() as said:
        trainer.fit(tiny_module(pl, training_step=step), tiny_loader(batches))
    assert steps == list(range(batches))
    return said


def check_printed(printed: str, batches: int = BATCHES) -> None:
    assert f"train: {batches} iterations" in printed
    assert "encoder" in printed


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Mounts small file systems, and unmounts them."""
    mounted: list[Path] = []

    def make(name: str, *options: str) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        if done.returncode:
            # Mounting is a privilege, which a developer or a container may lack; nothing else makes such a disk.
            pytest.skip(f"no tmpfs can be mounted here: {done.stderr.strip()}")
        mounted.append(folder)
        return folder

    yield make
    for folder in mounted:
        subprocess.run(["umount", "--lazy", str(folder)], check=True, timeout=60)


def test_a_folder_that_is_read_only_from_the_start(
    tmp_path: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "read-only"
    if os.geteuid() == 0:  # whom permissions do not stop
        root = request.getfixturevalue("mount")("mounted", "ro")
    else:
        root.mkdir()
        root.chmod(stat.S_IRUSR | stat.S_IXUSR)
    said = train(root)

    assert len(said) == 1
    assert "the record is off for the rest of this run" in said[0]
    assert str(root / "timing") in said[0]
    check_printed(capsys.readouterr().out)
    if os.geteuid():
        root.chmod(stat.S_IRWXU)  # pytest deletes it


def test_a_disk_that_fills_up_in_mid_run(
    mount: Callable[..., Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = mount("tiny", "size=64k")
    monkeypatch.setattr("lightning_timing.record_writer.FLUSH_LINES", 20)
    said = train(root, batches=400)

    assert len(said) == 1
    assert "the record is off for the rest of this run" in said[0]
    assert "No space left on device" in said[0]
    check_printed(capsys.readouterr().out, batches=400)
    kept = load_run(root).ranks[0].stages["train"].batch_idx.tolist()
    assert 50 < len(kept) < 400
    assert kept == list(range(len(kept)))


def test_a_folder_that_is_deleted_in_mid_run_is_made_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def delete(batch_idx: int) -> None:
        if batch_idx == 2:
            shutil.rmtree(tmp_path / "timing", ignore_errors=True)

    assert train(tmp_path, at_batch=delete) == []
    check_printed(capsys.readouterr().out)
    assert load_run(tmp_path).ranks[0].stages["train"].batch_idx.tolist() == list(range(BATCHES))
    assert summary(tmp_path)["stages"]["train"]["iterations"] == BATCHES


def test_a_run_dir_that_is_deleted_in_mid_run_is_made_again(tmp_path: Path) -> None:
    root = tmp_path / "run"

    def delete(batch_idx: int) -> None:
        if batch_idx == 1:
            shutil.rmtree(root, ignore_errors=True)

    assert train(root, at_batch=delete) == []
    assert summary(root)["stages"]["train"]["iterations"] == BATCHES


def make_a_file(root: Path) -> None:
    root.mkdir()
    (root / "timing").write_text("mine")


def make_a_folder_of_the_record(root: Path) -> None:
    (root / "timing" / "rank0.jsonl").mkdir(parents=True)


def make_a_link_elsewhere(root: Path) -> None:
    (root / "timing").mkdir(parents=True)
    (root / "timing" / "rank0.jsonl").symlink_to(root / "elsewhere")


@pytest.mark.parametrize("make", [make_a_file, make_a_folder_of_the_record, make_a_link_elsewhere])
def test_a_place_that_is_taken_by_something_else(
    make: Callable[[Path], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "run"
    make(root)
    said = train(root)

    assert len(said) == 1
    assert "the record is off for the rest of this run" in said[0]
    check_printed(capsys.readouterr().out)
    assert not (root / "elsewhere").exists()
    assert make is not make_a_file or (root / "timing").read_text() == "mine"


def test_a_summary_s_place_that_is_taken_leaves_the_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "timing" / "summary.json").mkdir(parents=True)
    said = train(tmp_path)

    assert len(said) == 1
    assert "summary.json" in said[0]
    assert len(rows(tmp_path)) == BATCHES
    assert [end["status"] for end in lines(tmp_path, "end")] == ["completed"]
    check_printed(capsys.readouterr().out)


@pytest.mark.parametrize("name", ["x" * 300, "/".join(["x" * 200] * 30)], ids=["a long name", "a long path"])
def test_a_path_that_no_file_system_takes(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = train(tmp_path / name)

    assert len(said) == 1
    assert "File name too long" in said[0]
    check_printed(capsys.readouterr().out)


def test_a_path_that_is_long_and_strange_but_may_be(tmp_path: Path) -> None:
    root = tmp_path.joinpath(*(["long " * 40, "ünïcödé 🚀", "new\nline", "--help", "%s{}$HOME"]))
    assert train(root) == []
    assert len(rows(root)) == BATCHES
    assert load_run(root).summary is not None


def test_two_runs_one_after_the_other_into_one_folder(tmp_path: Path) -> None:
    assert train(tmp_path) == []
    (said,) = train(tmp_path, batches=3)

    assert "holds the record of an earlier run" in said
    assert [line["batch_idx"] for line in lines(tmp_path, "iteration")] == [0, 1, 2, 3, 0, 1, 2]
    assert len(headers(tmp_path)) == 2
    newest = load_run(tmp_path)
    assert newest.ranks[0].stages["train"].batch_idx.tolist() == [0, 1, 2]
    assert newest.problems == ("rank 0: 1 earlier run in the same folder left out: RUN~1 shows it",)
    assert newest.summary is not None
    assert newest.summary.stages["train"].iterations == 3


def test_two_runs_at_once_into_one_folder(tmp_path: Path) -> None:
    def run_another(batch_idx: int) -> None:
        if batch_idx == 1:
            of_spans, of_folder = train(tmp_path, batches=2)
            assert "another run that is not over has the Stopwatch" in of_spans
            assert "holds the record of an earlier run" in of_folder

    assert train(tmp_path, at_batch=run_another) == []

    by_segment: dict[str, list[int]] = {}
    for row in lines(tmp_path, "iteration"):
        by_segment.setdefault(row["segment"], []).append(row["batch_idx"])
    assert sorted(by_segment.values()) == [[0, 1], [0, 1, 2, 3]]
    assert len(lines(tmp_path, "end")) == 2
    assert load_run(tmp_path).ranks[0].stages["train"].batch_idx.tolist() == [0, 1]  # the one that began last
