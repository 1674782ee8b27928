"""`FOLDER~1` means the run before the newest in a folder, for every command that takes a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from compared_runs import noisy_ms
from records import MS, end, header, phases, rows, write_lines

from lightning_timing.cli.main import main
from lightning_timing.run_choice import RunChoice, choice_of
from lightning_timing.run_report import read_report

if TYPE_CHECKING:
    from lightning_timing.record import Line


def run_of(name: str, forward_ms: list[float], rank: int = 0, world_size: int = 1) -> list[Line]:
    segment = f"{name}-0"
    made = rows([phases(forward=round(ms * MS), other=MS) for ms in forward_ms], segment=segment)
    return [header(segment=segment, rank=rank, world_size=world_size), *made, end(segment=segment)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three runs in one folder, of which the second had two ranks and the last one was killed."""
    slow, quick = noisy_ms(1), noisy_ms(2, center=5.0)
    killed = run_of("third", quick)[:-1]
    write_lines(tmp_path, [*run_of("first", slow), *run_of("second", slow[:50], world_size=2), *killed])
    return write_lines(tmp_path, run_of("second", slow[:50], rank=1, world_size=2), rank=1)


def report(path: Path | str, capsys: pytest.CaptureFixture[str]) -> Any:
    assert main(["report", str(path), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("back", "iterations", "status", "world_size"),
    [("", 100, None, 1), ("~0", 100, None, 1), ("~1", 50, "completed", 2), ("~2", 100, "completed", 1)],
)
@pytest.mark.parametrize("within", ["", "/timing", "/timing/rank0.jsonl"])
def test_each_run_in_a_folder_can_be_reported(
    folder: Path,
    within: str,
    back: str,
    iterations: int,
    status: str | None,
    world_size: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = report(f"{folder}{within}{back}", capsys)

    assert found["stages"]["train"]["iterations"] == iterations
    assert (found["status"], found["world_size"]) == (status, world_size)
    assert Path(found["path"]).name == f"timing{back if back != '~0' else ''}"


def test_the_ranks_of_an_earlier_run_are_compared(folder: Path) -> None:
    assert read_report(Path(f"{folder}~1")).ranks["train"].ranks == 2
    assert read_report(Path(f"{folder}~1")).problems == ()
    assert read_report(Path(f"{folder}~2")).problems == ()


def test_runs_are_found_where_rank_0_wrote_nothing_whole(tmp_path: Path) -> None:
    first, second = noisy_ms(1), noisy_ms(2)[:20]
    both = [*run_of("first", first, rank=1, world_size=2), *run_of("second", second, rank=1, world_size=2)]
    run = write_lines(tmp_path, both, rank=1)
    (run / "timing" / "rank0.jsonl").write_text('{"kind":"head')

    assert read_report(Path(f"{run}~1")).stages["train"].iterations == 100


def test_earlier_runs_are_said_to_be_there_and_how_to_read_them(folder: Path) -> None:
    assert (
        "rank 0: 2 earlier runs in the same folder left out: RUN~1 to RUN~2 show them" in read_report(folder).problems
    )


def test_two_runs_in_one_folder_are_compared(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", f"{folder}~2", str(folder)]) == 0
    assert ": faster in these runs" in capsys.readouterr().out

    assert main(["compare", f"{folder}~2", f"{folder}/timing~2"]) == 0
    assert "this run is on both sides" in capsys.readouterr().out


def test_one_run_given_by_two_names_is_one(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--before", f"{folder}~2", f"{folder}/timing~2", "--after", str(folder)]) == 0
    assert "note: one run a side" in capsys.readouterr().out


def test_an_earlier_run_is_drawn(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "out.json"
    assert main(["trace", f"{folder}~1", "-o", str(output)]) == 0

    events = json.loads(output.read_text())["traceEvents"]
    assert len({event["pid"] for event in events}) == 2
    assert sum(event["ph"] == "X" and event["name"].startswith("iteration") for event in events) == 100


def test_the_trace_of_an_earlier_run_does_not_replace_that_of_the_newest(folder: Path) -> None:
    for run in (folder, f"{folder}~1"):
        assert main(["trace", str(run)]) == 0

    assert {path.name for path in (folder / "timing").glob("*.json")} == {"trace.json", "trace~1.json"}


def test_the_only_run_below_a_folder_is_meant(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_lines(tmp_path / "version_0", [*run_of("first", noisy_ms(1)), *run_of("second", noisy_ms(2)[:20])])

    assert report(f"{tmp_path}~1", capsys)["stages"]["train"]["iterations"] == 100


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("{}~3", "{}~3: {}/timing holds 3 runs, the oldest of which is ~2"),
        ("{}/version_9~1", "{}/version_9~1: no such folder"),
    ],
)
def test_a_run_that_is_not_there(folder: Path, path: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", path.format(folder)]) == 2
    assert message.format(folder, folder) in capsys.readouterr().err


def test_a_folder_with_one_run_has_no_earlier_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_lines(tmp_path, run_of("first", noisy_ms(1)))

    assert main(["report", f"{run}~1"]) == 2
    assert f"{run}~1: {run}/timing holds one run" in capsys.readouterr().err


def test_a_folder_of_that_very_name_is_no_choice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_lines(tmp_path / "run", [*run_of("first", noisy_ms(1)), *run_of("second", noisy_ms(2)[:20])])
    write_lines(tmp_path / "run~1", run_of("other", noisy_ms(3)[:30]))

    assert report(tmp_path / "run~1", capsys)["stages"]["train"]["iterations"] == 30


@pytest.mark.parametrize(
    ("path", "choice"),
    [
        (".~1", RunChoice(Path(), 1)),
        ("run/~2", RunChoice(Path("run"), 2)),
        ("run~1/timing", RunChoice(Path("run~1/timing"), 0)),
        ("run~", RunChoice(Path("run~"), 0)),
        ("a~1~2", RunChoice(Path("a~1"), 2)),
    ],
)
def test_a_path_is_taken_apart(path: str, choice: RunChoice) -> None:
    assert choice_of(Path(path)) == choice
