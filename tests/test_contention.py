"""Whether other processes used the machine while a run was measured, and where that is said."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from known_cost import FakeClock
from ledger_records import lightning, stopwatch, summary
from records import MS, end, header, phases, rows, summary_of, write_lines, write_summary
from tiny_training import fit_tiny, tiny_loader, tiny_module

from lightning_timing.cli.main import main
from lightning_timing.contention import OTHERS_SHARE, contention_note, share_of_others
from lightning_timing.figures import CpuUsage

if TYPE_CHECKING:
    from pathlib import Path

NOTE = "other processes used about 78 % of the machine meanwhile: these figures are not reliable"
CROWDED = CpuUsage("iteration", 88.0, 100.0, 0.22)
ALONE = CpuUsage("iteration", 396.0, 100.0, 0.99)


def write_run(root: Path, usage: CpuUsage | None, cores: object = 4, **changes: Any) -> Path:
    lines = [header(), *rows([phases(forward=MS)] * 20), end()]
    environment = {} if cores is None else {"cpu_count": cores}
    write_summary(root, summary_of(lines, cpu_usage=usage, environment=environment, **changes))
    return write_lines(root, lines)


@pytest.mark.parametrize(
    ("tree_percent", "machine_percent", "share"),
    [(88.0, 100.0, 0.78), (396.0, 100.0, 0.01), (0.0, 50.0, 0.5), (100.0, 50.0, 0.25), (400.0, 99.0, 0.0)],
)
def test_what_others_used_is_what_the_run_did_not(tree_percent: float, machine_percent: float, share: float) -> None:
    usage = CpuUsage("iteration", tree_percent, machine_percent, None)

    assert share_of_others(usage, 4, 1) == pytest.approx(share)
    assert (contention_note(usage, 4, 1) is not None) == (share >= OTHERS_SHARE)


@pytest.mark.parametrize(
    ("usage", "cores", "world_size"),
    [
        (None, 4, 1),
        (CpuUsage("iteration", None, 100.0, None), 4, 1),
        (CpuUsage("iteration", 88.0, None, 0.22), 4, 1),
        (CROWDED, None, 1),
        (CROWDED, 0, 1),
        (CROWDED, "four", 1),
        (CROWDED, 4, 2),
    ],
    ids=[
        "no usage",
        "no tree",
        "no machine",
        "no cores",
        "zero cores",
        "cores in words",
        "ranks",
    ],
)
def test_what_cannot_be_told_is_not_said(usage: CpuUsage | None, cores: object, world_size: int) -> None:
    assert share_of_others(usage, cores, world_size) is None
    assert contention_note(usage, cores, world_size) is None


def test_the_report_says_it_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path, CROWDED)

    assert main(["report", str(run)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == f"note: {NOTE}"
    assert main(["report", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["problems"] == [NOTE]


@pytest.mark.parametrize(("usage", "cores"), [(ALONE, 4), (None, 4), (CROWDED, None)])
def test_a_run_alone_on_its_machine_has_no_note(
    usage: CpuUsage | None, cores: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(write_run(tmp_path, usage, cores))]) == 0
    assert "other processes" not in capsys.readouterr().out


def test_a_comparison_says_it_of_the_side_that_it_is_true_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = write_run(tmp_path / "a", ALONE), write_run(tmp_path / "b", CROWDED)

    assert main(["compare", str(before), str(after), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["notes"][0] == f"{after}: {NOTE}"
    assert main(["compare", str(before), str(after)]) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith(f"note: {after}: other")  # before any answer
    assert main(["compare", str(before), str(before)]) == 0
    assert "other processes" not in capsys.readouterr().out


def test_a_comparison_says_of_which_run_it_is_not_known_where_it_is_true_of_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unknown, crowded = write_run(tmp_path / "a", CROWDED, segments=()), write_run(tmp_path / "b", CROWDED)

    assert main(["compare", str(unknown), str(crowded), "--json"]) == 0
    first, second, *_ = json.loads(capsys.readouterr().out)["notes"]
    assert first.startswith(f"{unknown}: whether others used the machine meanwhile is not known")
    assert second == f"{crowded}: {NOTE}"


def test_a_comparison_of_many_runs_says_it_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [str(write_run(tmp_path / f"{n}", CROWDED)) for n in range(6)]

    assert main(["compare", "--before", *runs[:3], "--after", *runs[3:], "--json"]) == 0
    notes = [note for note in json.loads(capsys.readouterr().out)["notes"] if "other processes" in note]
    assert notes == [
        f"{runs[0]}, {runs[1]} and 4 more: other processes used 25 % of the machine or more meanwhile: "
        "these figures are not reliable"
    ]


def test_the_summary_of_another_run_says_nothing_of_this_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path, CROWDED, segments=())

    assert main(["compare", str(run), str(run)]) == 0
    assert "other processes" not in capsys.readouterr().out


def test_the_report_at_the_end_of_a_training_says_it_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("lightning_timing.callbacks.last_report.os.cpu_count", lambda: 4)
    monkeypatch.setattr("lightning_timing.cpu_usage.CpuUsageMeter.result", lambda _: CROWDED)
    pl = lightning()
    fit_tiny(pl, tmp_path, tiny_module(pl), tiny_loader(2), callbacks=[stopwatch(FakeClock())])

    assert summary(tmp_path)["cpu_usage"]["machine_percent"] == 100.0
    assert capsys.readouterr().out.splitlines()[0] == f"note: {NOTE}"
