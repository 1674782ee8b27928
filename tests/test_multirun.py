"""Hydra multirun folders: jobs side by side with their overrides, best first."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

import pytest
from records import MS, end, header, phases, rows, summary_of, write_lines, write_summary

from lightning_timing.cli.main import main
from lightning_timing.errors import BadInputError
from lightning_timing.figures import CpuUsage
from lightning_timing.multirun import find_jobs, read_multirun

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("_wide_terminal")


def write_job(folder: Path, overrides: str | None, forward_ms: int | None, **row_changes: object) -> Path:
    """A job's folder: with its overrides, and with a record where it has a `forward_ms`."""
    if forward_ms is not None:
        lines = [header(), *rows([phases(forward=forward_ms * MS)] * 20, **row_changes), end()]
        write_summary(write_lines(folder, lines), summary_of(lines))
    if overrides is not None:
        (folder / ".hydra").mkdir(parents=True)
        (folder / ".hydra" / "overrides.yaml").write_text(overrides, encoding="utf-8")
    return folder


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    for job, forward_ms in (("0", 30), ("1", 10), ("10", 20), ("2", None)):
        write_job(tmp_path / job, f"- timing=evaluation\n- model.width={job}\n", forward_ms)
    return tmp_path


def test_jobs_are_found_in_the_order_of_their_numbers(sweep: Path) -> None:
    assert [job.name for job in find_jobs(sweep)] == ["0", "1", "2", "10"]


@pytest.mark.parametrize("link", ["0-latest", "latest"])
def test_a_link_to_a_job_is_no_job_of_its_own(link: str, sweep: Path) -> None:
    """Some programs keep a link to their latest run beside the runs."""
    before = find_jobs(sweep)
    (sweep / link).symlink_to(before[-1], target_is_directory=True)

    assert find_jobs(sweep) == before


def test_links_to_a_job_elsewhere_are_one_job(tmp_path: Path) -> None:
    job = write_job(tmp_path / "elsewhere" / "job", None, 10)
    runs = tmp_path / "runs"
    runs.mkdir()
    for name in ("a", "b"):
        (runs / name).symlink_to(job, target_is_directory=True)

    assert find_jobs(runs) == [runs / "a"]


def test_jobs_in_nested_folders_are_found(tmp_path: Path) -> None:
    job = write_job(tmp_path / "lr=1" / "data=a", None, 10)

    assert find_jobs(tmp_path) == [job]


def test_records_in_folders_of_other_names_are_found_where_there_is_no_other(tmp_path: Path) -> None:
    """As of the folds of a cross-validation in one Hydra job; but a second callback's record is no job of its own."""
    for fold in ("fold0", "fold1"):
        written = write_job(tmp_path / fold, None, 10)
        (written / "timing").rename(tmp_path / f"timing_{fold}")
        written.rmdir()
    assert [job.name for job in find_jobs(tmp_path)] == ["timing_fold0", "timing_fold1"]

    jobs = tmp_path / "jobs"
    for number in ("0", "1"):
        write_job(jobs / number, f"- lr={number}\n", None)
        for fold in ("fold0", "fold1"):
            written = write_job(jobs / "written", None, 10)
            (written / "timing").rename(jobs / number / f"timing_{fold}")
            written.rmdir()
    folds = read_multirun(jobs, find_jobs(jobs)).jobs
    assert {(job.name, job.overrides) for job in folds} == {
        (f"{number}/timing_{fold}", (f"lr={number}",)) for number in ("0", "1") for fold in ("fold0", "fold1")
    }

    job = write_job(tmp_path / "job", None, 10)
    (write_job(tmp_path / "other", None, 20) / "timing").rename(job / "timing-2")
    assert job in find_jobs(tmp_path)
    assert job / "timing-2" not in find_jobs(tmp_path)


@pytest.mark.parametrize("name", ["nothing", "file", "empty", "presets"])
def test_no_jobs(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "presets" / "conf" / "timing").mkdir(parents=True)

    assert find_jobs(tmp_path / name) == []


def test_best_first_with_what_sets_the_jobs_apart(sweep: Path) -> None:
    found = read_multirun(sweep, find_jobs(sweep))

    assert [job.name for job in found.jobs] == ["1", "10", "0", "2"]
    assert found.common_overrides == ("timing=evaluation",)
    assert found.jobs[0].overrides == ("model.width=1",)
    assert found.by_samples
    assert found.jobs[-1].report is None
    assert found.jobs[-1].problem is not None
    assert "no record" in found.jobs[-1].problem


def test_the_jobs_whose_speed_others_disturbed_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for job, machine_percent in (("quiet", 50.0), ("busy", 90.0)):
        both = (rows([phases(forward=10 * MS)] * 20, stage=stage) for stage in ("train", "validate"))
        lines = [header(), *chain.from_iterable(both), end()]
        usage = CpuUsage("iteration", 100.0, machine_percent, 0.5)
        summary = replace(summary_of(lines), cpu_usage=usage, environment={"cpu_count": 2})
        write_summary(write_lines(tmp_path / job, lines), summary)

    assert main(["report", str(tmp_path)]) == 0
    note = "note: job busy: other processes used 25 % of the machine or more: its speed is not reliable"
    assert note in capsys.readouterr().out.splitlines()
    assert main(["report", str(tmp_path), "--stage", "validate"]) == 0
    assert note in capsys.readouterr().out.splitlines()


def test_a_job_that_failed_is_never_the_best(tmp_path: Path) -> None:
    write_job(tmp_path / "slow", None, 20)
    failed = [header(), *rows([phases(forward=10 * MS)] * 20), end(status="failed")]
    write_lines(tmp_path / "failed", failed)

    assert [job.name for job in read_multirun(tmp_path, find_jobs(tmp_path)).jobs] == ["slow", "failed"]


def test_more_samples_a_second_are_better_than_shorter_iterations(tmp_path: Path) -> None:
    write_job(tmp_path / "small", None, 10, samples=8)
    write_job(tmp_path / "large", None, 20, samples=64)

    assert [job.name for job in read_multirun(tmp_path, find_jobs(tmp_path)).jobs] == ["large", "small"]


def test_unknown_batch_sizes_leave_iterations_a_second(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_lines(tmp_path / "unknown", [header(), *rows([phases(forward=10 * MS)] * 20, samples=None), end()])
    write_job(tmp_path / "known", None, 20, samples=64)

    found = read_multirun(tmp_path, find_jobs(tmp_path))

    assert not found.by_samples
    assert [job.name for job in found.jobs] == ["unknown", "known"]
    assert main(["report", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split()[:3] == ["unknown", "100.0", "iterations/s"]
    assert "best first, by iterations a second in train" in lines


def test_jobs_are_compared_by_the_stage_asked_for(tmp_path: Path) -> None:
    write_job(tmp_path / "0", None, 10)
    write_job(tmp_path / "1", None, 20, stage="test")
    jobs = find_jobs(tmp_path)

    assert read_multirun(tmp_path, jobs).stage == "train"
    assert [job.name for job in read_multirun(tmp_path, jobs, "test").jobs] == ["1", "0"]
    with pytest.raises(BadInputError, match="no job has figures of stage 'predict'; there is train, test"):
        read_multirun(tmp_path, jobs, "predict")


def test_a_job_is_judged_by_the_stage_asked_for(tmp_path: Path) -> None:
    waiting = rows([phases(data_wait=9 * MS, forward=MS)] * 20)
    lines = [header(), *waiting, *rows([phases(forward=MS)] * 20, stage="validate"), end()]
    write_summary(write_lines(tmp_path / "0", lines), summary_of(lines))

    verdicts = []
    for stage in ("train", "validate", None):
        (job,) = read_multirun(tmp_path, find_jobs(tmp_path), stage).jobs
        assert job.report is not None
        assert job.report.verdict is not None
        verdicts.append(job.report.verdict.name)
    assert verdicts == ["input-bound", "compute-bound", "input-bound"]


def test_a_job_that_measured_nothing_comes_last(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_lines(tmp_path / "0", [header()])
    write_job(tmp_path / "1", None, 20)

    assert [job.name for job in read_multirun(tmp_path, find_jobs(tmp_path)).jobs] == ["1", "0"]
    assert main(["report", str(tmp_path)]) == 0
    row = ["0", "-", "-", "-", "-", "killed,", "or", "still", "running", "-"]
    assert row in [line.split() for line in capsys.readouterr().out.splitlines()]


def test_jobs_of_which_none_measured_an_iteration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for job in ("0", "1"):
        write_lines(tmp_path / job, [header(), end()])

    assert main(["report", str(tmp_path)]) == 0
    assert "no job measured an iteration" in capsys.readouterr().out.splitlines()
    assert not read_multirun(tmp_path, find_jobs(tmp_path)).by_samples


@pytest.mark.parametrize(
    "overrides", ["", "{", "a: 1", "[" * 5000, "- 2001-99-99", "\0", "- !!python/object:os.system x"]
)
def test_overrides_that_are_none_leave_the_job_its_figures(
    tmp_path: Path, overrides: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A full disk leaves an empty file."""
    write_job(tmp_path / "0", overrides, 10)
    write_job(tmp_path / "1", "- b=1\n", 20)

    found = read_multirun(tmp_path, find_jobs(tmp_path))

    assert [(job.name, job.overrides, job.problem is None) for job in found.jobs] == [
        ("0", None, False),
        ("1", ("b=1",), True),
    ]
    assert main(["report", str(tmp_path)]) == 0
    assert "overrides.yaml: not" in capsys.readouterr().out


def test_overrides_that_are_too_long_are_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_job(tmp_path / "0", f"- a={'x' * 2**20}\n", 10)
    write_job(tmp_path / "1", "- a=1\n", 10)

    assert main(["report", str(tmp_path)]) == 0
    assert "overrides.yaml: longer than 1 MiB" in capsys.readouterr().out


def test_what_all_jobs_have_in_common_is_of_those_whose_overrides_are_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for job in ("0", "1"):
        write_job(tmp_path / job, f"- data=big\n- lr={job}\n", 10)
    write_job(tmp_path / "2", "{", 10)

    assert main(["report", str(tmp_path)]) == 0
    assert "all jobs that tell: data=big" in capsys.readouterr().out.splitlines()
    assert {job.overrides for job in read_multirun(tmp_path, find_jobs(tmp_path)).jobs} == {("lr=0",), ("lr=1",), None}


@pytest.mark.parametrize(
    ("sizes", "order"),
    [
        ((1, 1), "by samples a second in train"),
        ((4, 4), "by samples a second of one rank in train"),
        ((4, 1), "by samples a second of one rank in train, of which the jobs have different numbers: 1, 4"),
    ],
)
def test_whose_samples_a_second_they_are(
    sizes: tuple[int, int], order: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for job, world_size in enumerate(sizes):
        lines = [header(world_size=world_size), *rows([phases(forward=10 * MS)] * 20), end()]
        write_lines(tmp_path / f"{job}", lines)

    assert main(["report", str(tmp_path)]) == 0
    assert f"best first, {order}" in capsys.readouterr().out.splitlines()


def test_a_job_with_a_bad_record_is_listed_with_the_reason(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (sweep / "0" / "timing" / "rank0.jsonl").write_text("hello\n", encoding="utf-8")

    (bad,) = (job for job in read_multirun(sweep, find_jobs(sweep)).jobs if job.name == "0")

    assert bad.problem is not None
    assert "not a record" in bad.problem
    assert main(["report", str(sweep)]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["0", "-", "-", "-", "-", "bad", "record", "model.width=0"] in rows
    assert ["2", "-", "-", "-", "-", "no", "record", "model.width=2"] in rows


def test_no_job_has_a_record(tmp_path: Path) -> None:
    write_job(tmp_path / "0", "- a=1\n", None)

    with pytest.raises(BadInputError, match="none of its 1 jobs has figures: job 0: no record: timing was off"):
        read_multirun(tmp_path, find_jobs(tmp_path))


def test_the_report_as_text(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(sweep)]) == 0
    lines = capsys.readouterr().out.splitlines()

    assert lines[0] == f"{sweep}: 4 jobs"
    assert lines[1].split() == ["job", "speed", "iteration", "mean", "p95", "verdict", "status", "overrides"]
    assert lines[2].split() == [
        *("1", "3,200", "samples/s", "10.0", "ms", "10.0", "ms", "compute-bound", "completed", "model.width=1")
    ]
    assert lines[5].split() == ["2", "-", "-", "-", "-", "no", "record", "model.width=2"]
    assert "all jobs: timing=evaluation" in lines


def test_jobs_with_timing_off_take_one_line(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    note = "note: job{}: no record: timing was off, or it ended before its Trainer ran"
    assert main(["report", str(sweep)]) == 0
    assert note.format(" 2") in capsys.readouterr().out.splitlines()

    for job in ("20", "21", "22", "23"):
        write_job(sweep / job, f"- timing=training\n- model.width={job}\n", None)
    (sweep / "0" / "timing" / "rank0.jsonl").write_text("hello\n", encoding="utf-8")
    assert main(["report", str(sweep)]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("note:")]
    assert lines[1:] == [note.format("s 2, 20, 21 and 2 more")]
    assert lines[0].startswith("note: job 0: ")


def test_jobs_with_long_names_and_overrides_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Hydra may name a job's folder by its overrides."""
    long = "data=" + "a" * 80
    for job in ("1", "2"):
        write_job(tmp_path / f"{long},seed={job}", f"- {long}/{job}\n", 10)

    assert main(["report", str(tmp_path), "--markdown"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith(f"| {long}")]
    assert all(f"{long},seed={job} |" in row and f"{long}/{job} |" in row for job, row in zip("12", rows, strict=True))


def test_overrides_are_shown_in_a_narrow_terminal_too(
    sweep: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")

    assert main(["report", str(sweep)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["1", "3,200", "samples/s", "10.0", "ms", "model.width=1"] in lines


def test_the_report_as_json(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(sweep), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)

    assert found["best_by"] == "samples_per_second"
    assert [job["job"] for job in found["jobs"]] == ["1", "10", "0", "2"]
    assert found["jobs"][0]["report"]["stages"]["train"]["iterations"] == 20
    assert found["jobs"][3]["report"] is None


def test_a_page_is_of_one_run(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(sweep), "--html", str(sweep / "page.html")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (sweep / "page.html").exists()


@pytest.mark.parametrize("command", [["trace"], ["compare", "{sweep}"], ["nsys", "export.sqlite", "--run"]])
def test_commands_for_one_run_name_the_jobs(
    sweep: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*(argument.format(sweep=sweep) for argument in command), str(sweep)]) == 2
    jobs = ", ".join(str(sweep / name) for name in ("0", "1", "10"))
    expected = f"{sweep}: several runs below it: {jobs}; give one of them\n"
    assert expected in capsys.readouterr().err


def test_the_only_run_below_a_folder_is_reported_as_that_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = write_job(tmp_path / "lightning_logs" / "version_0", None, 10)

    assert main(["report", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["path"] == str(job / "timing")
    assert main(["trace", str(tmp_path)]) == 0
    assert (job / "timing" / "trace.json").exists()


def test_a_job_without_a_record_says_why_there_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_job(tmp_path / "0", "- a=1\n", None)

    assert main(["report", str(tmp_path)]) == 2
    assert "job 0: no record: timing was off" in capsys.readouterr().err
