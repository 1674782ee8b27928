from __future__ import annotations

import contextlib
import re
import sqlite3
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nsys_exports import NVTX_2022, NVTX_2026, US, ExportBuilder

from lightning_timing.errors import BadInputError
from lightning_timing.nsys_export import MAX_DEPTH, OUTSIDE, ExportedProcess, RangeSeries, read_export

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "export.sqlite"


def only_process(path: Path) -> ExportedProcess:
    (process,) = read_export(path)
    return process


def gpu_figures(series: RangeSeries) -> tuple[int, float, float]:
    """How many launched GPU work, and in microseconds their projected and busy time."""
    return series.gpu_count, series.gpu_ns / US, series.gpu_busy_ns / US


@pytest.mark.parametrize(
    ("columns", "registered"),
    [
        (NVTX_2022, True),
        (NVTX_2022, False),
        (NVTX_2026, True),
        (tuple(column for column in NVTX_2022 if column != "text"), True),
        (tuple(column for column in NVTX_2022 if column != "textId"), False),
    ],
)
def test_ranges_by_stage_and_name_whatever_the_schema(
    path: Path, columns: tuple[str, ...], *, registered: bool
) -> None:
    with ExportBuilder(path, columns) as export:
        for start in (0, 100):
            export.range("iteration", start, start + 90, registered=registered)
            export.range("forward", start + 10, start + 40, registered=registered)
        export.range("iteration", 200, 250, "validate", registered=registered)
        export.range("capture", 0, 300, None, event_type=60, registered=registered)
    process = only_process(path)

    found = {
        (stage, name): [ns / US for ns in series.host_ns]
        for stage, ranges in process.stages.items()
        for name, series in ranges.items()
    }
    assert found == {
        ("train", "iteration"): [90, 90],
        ("train", "forward"): [30, 30],
        ("validate", "iteration"): [50],
        (None, "capture"): [300],
    }
    assert process.pid == 100


def test_an_iteration_numbers_what_lies_inside_it(path: Path) -> None:
    with ExportBuilder(path) as export:
        export.range("first_data_wait", 0, 5)
        for start in (10, 100):
            export.range("iteration", start, start + 80)
            export.range("forward", start + 1, start + 40)
            export.range("mine", start + 2, start + 4)
            export.range("mine", start + 5, start + 7)
        export.range("iteration", 200, 210, "validate")
        export.range("forward", 201, 209, "validate")
    stages = only_process(path).stages

    assert list(stages["train"]["mine"].iterations) == [0, 0, 1, 1]
    assert list(stages["train"]["first_data_wait"].iterations) == [OUTSIDE]
    assert list(stages["validate"]["forward"].iterations) == [0]


def test_a_phases_own_time_leaves_out_the_phases_inside_it_and_not_the_users_ranges(path: Path) -> None:
    with ExportBuilder(path) as export:
        export.range("iteration", 0, 100)
        export.range("backward", 10, 90)
        export.range("mine", 20, 60)
        export.range("callbacks/Logger", 30, 40)
        export.range("logging", 32, 35)
        export.range("callbacks/Other", 70, 75)
    train = only_process(path).stages["train"]

    own = {name: series.own_ns[0] / US for name, series in train.items()}
    assert own == {
        "iteration": 20,
        "backward": 80 - 10 - 5,
        "mine": 40 - 10,
        "callbacks/Logger": 7,
        "logging": 3,
        "callbacks/Other": 5,
    }


def test_gpu_work_is_projected_onto_every_range_around_the_call_that_launched_it(path: Path) -> None:
    with ExportBuilder(path) as export:
        export.range("iteration", 0, 100)
        export.range("forward", 10, 40)
        export.range("mine", 15, 25)
        export.range("optimizer_step", 50, 60)
        export.kernel((12, 13), (200, 210))
        export.kernel((18, 19), (220, 250), kind="MEMCPY")
        export.kernel((30, 31), (240, 260), kind="MEMSET")
        export.kernel((52, 53), (300, 301))
    train = only_process(path).stages["train"]

    assert gpu_figures(train["mine"]) == (1, 30, 30)
    assert gpu_figures(train["forward"]) == (1, 60, 50)
    assert train["forward"].gpu_idle_share == pytest.approx(10 / 60)
    assert gpu_figures(train["optimizer_step"]) == (1, 1, 1)
    assert gpu_figures(train["iteration"]) == (1, 101, 51)


def test_overlapping_work_on_several_streams_is_busy_once(path: Path) -> None:
    with ExportBuilder(path) as export:
        export.range("forward", 0, 50)
        for begin, end in ((100, 200), (120, 130), (150, 220), (300, 310), (310, 320)):
            export.kernel((begin / 10, begin / 10 + 1), (begin, end))
    forward = only_process(path).stages["train"]["forward"]

    assert gpu_figures(forward) == (1, 220, 140)


def test_a_launch_that_no_range_encloses_counts_for_none(path: Path) -> None:
    with ExportBuilder(path) as export:
        export.range("forward", 10, 20)
        export.range("backward", 30, 40)
        export.kernel((5, 6), (100, 110))
        export.kernel((25, 26), (110, 120))
        export.kernel((19, 21), (120, 130))
        export.kernel((45, 46), (130, 140))
    train = only_process(path).stages["train"]

    assert gpu_figures(train["forward"]) == gpu_figures(train["backward"]) == (0, 0, 0)
    assert train["forward"].gpu_idle_share is None


def test_launches_at_a_ranges_very_edges_belong_to_it(path: Path) -> None:
    with ExportBuilder(path) as export:
        export.range("forward", 10, 20)
        export.range("backward", 20, 30)
        export.kernel((10, 11), (100, 101))
        export.kernel((18, 20), (102, 103))
        export.kernel((20, 21), (200, 201))
    train = only_process(path).stages["train"]

    assert gpu_figures(train["forward"]) == (1, 3, 2)
    assert gpu_figures(train["backward"]) == (1, 1, 1)


def test_many_kernels_of_one_launch(path: Path) -> None:
    with ExportBuilder(path) as export:
        export.range("forward", 0, 20)
        graph = export.kernel((5, 6), (100, 110))
        export.kernel((5, 6), (130, 140), correlation=graph)
    forward = only_process(path).stages["train"]["forward"]

    assert gpu_figures(forward) == (1, 40, 20)


def test_another_threads_launches_do_not_count(path: Path) -> None:
    with ExportBuilder(path) as export:
        export.range("forward", 0, 50)
        export.kernel((10, 11), (100, 110), tid=101)
    forward = only_process(path).stages["train"]["forward"]

    assert gpu_figures(forward) == (0, 0, 0)


def test_autograds_threads_launch_for_the_backward_that_is_open_meanwhile(path: Path) -> None:
    with ExportBuilder(path) as export:
        export.name_thread(100, 101, "pt_autograd_0")
        export.range("iteration", 0, 90)
        export.range("forward", 0, 20)
        export.range("backward", 30, 60)
        export.range("callbacks/Hook", 30, 35)
        export.kernel((10, 11), (100, 110), tid=101)
        export.kernel((32, 33), (200, 210), tid=101)
        export.kernel((40, 41), (220, 230), tid=101)
        export.kernel((55, 65), (240, 250), tid=101)
    train = only_process(path).stages["train"]

    assert gpu_figures(train["forward"]) == (0, 0, 0)
    assert gpu_figures(train["backward"]) == (1, 30, 20)
    assert gpu_figures(train["iteration"]) == (1, 30, 20)


def test_processes_are_apart_though_they_share_numbers(path: Path) -> None:
    with ExportBuilder(path) as export:
        export.range("forward", 0, 10, pid=200, tid=7)
        export.kernel((1, 2), (100, 105), pid=200, tid=7)
        export.restart_correlations()
        export.range("not ours", 0, 50, domain="other", domain_id=1, pid=100, tid=7)
        export.range("forward", 0, 20, domain_id=2, pid=100, tid=7)
        export.kernel((1, 2), (200, 203), pid=100, tid=7)
    first, second = read_export(path)

    assert (first.pid, second.pid) == (100, 200)
    assert set(first.stages["train"]) == {"forward"}
    assert gpu_figures(first.stages["train"]["forward"]) == (1, 3, 3)
    assert gpu_figures(second.stages["train"]["forward"]) == (1, 5, 5)


def test_threads_of_one_process_add_up(path: Path) -> None:
    with ExportBuilder(path) as export:
        export.range("mine", 0, 10, tid=1)
        export.range("mine", 5, 25, tid=2)
    mine = only_process(path).stages["train"]["mine"]

    assert sorted(mine.host_ns) == [10 * US, 20 * US]
    assert (len(mine), mine.host_total_ns, mine.host_median_ns) == (2, 30 * US, 15 * US)


def test_ranges_that_had_not_closed_are_counted_and_left_out(path: Path) -> None:
    with ExportBuilder(path) as export:
        export.range("iteration", 0, None)
        export.range("forward", 1, 5)
    process = only_process(path)

    assert process.left_open == 1
    assert set(process.stages["train"]) == {"forward"}


def test_times_before_the_session_began_are_negative(path: Path) -> None:
    with ExportBuilder(path) as export:
        export.range("forward", -10, 5)

    assert only_process(path).stages["train"]["forward"].host_total_ns == 15 * US


Ranges = list[tuple[int, int]]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    ranges=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=8),
    launches=st.lists(
        st.tuples(st.integers(0, 80), st.integers(0, 3), st.integers(0, 99), st.integers(1, 9)), max_size=8
    ),
)
def test_projection_agrees_with_its_definition(
    tmp_path_factory: pytest.TempPathFactory, ranges: Ranges, launches: list[tuple[int, int, int, int]]
) -> None:
    nested: Ranges = []
    low, high = 0, 80
    for left, right in ranges:
        low = min(low + left % 10, high)
        high = max(high - right % 10, low)
        # At the one tick of a range without a length a launch without one may be taken to be inside or not.
        if low < high and (low, high) not in nested:
            nested.append((low, high))
    path = tmp_path_factory.mktemp("export") / "export.sqlite"
    with ExportBuilder(path) as export:
        for number, (start, end) in enumerate(nested):
            export.range(f"range {number}", start, end)
        for call, lasts, start, runs in launches:
            export.kernel((call, call + lasts), (1000 + start, 1000 + start + runs))
    train = only_process(path).stages["train"]

    for number, (start, end) in enumerate(nested):
        inside = [
            (1000 + begin, 1000 + begin + runs)
            for call, lasts, begin, runs in launches
            if start <= call < end and call + lasts <= end
        ]
        busy = {moment for begin, finish in inside for moment in range(begin, finish)}
        expected = (1, max(f for _, f in inside) - min(b for b, _ in inside), len(busy)) if inside else (0, 0, 0)
        assert gpu_figures(train[f"range {number}"]) == expected


def test_no_such_file(path: Path) -> None:
    with pytest.raises(BadInputError, match=r": not a file; give an export"):
        read_export(path.parent)
    with pytest.raises(BadInputError, match=r"export\.sqlite: no such file"):
        read_export(path)


def test_a_report_instead_of_an_export(tmp_path: Path) -> None:
    report = tmp_path / "run.nsys-rep"
    report.write_bytes(b"\0" * 100)
    with pytest.raises(BadInputError, match="nsys export --type=sqlite"):
        read_export(report)


@pytest.mark.parametrize("content", [b"", b"hello", b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_file_that_is_no_export(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(BadInputError, match=r"export\.sqlite: (no export of Nsight Systems|cannot be read)"):
        read_export(path)


def test_a_cut_file(path: Path) -> None:
    with ExportBuilder(path) as export:
        for start in range(500):
            export.range("iteration", start, start + 1)
    path.write_bytes(path.read_bytes()[:9000])
    with pytest.raises(BadInputError, match="cannot be read as an SQLite export"):
        read_export(path)


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        ("DROP TABLE StringIds", "it has no table StringIds"),
        ("DROP TABLE NVTX_EVENTS", r"no table NVTX_EVENTS: profile with .*--trace=nvtx"),
        ("ALTER TABLE NVTX_EVENTS DROP COLUMN globalTid", "table NVTX_EVENTS has no column globalTid"),
        ("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN globalPid", "KERNEL has no column globalPid"),
        ("UPDATE NVTX_EVENTS SET start = 'soon' WHERE eventType = 59", "'soon' where a whole number belongs"),
        ("UPDATE NVTX_EVENTS SET end = start - 1 WHERE eventType = 59", "something from 0 to -1 ns, which is no time"),
        (
            "UPDATE NVTX_EVENTS SET end = 9223372036854775807 WHERE eventType = 59",
            "9223372036854775807 ns, which is no",
        ),
        ("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 9000", "something from 9000 to 4000 ns"),
        ("UPDATE NVTX_EVENTS SET globalTid = NULL", "None where a whole number belongs"),
        ("DELETE FROM NVTX_EVENTS", "no ranges of the domain lightning_timing, no NVTX events at all"),
        ("DELETE FROM NVTX_EVENTS WHERE eventType = 59", "no ranges of the domain lightning_timing, only others"),
        ("UPDATE NVTX_EVENTS SET domainId = 9 WHERE eventType = 59", "only others: lightning-timing check"),
    ],
)
def test_what_is_missing_or_wrong_is_named(path: Path, damage: str, complaint: str) -> None:
    if "DROP COLUMN" in damage and sqlite3.sqlite_version_info < (3, 35):
        # SQLite learnt it in 3.35, and Python is built with older ones; the damage cannot be done otherwise.
        pytest.skip("this SQLite cannot drop a column")
    with ExportBuilder(path) as export:
        export.range("iteration", 0, 10)
        export.kernel((1, 2), (3, 4))
        export.execute(damage)
    with pytest.raises(BadInputError, match=complaint):
        read_export(path)


def test_a_view_is_not_taken_for_a_table(path: Path) -> None:
    endless = (
        "CREATE VIEW NVTX_EVENTS AS WITH RECURSIVE n(start) AS (SELECT 1 UNION ALL SELECT start FROM n) SELECT * FROM n"
    )
    with ExportBuilder(path) as export:
        export.execute("DROP TABLE NVTX_EVENTS")
        export.execute(endless)
    with pytest.raises(BadInputError, match="no table NVTX_EVENTS"):
        read_export(path)


def test_endless_nesting_is_refused(path: Path) -> None:
    with ExportBuilder(path) as export:
        for depth in range(MAX_DEPTH + 1):
            export.range("iteration", depth, 5000 - depth)
    with pytest.raises(BadInputError, match=f"^{re.escape(str(path))}: ranges nest deeper than {MAX_DEPTH}"):
        read_export(path)


def test_a_name_of_100000_characters_is_cut(path: Path) -> None:
    with ExportBuilder(path) as export:
        export.range("x" * 100_000, 0, 10)
        export.range("y" * 100_000, 20, 30, registered=False)

    assert sorted(map(len, only_process(path).stages["train"])) == [1000, 1000]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_export_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    with ExportBuilder(folder / "export.sqlite") as export:
        for start in range(0, 400, 100):
            export.range("iteration", start, start + 90)
            export.range("forward", start + 10, start + 40)
            export.kernel((start + 12, start + 13), (start + 20, start + 30))
        export.name_thread(100, 101, "pt_autograd_0")
    content = bytearray((folder / "export.sqlite").read_bytes())
    written = [place for place, byte in enumerate(content) if byte]  # nearly all of a page is empty
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.sampled_from(written))] = data.draw(st.integers(0, 255))
    (folder / "damaged.sqlite").write_bytes(content)
    processes: list[ExportedProcess] = []
    with contextlib.suppress(BadInputError):
        processes = read_export(folder / "damaged.sqlite")
    assert all(makes_sense(series) for process in processes for series in all_series(process))


def all_series(process: ExportedProcess) -> Iterator[RangeSeries]:
    for ranges in process.stages.values():
        yield from ranges.values()


def makes_sense(series: RangeSeries) -> bool:
    times_ns = (*series.host_ns, *series.own_ns, series.gpu_ns, series.gpu_busy_ns)
    return min(times_ns) >= 0 and series.gpu_busy_ns <= series.gpu_ns
