"""The command line's frame: help, errors, exit codes, and what it must not import."""

from __future__ import annotations

import importlib
import io
import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from programs import output_of, run_program
from records import MS, end, header, phases, rows, write_lines

from lightning_timing.cli import main as cli
from lightning_timing.errors import TimingError

if TYPE_CHECKING:
    import argparse

MAIN = "import sys; from lightning_timing.cli.main import main; sys.exit(main())"
ALL_OF_IT = [header(), *rows([phases(forward=MS)] * 20), end()]


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_subcommand_is_a_module_whose_docstring_is_its_help(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    module = importlib.import_module(f"lightning_timing.cli.{name}")

    with pytest.raises(SystemExit) as stopped:
        cli.main([name, "--help"])

    assert stopped.value.code == 0
    text = capsys.readouterr().out
    assert module.__doc__ in text
    assert text.startswith(f"usage: lightning-timing {name}")


def test_help_names_every_subcommand(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["--help"])

    assert stopped.value.code == 0
    words = capsys.readouterr().out.split()
    assert set(cli.COMMANDS) <= set(words)


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["--version"])

    assert stopped.value.code == 0
    assert capsys.readouterr().out == f"lightning-timing {version('lightning-timing')}\n"


@pytest.mark.parametrize("arguments", [[], ["nothing"], ["report"], ["report", "x", "--no-such-option"]])
def test_a_wrong_command_line_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(arguments)

    assert stopped.value.code == 2
    assert "usage: lightning-timing" in capsys.readouterr().err


def test_it_runs_as_a_module(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lightning_timing", "report", str(tmp_path)], capture_output=True, text=True, check=False
    )

    assert done.returncode == 2
    assert done.stderr.startswith("lightning-timing: ")


def test_help_imports_nothing_heavy_and_is_quick(tmp_path: Path) -> None:
    program = """
        import sys
        from lightning_timing.cli.main import main
        try:
            main(["--help"])
        except SystemExit:
            pass
        heavy = {"torch", "lightning", "pytorch_lightning", "plotly", "numpy", "rich", "msgspec", "hydra"}
        print("imported:", sorted(heavy & set(sys.modules)))
    """

    assert output_of(run_program(program, tmp_path)).splitlines()[-1] == "imported: []"

    process = subprocess.Popen([sys.executable, "-c", MAIN, "--help"], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    assert usage.ru_utime + usage.ru_stime < 0.3  # processor time, which other load on the machine does not change


def test_a_report_imports_neither_torch_nor_lightning_nor_plotly(tmp_path: Path) -> None:
    program = """
        import sys
        from lightning_timing.cli.main import main
        main(["report", sys.argv[1]])
        print("imported:", sorted({"torch", "lightning", "pytorch_lightning", "plotly"} & set(sys.modules)))
    """
    run_dir = write_lines(tmp_path / "run", ALL_OF_IT)

    assert output_of(run_program(program, tmp_path, str(run_dir))).splitlines()[-1] == "imported: []"


def failing_with(error: Exception, monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit code where a subcommand raises."""

    def run(_: argparse.Namespace) -> int:
        raise error

    monkeypatch.setattr("lightning_timing.cli.report.run", run)
    return cli.main(["report", "x"])


@pytest.mark.parametrize("error", [TimingError("what\nis\x1b[31m wrong"), OSError("what\nis\x1b[31m wrong")])
def test_an_error_is_one_printable_line(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert failing_with(error, monkeypatch) == 2
    assert capsys.readouterr().err == "lightning-timing: what\\nis\\x1b[31m wrong\n"


def test_a_long_error_is_cut(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert failing_with(TimingError("x" * 10**6), monkeypatch) == 2
    assert len(capsys.readouterr().err) < 1100


def test_a_mistake_of_ours_is_neither_hidden_nor_taken_for_a_crossed_threshold(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert failing_with(ZeroDivisionError(), monkeypatch) == 2
    assert "Traceback" in capsys.readouterr().err


def test_a_closed_stdout_does_not_change_the_outcome(tmp_path: Path) -> None:
    run_dir = write_lines(tmp_path, ALL_OF_IT)
    command = f'exec "{sys.executable}" -c "{MAIN}" report "$0" >&-'
    done = subprocess.run(["sh", "-c", command, str(run_dir)], stderr=subprocess.PIPE, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


def outcome_for_a_reader_that_reads(size: int, *arguments: str) -> tuple[int, bytes]:
    """The exit code and the errors of a command whose reader goes away after `size` bytes."""
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": ""},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout as stdout, process.stderr as stderr:
        stdout.read(size)
        stdout.close()
        return process.wait(), stderr.read()


def test_a_reader_that_went_away_does_not_change_the_outcome(tmp_path: Path) -> None:
    run_dir = write_lines(tmp_path, ALL_OF_IT)

    assert outcome_for_a_reader_that_reads(0, "report", str(run_dir)) == (0, b"")


def test_a_reader_that_went_away_in_the_middle(tmp_path: Path) -> None:
    many = {f"measurement {number}": MS for number in range(3000)}
    run_dir = write_lines(tmp_path, [header(), *rows([{**phases(forward=MS), **many}] * 10), end()])

    assert outcome_for_a_reader_that_reads(10, "report", str(run_dir), "--json") == (141, b"")


def test_a_reader_that_went_away_in_the_middle_of_a_comparison_does_not_change_what_the_gate_says(
    tmp_path: Path,
) -> None:
    many = {f"measurement {number}": MS for number in range(3000)}
    for name, forward in (("a", MS), ("b", 20 * MS)):
        write_lines(tmp_path / name, [header(), *rows([{**phases(forward=forward), **many}] * 40), end()])
    before, after = str(tmp_path / "a"), str(tmp_path / "b")

    assert outcome_for_a_reader_that_reads(10, "compare", before, after, "--fail-above", "5%") == (1, b"")
    assert outcome_for_a_reader_that_reads(10, "compare", after, before, "--fail-above", "5%") == (0, b"")
    assert outcome_for_a_reader_that_reads(10, "compare", after, before) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("measurements", [1, 10, 100])
def test_a_full_disk_under_the_output(tmp_path: Path, measurements: int) -> None:
    """Whether it is noticed while a report is printed, or only when what waits in the buffers is."""
    of_mine = {f"my own {n}": MS for n in range(measurements)}
    run_dir = write_lines(tmp_path, [header(), *rows([{**phases(forward=MS), **of_mine}] * 20), end()])
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-c", MAIN, "report", str(run_dir)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    assert done.returncode == 2
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_names_that_the_terminal_cannot_show_are_escaped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(out, encoding="ascii", write_through=True))
    run_dir = write_lines(tmp_path, [header(), *rows([{**phases(forward=MS), "größe": MS}] * 10), end()])

    assert cli.main(["report", str(run_dir)]) == 0
    assert b"gr\\xf6\\xdfe" in out.getvalue()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_json_is_json_whatever_the_terminal_can_show(
    encoding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(out, encoding=encoding, write_through=True))
    run_dir = write_lines(tmp_path / "größe 😀", [header(), *rows([{**phases(forward=MS), "日本": MS}] * 10), end()])

    assert cli.main(["report", str(run_dir), "--json"]) == 0
    found = json.loads(out.getvalue())
    assert found["path"] == str(run_dir / "timing")
    assert "日本" in found["stages"]["train"]["measurements"]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere names of files are text")
@pytest.mark.parametrize("form", [[], ["--json"], ["--markdown"]])
def test_a_folder_whose_name_is_no_text(form: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = write_lines(tmp_path / os.fsdecode(b"\xff\xfe"), ALL_OF_IT)

    assert cli.main(["report", str(run_dir), *form]) == 0
    assert cli.main(["compare", str(run_dir), str(run_dir), *form]) == 0
    assert "udcff" in capsys.readouterr().out
