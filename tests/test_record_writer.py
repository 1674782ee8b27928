"""Writing records: in time, in whole lines, and without ever harming the run."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from records import MS, end, header, load_run, outside, phases, rows, summary_of

from lightning_timing.phases import FORWARD
from lightning_timing.record_writer import FLUSH_LINES, MAX_PENDING_BYTES, RecordWriter, write_summary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lightning_timing.record import IterationRow

NEVER_S = 3600.0
ROWS = rows([phases(forward=MS), phases(forward=2 * MS), phases(forward=3 * MS)])
PATIENCE_S = 30.0


def file_in(run_dir: Path) -> Path:
    return run_dir / "timing" / "rank0.jsonl"


def refuse(reason: str) -> None:
    pytest.fail(f"the writer gave up: {reason}")


def wait_until(condition: Callable[[], bool]) -> None:
    """Waits for the writing thread, which keeps its own time."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.002)


def lines_in(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def written_by_a_failing_writer(path: Path, some: list[IterationRow] = ROWS, **arguments: Any) -> list[str]:
    """Appends rows and closes; returns the failures that were told."""
    told: list[str] = []
    writer = RecordWriter(path, header(), told.append, **arguments)
    for row in some:
        writer.append(row)
    writer.close("completed")
    writer.append(ROWS[0])
    writer.close("completed")
    return told


def test_what_is_written_reads_back(tmp_path: Path) -> None:
    wait = outside("first_data_wait", MS, start_ns=0)
    writer = RecordWriter(file_in(tmp_path), header(), refuse, wall_clock=lambda: 77)
    for line in (wait, *ROWS):
        writer.append(line)
    writer.close("failed")

    rank = load_run(tmp_path).ranks[0]
    assert rank.header == header()
    assert rank.end == end(status="failed", unix_ns=77)
    assert rank.stages["train"].ns[FORWARD].tolist() == [MS, 2 * MS, 3 * MS]
    assert rank.stages["train"].outside[wait.name].tolist() == [wait.ns]
    assert rank.problems == ()


def test_the_header_is_written_at_once(tmp_path: Path) -> None:
    writer = RecordWriter(file_in(tmp_path), header(), refuse, flush_interval_s=NEVER_S)
    wait_until(lambda: lines_in(file_in(tmp_path)) >= 1)
    assert lines_in(file_in(tmp_path)) == 1
    writer.close("completed")


def test_rows_are_written_after_the_interval(tmp_path: Path) -> None:
    writer = RecordWriter(file_in(tmp_path), header(), refuse, flush_interval_s=0.01)
    writer.append(ROWS[0])
    wait_until(lambda: lines_in(file_in(tmp_path)) >= 2)
    assert lines_in(file_in(tmp_path)) == 2
    writer.close("completed")


def test_many_rows_are_written_before_the_interval(tmp_path: Path) -> None:
    writer = RecordWriter(file_in(tmp_path), header(), refuse, flush_interval_s=NEVER_S)
    wait_until(lambda: lines_in(file_in(tmp_path)) == 1)
    for _ in range(FLUSH_LINES):
        writer.append(ROWS[0])
    wait_until(lambda: lines_in(file_in(tmp_path)) >= 1 + FLUSH_LINES)
    assert lines_in(file_in(tmp_path)) == 1 + FLUSH_LINES
    writer.close("completed")


def test_nothing_is_lost_between_the_two_threads(tmp_path: Path) -> None:
    writer = RecordWriter(file_in(tmp_path), header(), refuse, flush_interval_s=0.0001)
    for row in rows([phases(forward=MS)] * 20_000):
        writer.append(row)
    writer.close("completed")

    rank = load_run(tmp_path).ranks[0]
    assert rank.stages["train"].batch_idx.tolist() == list(range(20_000))
    assert rank.end is not None


def test_two_runs_append_to_one_file(tmp_path: Path) -> None:
    first = RecordWriter(file_in(tmp_path), header(), refuse)
    second = RecordWriter(file_in(tmp_path), header(segment="newer-0"), refuse)
    first.append(ROWS[0])
    second.append(rows([phases(forward=9 * MS)], segment="newer-0")[0])
    first.close("completed")
    second.close("completed")

    assert lines_in(file_in(tmp_path)) == 6
    assert load_run(tmp_path).problems == ("rank 0: 1 earlier run in the same folder left out: RUN~1 shows it",)


def test_a_half_line_left_behind_is_ended_first(tmp_path: Path) -> None:
    file_in(tmp_path).parent.mkdir()
    file_in(tmp_path).write_bytes(b'{"kind":"header","segm')
    writer = RecordWriter(file_in(tmp_path), header(), refuse)
    writer.append(ROWS[0])
    writer.close("completed")

    rank = load_run(tmp_path).ranks[0]
    assert len(rank.stages["train"]) == 1
    assert rank.problems == ("a line was cut and is left out",)


def test_a_folder_deleted_in_mid_run_is_made_again(tmp_path: Path) -> None:
    writer = RecordWriter(file_in(tmp_path), header(), refuse, flush_interval_s=NEVER_S)
    wait_until(lambda: lines_in(file_in(tmp_path)) == 1)
    file_in(tmp_path).unlink()
    file_in(tmp_path).parent.rmdir()
    writer.append(ROWS[0])
    writer.close("completed")

    assert len(load_run(tmp_path).ranks[0].stages["train"]) == 1


def test_a_folder_deleted_just_when_the_file_is_opened_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_file, refused = os.open, []

    def open_after_a_deletion(path: Path, *args: Any, **kwargs: Any) -> int:
        if path == file_in(tmp_path) and not refused:
            refused.append(path)
            path.parent.rmdir()
        return open_file(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", open_after_a_deletion)
    writer = RecordWriter(file_in(tmp_path), header(), refuse, flush_interval_s=NEVER_S)
    writer.append(ROWS[0])
    writer.close("completed")

    assert refused
    assert len(load_run(tmp_path).ranks[0].stages["train"]) == 1


def test_a_path_that_is_a_folder(tmp_path: Path) -> None:
    assert written_by_a_failing_writer(tmp_path) == [f"{tmp_path}: Is a directory"]


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "timing").touch()

    assert written_by_a_failing_writer(file_in(tmp_path)) == [f"{file_in(tmp_path)}: File exists"]


@pytest.mark.parametrize("name", ["x" * 300, "x/" * 3000 + "x"])
def test_an_over_long_path(tmp_path: Path, name: str) -> None:
    assert written_by_a_failing_writer(tmp_path / name) == [f"{tmp_path / name}: File name too long"]


def test_a_path_that_no_file_can_have(tmp_path: Path) -> None:
    assert len(written_by_a_failing_writer(tmp_path / "a\0b")) == 1


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")

    assert len(written_by_a_failing_writer(tmp_path / "link")) == 1
    assert not (tmp_path / "elsewhere").exists()


def test_a_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    assert written_by_a_failing_writer(tmp_path / "pipe") == [f"{tmp_path / 'pipe'}: not a regular file"]


def test_a_read_only_folder(tmp_path: Path, read_only_for_this_process: Callable[[Path], Path]) -> None:
    folder = read_only_for_this_process(tmp_path)

    assert len(written_by_a_failing_writer(folder / "rank0.jsonl")) == 1
    assert len(written_by_a_failing_writer(folder / "timing" / "rank0.jsonl")) == 1


def test_an_error_that_nobody_thought_of_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("lightning_timing.regular_file.os.open")

    (failure,) = written_by_a_failing_writer(file_in(tmp_path))

    assert "AttributeError" in failure


def test_a_failure_is_told_on_the_callers_thread_and_once(tmp_path: Path) -> None:
    told_on: list[threading.Thread] = []
    writer = RecordWriter(tmp_path, header(), lambda _: told_on.append(threading.current_thread()))
    wait_until(lambda: not writer._thread.is_alive())
    for row in ROWS:
        writer.append(row)
    writer.close("completed")

    assert told_on == [threading.current_thread()]


@pytest.mark.parametrize("value", [object(), "lone surrogate \ud800"])
def test_a_header_that_json_cannot_hold(tmp_path: Path, value: object) -> None:
    told: list[str] = []
    writer = RecordWriter(file_in(tmp_path), header(settings={"x": value}), told.append)
    writer.append(ROWS[0])
    writer.close("completed")

    assert len(told) == 1
    assert "the header cannot be written as JSON" in told[0]
    assert not file_in(tmp_path).exists()


def test_a_row_that_json_cannot_hold(tmp_path: Path) -> None:
    told: list[str] = []
    writer = RecordWriter(file_in(tmp_path), header(), told.append)
    writer.append(ROWS[0])
    writer.append(rows([{**phases(forward=MS), "lone surrogate \ud800": 1}])[0])
    writer.append(ROWS[1])
    writer.close("completed")

    assert len(told) == 1
    assert "a line cannot be written as JSON" in told[0]


def test_no_thread_to_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)

    assert written_by_a_failing_writer(file_in(tmp_path)) == ["can't start new thread"]


def test_storage_that_hangs_costs_bounded_time_and_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    real_open = os.open

    def hanging_open(*arguments: Any) -> int:
        released.wait(PATIENCE_S)
        return real_open(*arguments)

    monkeypatch.setattr("lightning_timing.regular_file.os.open", hanging_open)
    told: list[str] = []
    large = rows([{**phases(forward=MS), "x" * 2**20: 1}])[0]
    writer = RecordWriter(file_in(tmp_path), header(), told.append)
    try:
        for _ in range(MAX_PENDING_BYTES // 2**20 + 10):
            writer.append(large)
        writer.close("completed")
        assert told == [f"{file_in(tmp_path)}: the storage does not answer"]

        assert written_by_a_failing_writer(file_in(tmp_path), close_timeout_s=0.01) == [
            f"{file_in(tmp_path)}: the storage did not answer within 0.01 s"
        ]
    finally:
        released.set()


@pytest.fixture
def tiny_file_system(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        # Mounting is a privilege, which a developer or a container may lack; nothing else makes a disk of this size.
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk(tiny_file_system: Path) -> None:
    told = written_by_a_failing_writer(file_in(tiny_file_system), rows([phases(forward=MS)] * 2000))

    assert told == [f"{file_in(tiny_file_system)}: No space left on device"]
    rank = load_run(tiny_file_system).ranks[0]
    assert 100 < len(rank.stages["train"]) < 2000
    assert "a line was cut and is left out" in rank.problems


@pytest.fixture
def read_only_for_this_process(tmp_path: Path) -> Iterator[Callable[[Path], Path]]:
    """Makes a folder read-only; for root, whom permissions do not stop, by a read-only mount."""
    mounted: list[Path] = []

    def make(folder: Path) -> Path:
        folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
        if os.access(folder, os.W_OK):
            done = subprocess.run(
                ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(folder)], capture_output=True, text=True, check=False
            )
            if done.returncode:
                # Permissions do not stop root, and mounting is a privilege that root of a container may lack.
                pytest.skip(f"root, and no read-only mount to be had: {done.stderr.strip()}")
            mounted.append(folder)
        return folder

    yield make
    for folder in mounted:
        subprocess.run(["umount", str(folder)], check=True)
    tmp_path.chmod(stat.S_IRWXU)


def test_a_forked_child_writes_nothing(tmp_path: Path) -> None:
    writer = RecordWriter(file_in(tmp_path), header(), refuse, flush_interval_s=NEVER_S)
    wait_until(lambda: lines_in(file_in(tmp_path)) == 1)
    child = os.fork()
    if child == 0:
        writer.append(ROWS[0])
        writer.close("failed")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    writer.append(ROWS[1])
    writer.close("completed")

    rank = load_run(tmp_path).ranks[0]
    assert rank.stages["train"].ns[FORWARD].tolist() == [2 * MS]
    assert rank.end is not None
    assert rank.end.status == "completed"


KILLED = """
import itertools, sys
from pathlib import Path
from records import MS, header, phases, rows
from lightning_timing.record_writer import RecordWriter
writer = RecordWriter(Path(sys.argv[1]), header(), print, flush_interval_s=0.001)
for row in itertools.cycle(rows([phases(forward=MS)] * 1000)):
    writer.append(row)
"""


def test_a_killed_process_leaves_a_readable_record(tmp_path: Path) -> None:
    path = ":".join([str(Path(__file__).parent), *sys.path])
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(file_in(tmp_path))], env={**os.environ, "PYTHONPATH": path}
    )
    wait_until(lambda: lines_in(file_in(tmp_path)) > 100)
    child.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL

    rank = load_run(tmp_path).ranks[0]
    assert len(rank.stages["train"]) > 90
    assert "no end line: the process was killed, or is still running" in rank.problems


def test_the_summary_replaces_the_old_one_whole(tmp_path: Path) -> None:
    path = tmp_path / "timing" / "summary.json"
    first = summary_of([header(), *ROWS])
    write_summary(path, first)
    write_summary(path, summary_of([header(), ROWS[0]], status="failed"))

    run = load_run(tmp_path)
    assert run.summary == summary_of([header(), ROWS[0]], status="failed")
    assert [found.name for found in path.parent.iterdir()] == ["summary.json"]
    assert list(msgspec.json.decode(path.read_bytes())) == list(msgspec.to_builtins(first))


def test_no_nan_is_written(tmp_path: Path) -> None:
    write_summary(tmp_path / "summary.json", summary_of([], one_time={"a": float("nan"), "b": float("inf"), "c": 1.5}))

    assert msgspec.json.decode((tmp_path / "summary.json").read_bytes())["one_time"] == {"a": None, "b": None, "c": 1.5}


def test_a_summary_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "summary.json").mkdir()

    with pytest.raises(IsADirectoryError):
        write_summary(tmp_path / "summary.json", summary_of([]))
    assert [found.name for found in tmp_path.iterdir()] == ["summary.json"]


def test_half_a_summary_of_a_process_that_was_killed_is_in_nobodys_way(tmp_path: Path) -> None:
    (tmp_path / f".lightning-timing.{os.getpid()}.tmp").write_bytes(b"half")

    write_summary(tmp_path / "summary.json", summary_of([]))
    assert [found.name for found in tmp_path.iterdir()] == ["summary.json"]
