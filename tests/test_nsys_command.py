from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from nsys_exports import ExportBuilder
from records import MS, end, header, outside, phases, row, rows, summary_of, write_lines, write_summary

from lightning_timing.cli import nsys
from lightning_timing.cli.main import main
from lightning_timing.nsys_agreement import TOLERANCE_S, TOLERANCE_SHARE, Agreement, agreements
from lightning_timing.nsys_export import read_export
from lightning_timing.record_series import SeriesBuilder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lightning_timing.record_series import StageSeries

pytestmark = pytest.mark.usefixtures("_wide_terminal")


@pytest.fixture
def export_path(tmp_path: Path) -> Path:
    return tmp_path / "export.sqlite"


def training(path: Path, forwards: Sequence[float], *, first_batch: int = 0, pid: int = 4242) -> Path:
    """An export of iterations of 10 ms with a `forward` of so many milliseconds each."""
    with ExportBuilder(path) as export:
        for number, forward in enumerate(forwards):
            start = 10_000 * number
            export.range("iteration", start, start + 10_000, pid=pid, tid=pid, batch_idx=first_batch + number)
            export.range("forward", start + 100, start + 100 + 1000 * forward, pid=pid, tid=pid)
    return path


def recorded(run_dir: Path, forwards: Sequence[float], *, warmup: int = 0) -> Path:
    """The record of a run in which the Stopwatch measured so many milliseconds in `forward`."""
    many_ns = [phases(forward=round(ms * MS), other=round((10 - ms) * MS)) for ms in forwards]
    lines = [header(settings={"num_warmup_iters": warmup}), *rows(many_ns), end()]
    write_summary(run_dir, summary_of(lines))
    return write_lines(run_dir, lines)


def table(text: str) -> dict[str, list[str]]:
    """The cells of each row of printed tables, by the row's first one."""
    split = [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in text.splitlines()]
    return {cells[0]: cells[1:] for cells in split if len(cells) > 1}


def test_the_table(export_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with ExportBuilder(export_path) as export:
        export.range("mine", 1, 2)
        export.range("iteration", 0, 100)
        export.range("forward", 10, 40)
        export.range("iteration", 100, 150)
        export.range("capture", 0, 300, None, event_type=60)
        export.kernel((12, 13), (200, 210))
        export.kernel((18, 19), (230, 240))
        export.range("iteration", 160, None)

    assert main(["nsys", str(export_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "train: 2 iterations"
    assert [line.split("  ")[0] for line in lines[1:5]] == ["range", "iteration", "forward", "mine"]
    assert table("\n".join(lines))["iteration"] == ["2", "150.0 us", "75.0 us", "40.0 us", "20.0 us", "50.0 %"]
    assert table("\n".join(lines))["mine"] == ["1", "1.00 us", "1.00 us", "-", "-", "-"]
    assert "outside of iterations" in lines
    assert "left out because they had not closed: 1 range" in lines
    assert lines[-1].startswith("GPU projected:")


def test_each_process_has_its_tables(export_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with ExportBuilder(export_path) as export:
        export.range("iteration", 0, 100, pid=11)
        export.range("iteration", 0, 100, pid=12)

    assert main(["nsys", str(export_path)]) == 0
    out = capsys.readouterr().out
    assert out.index("process 11") < out.index("process 12")


def test_beside_the_stopwatch_what_agrees(
    tmp_path: Path, export_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = recorded(tmp_path / "run", [3.0, 3.0, 4.0, 5.0, 5.0])
    training(export_path, [3.0, 3.0, 4.04, 5.0, 5.0])

    assert main(["nsys", str(export_path), "--run", str(run_dir)]) == 0
    out = capsys.readouterr().out
    assert table(out)["forward"][-3:] == ["4.04 ms", "4.00 ms", "+40.0 us"]
    assert "nsys and the Stopwatch agree on all 2 measurements" in out


def test_beside_the_stopwatch_what_disagrees_is_flagged(
    tmp_path: Path, export_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = recorded(tmp_path / "run", [3.0, 3.0, 4.0, 5.0, 5.0])
    training(export_path, [3.0, 3.0, 4.1, 5.0, 5.0])

    assert main(["nsys", str(export_path), "--run", str(run_dir)]) == 1
    out = capsys.readouterr().out
    assert table(out)["forward"][-4:] == ["4.10 ms", "4.00 ms", "+100.0 us", "DISAGREES"]
    assert table(out)["iteration"][-3:] == ["10.0 ms", "10.0 ms", "0 s"]
    assert "disagree by more than 50 us and 2 % on: train/forward" in out
    assert "of process" not in out


def test_where_they_disagree_it_is_said_that_they_are_of_two_processes(
    tmp_path: Path, export_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = recorded(tmp_path / "run", [3.0, 3.0, 4.0, 5.0, 5.0])
    training(export_path, [3.0, 3.0, 4.1, 5.0, 5.0], pid=17)

    assert main(["nsys", str(export_path), "--run", str(run_dir)]) == 1
    assert "the export is of process 17 and the run of process 4242" in " ".join(capsys.readouterr().out.split())


def test_the_help_names_the_tolerances() -> None:
    tolerances = f"{TOLERANCE_S * 1e6:g} us and {TOLERANCE_SHARE * 100:g} %"
    assert nsys.__doc__ is not None
    assert tolerances in nsys.__doc__


def test_the_process_is_the_one_that_wrote_the_record(
    tmp_path: Path, export_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = recorded(tmp_path / "run", [4.0] * 5)
    with ExportBuilder(export_path) as export:
        for pid, forward in ((4241, 7000), (4242, 4000)):
            for number, start in enumerate(range(0, 50_000, 10_000)):
                export.range("iteration", start, start + 10_000, pid=pid, batch_idx=number)
                export.range("forward", start, start + forward, pid=pid)

    assert main(["nsys", str(export_path), "--run", str(run_dir)]) == 0
    assert "DISAGREES" not in capsys.readouterr().out


def test_a_run_that_the_export_is_not_of(tmp_path: Path, export_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = recorded(tmp_path / "run", [4.0] * 3)
    with ExportBuilder(export_path) as export:
        for pid in (1, 2):
            export.range("iteration", 0, 10, pid=pid)

    assert main(["nsys", str(export_path), "--run", str(run_dir)]) == 2
    assert "written by process 4242, and the export has only [1, 2]" in capsys.readouterr().err


def test_an_export_with_nothing_that_was_measured(
    tmp_path: Path, export_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = recorded(tmp_path / "run", [4.0] * 3)
    with ExportBuilder(export_path) as export:
        export.range("mine", 0, 10)

    assert main(["nsys", str(export_path), "--run", str(run_dir)]) == 2
    assert "has no 5 successive iterations" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["nothing.sqlite"], [__file__], [__file__, "--run", "nowhere"]])
def test_bad_input_is_one_line_and_exit_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nsys", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("lightning-timing: ")
    assert captured.err.count("\n") == 1


def test_names_cannot_break_the_table(export_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with ExportBuilder(export_path) as export:
        export.range("[red]\x1b[31m\nx[/red]", 0, 10)
        export.range("x" * 100_000, 20, 30)

    assert main(["nsys", str(export_path)]) == 0
    out = capsys.readouterr().out
    assert r"[red]\x1b[31m\nx[/red]" in out
    assert "\x1b" not in out
    assert len(out) < 2000


def measured(batches: Sequence[int], first_wait_ms: float | None = None, **ms: float | Sequence[float]) -> StageSeries:
    """Rows of iterations of 10 ms, one after the other, with these batches and so many milliseconds of each name."""
    series = SeriesBuilder()
    for place, batch_idx in enumerate(batches):
        of_row = {name: each if isinstance(each, float) else each[place] for name, each in ms.items()}
        ns = {"iteration": 10 * MS, **{name.replace("__", "/"): round(each * MS) for name, each in of_row.items()}}
        series.append(row(batch_idx, ns, start_ns=10 * MS * place))
        if first_wait_ms is not None:
            series.append_outside(outside("first_data_wait", round(first_wait_ms * MS), start_ns=10 * MS * place))
    return series.build()


def compared(path: Path, rows: StageSeries) -> dict[str, Agreement]:
    """How the only process of an export agrees with the rows of `train`, by name."""
    (process,) = read_export(path)
    return {name: agreement for (_, name), agreement in agreements(process, {"train": rows}).items()}


def test_warm_up_is_left_out_of_a_profile_of_the_whole_run(export_path: Path) -> None:
    training(export_path, [9.0] * 7 + [4.0] * 5)

    assert compared(export_path, measured(range(7, 12), forward=4.0))["forward"] == Agreement(0.004, 0.004, 5)


def test_a_window_is_compared_with_its_own_iterations_and_not_with_the_rest_of_the_run(
    tmp_path: Path, export_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forwards = [8.0] * 40 + [3.0] * 10 + [8.0] * 40
    run_dir = recorded(tmp_path / "run", forwards)
    training(export_path, forwards[40:50], first_batch=40)

    assert main(["nsys", str(export_path), "--run", str(run_dir)]) == 0
    out = capsys.readouterr().out
    assert table(out)["forward"][-3:] == ["3.00 ms", "3.00 ms", "0 s"]
    assert "those that both have: 10 iterations of train." in out


def test_a_window_that_begins_in_the_warm_up_is_compared_from_its_end_on(export_path: Path) -> None:
    training(export_path, [9.0] * 4 + [3.0] * 6, first_batch=6)
    rows = measured(range(10, 40), forward=[3.0] * 6 + [7.0] * 24)

    assert compared(export_path, rows)["forward"] == Agreement(0.003, 0.003, 6)


@pytest.mark.parametrize("epoch", [0, 1, 2])
def test_epochs_repeat_the_indices_and_the_starts_tell_them_apart(export_path: Path, epoch: int) -> None:
    starts_ms = [place * 10 + (place * place) // 7 for place in range(60)]
    forwards = [2.0 + place // 20 for place in range(60)]
    series = SeriesBuilder()
    for place, (start_ms, forward) in enumerate(zip(starts_ms, forwards, strict=True)):
        ns = {"iteration": 10 * MS, "forward": round(forward * MS)}
        series.append(row(place % 20, ns, start_ns=start_ms * MS, epoch=place // 20))
    with ExportBuilder(export_path) as export:
        for place in range(20 * epoch + 5, 20 * epoch + 15):
            start = 1000 * (starts_ms[place] - starts_ms[20 * epoch])
            export.range("iteration", start, start + 10_000, batch_idx=place % 20)
            export.range("forward", start, start + 1000 * forwards[place])

    assert compared(export_path, series.build())["forward"] == Agreement(2e-3 + epoch / 1e3, 2e-3 + epoch / 1e3, 10)


def test_another_trainings_run_is_refused(
    tmp_path: Path, export_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = recorded(tmp_path / "run", [4.0] * 20)
    training(export_path, [4.0] * 10, first_batch=40)

    assert main(["nsys", str(export_path), "--run", str(run_dir)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "it is of another training, or of the warm-up" in captured.err
    assert captured.err.count("\n") == 1


def test_a_phase_counts_without_the_phases_inside_it_and_a_users_range_with_them(export_path: Path) -> None:
    with ExportBuilder(export_path) as export:
        for number, start in enumerate(range(0, 50_000, 10_000)):
            export.range("iteration", start, start + 10_000, batch_idx=number)
            export.range("backward", start, start + 5_000)
            export.range("callbacks/Hook", start + 1_000, start + 2_000)
            export.range("mine", start + 6_000, start + 9_000)
            export.range("checkpoint", start + 7_000, start + 8_000)
    rows = measured(range(5), backward=1.0, callbacks__Hook=1.0, mine=1.0, checkpoint=1.0)

    found = {name: round(agreement.nsys_s * 1e3) for name, agreement in compared(export_path, rows).items()}
    assert found == {"iteration": 10, "backward": 4, "callbacks/Hook": 1, "mine": 3, "checkpoint": 1}


def test_several_ranges_in_an_iteration_are_added_up_as_its_row_has_them(export_path: Path) -> None:
    with ExportBuilder(export_path) as export:
        for number, start in enumerate(range(0, 50_000, 10_000)):
            export.range("iteration", start, start + 10_000, batch_idx=number)
            for inside in (start + 1_000, start + 3_000):
                export.range("optimizer_step", inside, inside + 1_000)
                export.range("matcher", inside + 1_000, inside + 1_500)
    found = compared(export_path, measured(range(5), optimizer_step=2.0, matcher=1.0))

    assert found["optimizer_step"] == Agreement(0.002, 0.002, 5)
    assert found["matcher"] == Agreement(0.001, 0.001, 5)


def test_what_lies_between_iterations_is_another_measurement_but_the_first_wait(export_path: Path) -> None:
    with ExportBuilder(export_path) as export:
        for number, start in enumerate(range(0, 50_000, 10_000)):
            export.range("first_data_wait", start, start + 70)  # that the loader starts, and the first batch
            export.range("first_data_wait", start + 100, start + 130)
            export.range("callbacks/Hook", start + 200, start + 900)
            export.range("iteration", start + 1_000, start + 9_000, batch_idx=number)
            export.range("callbacks/Hook", start + 2_000, start + 2_300)
    rows = measured(range(5), first_wait_ms=1.0, callbacks__Hook=1.0)

    found = {name: round(agreement.nsys_s * 1e6) for name, agreement in compared(export_path, rows).items()}
    assert found == {"first_data_wait": 100, "callbacks/Hook": 300, "iteration": 8_000}


def test_first_waits_are_compared_only_where_both_have_all(export_path: Path) -> None:
    with ExportBuilder(export_path) as export:
        for number, start in enumerate(range(0, 60_000, 10_000)):
            export.range("first_data_wait", start, start + 100)
            export.range("iteration", start + 1_000, start + 9_000, batch_idx=number)

    assert set(compared(export_path, measured(range(7), first_wait_ms=1.0))) == {"iteration"}


def test_what_one_of_them_has_not_measured_is_not_compared(export_path: Path) -> None:
    training(export_path, [4.0] * 5)
    (process,) = read_export(export_path)
    rows = {"train": measured(range(5), backward=1.0), "test": measured(range(5), forward=1.0)}

    assert set(agreements(process, rows)) == {("train", "iteration")}


def test_too_few_samples_are_not_judged_by(export_path: Path) -> None:
    training(export_path, [4.0] * 4)

    assert compared(export_path, measured(range(4), forward=9.0)) == {}
    assert compared(export_path, measured(range(90), forward=9.0)) == {}


def test_logging_is_not_compared(export_path: Path) -> None:
    with ExportBuilder(export_path) as export:
        for number, start in enumerate(range(0, 50_000, 10_000)):
            export.range("iteration", start, start + 9_000, batch_idx=number)
            export.range("logging", start + 100, start + 200)

    assert set(compared(export_path, measured(range(5), logging=9.0))) == {"iteration"}


@pytest.mark.parametrize(
    ("nsys_us", "stopwatch_us", "agrees"),
    [(150, 100, True), (151, 100, False), (49, 100, False), (10_190, 10_000, True), (9_790, 10_000, False)],
)
def test_the_tolerance_is_50_us_or_2_percent_whichever_is_more(
    nsys_us: float, stopwatch_us: float, *, agrees: bool
) -> None:
    assert Agreement(nsys_us / 1e6, stopwatch_us / 1e6, 5).agrees is agrees
