"""Reading records back: whole ones, cut ones, foreign ones, and such as are meant to do harm."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from records import (
    MS,
    SEGMENT,
    end,
    header,
    load_run,
    outside,
    phases,
    row,
    rows,
    summary_of,
    write_lines,
    write_summary,
)

from lightning_timing.errors import BadInputError
from lightning_timing.phases import DATA_WAIT, FORWARD, ITERATION, LOGGING, OTHER
from lightning_timing.record_lines import MAX_LINE_BYTES
from lightning_timing.record_rank import run_id
from lightning_timing.record_reader import chosen_run
from lightning_timing.record_series import MAX_MEASUREMENTS_READ

TWO_ROWS = rows([phases(data_wait=2 * MS, forward=5 * MS, other=MS), phases(data_wait=4 * MS, forward=6 * MS)])
NOT_ENDED = "rank 0: no end line: the process was killed, or is still running"


def append_bytes(run_dir: Path, data: bytes, rank: int = 0) -> None:
    with (run_dir / "timing" / f"rank{rank}.jsonl").open("ab") as file:
        file.write(data)


def message_of(run_dir: Path) -> str:
    with pytest.raises(BadInputError) as caught:
        load_run(run_dir)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_rows_become_arrays(tmp_path: Path) -> None:
    run = load_run(write_lines(tmp_path, [header(), *TWO_ROWS, end()]))

    train = run.ranks[0].stages["train"]
    assert run.problems == ()
    assert run.summary is None
    assert len(train) == 2
    assert train.batch_idx.tolist() == [0, 1]
    assert train.start_ns.tolist() == [2_000_000_000, 2_008_000_000]
    assert train.ns[ITERATION].tolist() == [8 * MS, 10 * MS]
    assert train.ns[DATA_WAIT].tolist() == [2 * MS, 4 * MS]
    assert train.samples.tolist() == [32, 32]
    assert list(train.ns) == [ITERATION, DATA_WAIT, FORWARD, OTHER]
    assert dict(train.device_ns) == {}


@pytest.mark.parametrize("name", ["summary.json", "rank0.jsonl"])
def test_a_file_of_a_record_stands_for_its_folder(tmp_path: Path, name: str) -> None:
    lines = [header(), *rows([phases(forward=MS)]), end()]
    run_dir = write_summary(write_lines(tmp_path, lines), summary_of(lines))

    assert load_run(run_dir / "timing" / name).path == run_dir / "timing"


def test_the_timing_folder_itself_is_taken_too(tmp_path: Path) -> None:
    write_lines(tmp_path, [header(), end()])

    assert load_run(tmp_path / "timing").path == load_run(tmp_path).path == tmp_path / "timing"


def test_a_measurement_that_did_not_occur_is_nan_there(tmp_path: Path) -> None:
    some = rows([phases(forward=MS), phases(forward=MS, logging=3 * MS), phases(forward=2 * MS)])

    train = load_run(write_lines(tmp_path, [header(), *some, end()])).ranks[0].stages["train"]

    assert np.array_equal(train.ns[LOGGING], [np.nan, 3 * MS, np.nan], equal_nan=True)
    assert train.ns[FORWARD].tolist() == [MS, MS, 2 * MS]
    with pytest.raises(KeyError):
        train.ns["never seen"]


def test_device_time_and_unknown_samples(tmp_path: Path) -> None:
    ns = phases(forward=MS)
    some = [
        row(0, ns, start_ns=0, device_ns={FORWARD: 7}, samples=None),
        row(1, ns, start_ns=MS, device_ns=None, samples=4),
    ]

    train = load_run(write_lines(tmp_path, [header(), *some, end()])).ranks[0].stages["train"]

    assert np.array_equal(train.device_ns[FORWARD], [7, np.nan], equal_nan=True)
    assert np.array_equal(train.samples, [np.nan, 4], equal_nan=True)


def test_stages_are_kept_apart_and_outside_rows_kept(tmp_path: Path) -> None:
    wait = outside("first_data_wait", 3 * MS, start_ns=0, stage="validate")
    some = [header(), wait, *rows([phases(forward=MS)], stage="validate"), *TWO_ROWS, end()]

    stages = load_run(write_lines(tmp_path, some)).ranks[0].stages

    assert {name: len(series) for name, series in stages.items()} == {"validate": 1, "train": 2}
    assert {name: times.tolist() for name, times in stages["validate"].outside.items()} == {"first_data_wait": [3 * MS]}


def test_parents_come_from_kept_intervals(tmp_path: Path) -> None:
    ns = {**phases(forward=5 * MS, other=MS), "matcher": 2 * MS, "cost": MS}
    intervals = [(FORWARD, 0, 5 * MS), ("matcher", MS, 3 * MS), ("cost", 2 * MS, 3 * MS)]
    run = load_run(write_lines(tmp_path, [header(), row(0, ns, start_ns=0, intervals=intervals), *TWO_ROWS, end()]))

    assert run.ranks[0].stages["train"].parents == {"matcher": FORWARD, "cost": "matcher"}


def test_overlapping_intervals_of_several_threads_are_not_nested(tmp_path: Path) -> None:
    ns = {**phases(forward=5 * MS), "a": 2 * MS, "b": 2 * MS}
    intervals = [("a", 0, 2 * MS), ("b", MS, 3 * MS)]
    run = load_run(write_lines(tmp_path, [header(), row(0, ns, start_ns=0, intervals=intervals)]))

    assert run.ranks[0].stages["train"].parents == {"a": "other", "b": "other"}


def test_an_older_run_that_goes_on_does_not_become_the_newer_one(tmp_path: Path) -> None:
    again = header(segment="run-1")
    newer = [header(segment="newer-0"), *rows([phases(forward=MS)], segment="newer-0"), end(segment="newer-0")]
    some = [header(), *newer, again, *rows([phases(forward=MS)] * 3, segment="run-1"), end(segment="run-1")]

    run = load_run(write_lines(tmp_path, some))

    assert run.ranks[0].header.segment == "newer-0"
    assert len(run.ranks[0].stages["train"]) == 1
    assert run.problems == ("rank 0: 1 earlier run in the same folder left out: RUN~1 shows it",)


def test_segments_of_one_run_are_one_series(tmp_path: Path) -> None:
    second = header(segment="run-1", entry_point="test")
    some = [header(), *TWO_ROWS, end(), second, *rows([phases(forward=MS)], segment="run-1"), end(segment="run-1")]

    rank = load_run(write_lines(tmp_path, some)).ranks[0]

    assert rank.header == second
    assert [segment.segment for segment in rank.segments] == ["run-0", "run-1"]
    assert len(rank.stages["train"]) == 3
    assert rank.problems == ()


def test_of_two_runs_in_one_file_the_newer_counts(tmp_path: Path) -> None:
    late = rows([phases(forward=9 * MS)], segment="newer-0")
    some = [header(), *TWO_ROWS, header(segment="newer-0"), *late, *TWO_ROWS, end(), end(segment="newer-0")]

    run = load_run(write_lines(tmp_path, some))

    assert run.ranks[0].stages["train"].ns[FORWARD].tolist() == [9 * MS]
    assert run.problems == ("rank 0: 1 earlier run in the same folder left out: RUN~1 shows it",)


def test_a_killed_run_is_read_and_said_to_be_one(tmp_path: Path) -> None:
    run = load_run(write_lines(tmp_path, [header(), *TWO_ROWS]))

    assert run.ranks[0].end is None
    assert len(run.ranks[0].stages["train"]) == 2
    assert run.problems == (NOT_ENDED,)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_record_cut_at_any_byte_gives_its_whole_lines(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    run_dir = write_lines(tmp_path_factory.mktemp("cut"), [header(), *TWO_ROWS, end()])
    file = run_dir / "timing" / "rank0.jsonl"
    whole = file.read_bytes()
    kept = whole[: data.draw(st.integers(len(whole.split(b"\n")[0]), len(whole)))]
    file.write_bytes(kept)
    endings = [part for part in (kept + b"\n").split(b"\n") if part.endswith(b"}") and part in whole.split(b"\n")]

    rank = load_run(run_dir).ranks[0]

    in_stages = sum(len(series) for series in rank.stages.values())
    assert 1 + in_stages + (rank.end is not None) == len(endings)
    assert ("a line was cut and is left out" in rank.problems) == (kept.rpartition(b"\n")[2] not in (b"", *endings))


def test_a_half_line_of_a_killed_run_before_the_next_run(tmp_path: Path) -> None:
    run_dir = write_lines(tmp_path, [header()])
    append_bytes(run_dir, msgspec.json.encode(TWO_ROWS[0])[:70] + b"\n")
    newer = [header(segment="newer-0"), *rows([phases(forward=MS)], segment="newer-0"), end(segment="newer-0")]
    append_bytes(run_dir, b"".join(msgspec.json.encode(line) + b"\n" for line in newer))

    run = load_run(run_dir)

    assert len(run.ranks[0].stages["train"]) == 1
    assert "rank 0: a line was cut and is left out" in run.problems


def test_a_half_line_between_rows_is_damage(tmp_path: Path) -> None:
    run_dir = write_lines(tmp_path, [header()])
    append_bytes(run_dir, b'{"kind":"iter\n' + msgspec.json.encode(TWO_ROWS[0]) + b"\n")

    assert "rank0.jsonl, line 2: " in message_of(run_dir)


def test_missing_ranks_are_named(tmp_path: Path) -> None:
    for rank in (0, 2):
        write_lines(tmp_path, [header(rank=rank, world_size=4), *TWO_ROWS, end()], rank=rank)
    run = load_run(tmp_path)

    assert list(run.ranks) == [0, 2]
    assert run.problems == ("ranks 1, 3: no record of this run",)


def test_ranks_that_were_not_chosen_are_not_missed(tmp_path: Path) -> None:
    chosen = header(world_size=4, settings={"ranks": [0]})

    assert load_run(write_lines(tmp_path, [chosen, end()])).problems == ()


def test_many_missing_ranks_take_one_line(tmp_path: Path) -> None:
    run = load_run(write_lines(tmp_path, [header(world_size=2**31), end()]))

    assert run.problems == ("ranks 1, 2, 3, 4, 5, 6, 7, 8 and 2,147,483,639 more: no record of this run",)


def test_an_empty_file_of_a_rank_is_named(tmp_path: Path) -> None:
    write_lines(tmp_path, [header(world_size=2), end()])
    write_lines(tmp_path, [], rank=1)

    assert load_run(tmp_path).problems == ("rank 1: nothing whole was written",)


def test_a_file_of_a_rank_that_this_run_has_not_is_left_out(tmp_path: Path) -> None:
    write_lines(tmp_path, [header(), end()])
    write_lines(tmp_path, [header(rank=1, world_size=2, segment="old-0"), end(segment="old-0")], rank=1)

    run = load_run(tmp_path)

    assert list(run.ranks) == [0]
    assert run.problems == (
        "rank 0: 1 earlier run in the same folder left out: RUN~1 shows it",
        "rank 1: a record of another run is left out",
    )


def test_a_file_of_another_run_is_left_out_however_short_the_time_between_them(tmp_path: Path) -> None:
    write_lines(tmp_path, [header(world_size=2), *TWO_ROWS, end()])
    other = header(rank=1, world_size=2, segment="other-0")
    write_lines(tmp_path, [other, *rows([phases(forward=MS)], segment="other-0"), end(segment="other-0")], rank=1)

    run = load_run(tmp_path)

    assert list(run.ranks) == [0]
    assert run.problems == (
        "rank 0: 1 earlier run in the same folder left out: RUN~1 shows it",
        "rank 1: a record of another run is left out",
    )


def write_two_runs_of_which_only_rank_1_has_the_second(run_dir: Path) -> Path:
    for rank in (0, 1):
        lines = [header(rank=rank, world_size=2), *TWO_ROWS, end()]
        if rank == 1:
            later = header(
                segment="later-0", rank=1, world_size=2, unix_ns=header().unix_ns + 1, settings={"ranks": [1]}
            )
            lines += [later, *rows([phases(forward=3 * MS)] * 4, segment="later-0"), end(segment="later-0")]
        write_lines(run_dir, lines, rank=rank)
    return run_dir


def test_the_newest_run_is_the_newest_of_all_ranks(tmp_path: Path) -> None:
    run = load_run(write_two_runs_of_which_only_rank_1_has_the_second(tmp_path))

    assert {rank: len(record.stages["train"]) for rank, record in run.ranks.items()} == {1: 4}
    assert run.problems == (
        "rank 0: a record of another run is left out",
        "rank 1: 1 earlier run in the same folder left out: RUN~1 shows it",
    )
    assert run_id(header().segment) == chosen_run(Path(f"{tmp_path}~1"))


def test_runs_that_no_rank_has_all_of_are_in_the_order_in_which_they_began(tmp_path: Path) -> None:
    for rank, begun in ((0, (1, 4)), (1, (2, 3))):
        lines = [header(rank=rank, world_size=2, segment=f"run{ns}-0", unix_ns=ns) for ns in begun]
        write_lines(tmp_path, lines, rank=rank)

    assert [chosen_run(Path(f"{tmp_path}~{back}")) for back in (1, 2, 3)] == ["run3", "run2", "run1"]
    assert list(load_run(tmp_path).ranks) == [0]


def test_a_summary_is_read(tmp_path: Path) -> None:
    some = [header(), *TWO_ROWS, end()]
    write_summary(write_lines(tmp_path, some), summary_of(some))

    run = load_run(tmp_path)

    assert run.summary == summary_of(some)


def test_a_summary_from_before_the_time_of_the_warm_up_was_known_is_read(tmp_path: Path) -> None:
    found = msgspec.to_builtins(summary_of([header(), *TWO_ROWS]))
    del found["stages"]["train"]["warmup_s"]
    run_dir = write_lines(tmp_path, [header(), *TWO_ROWS, end()])
    (run_dir / "timing" / "summary.json").write_bytes(msgspec.json.encode(found))

    summary = load_run(run_dir).summary
    assert summary is not None
    assert summary.stages["train"].warmup_s is None


def test_a_summary_alone_is_a_record(tmp_path: Path) -> None:
    run = load_run(write_summary(tmp_path, summary_of([header(), *TWO_ROWS])))

    assert run.ranks == {}
    assert run.summary is not None


def test_keys_from_a_later_version_of_the_same_schema_are_ignored(tmp_path: Path) -> None:
    run_dir = write_lines(tmp_path, [header()])
    append_bytes(run_dir, msgspec.json.encode({**msgspec.to_builtins(TWO_ROWS[0]), "new": [1]}) + b"\n")

    assert len(load_run(run_dir).ranks[0].stages["train"]) == 1


ROW = msgspec.to_builtins(TWO_ROWS[0])
BAD_LINES = {
    "number that is a string": {**ROW, "start_ns": "5"},
    "float for an integer": {**ROW, "epoch": 0.5},
    "time that is a string": {**ROW, "ns": {ITERATION: "5"}},
    "no iteration": {**ROW, "ns": {FORWARD: 5}},
    "negative time": {**ROW, "ns": {ITERATION: -5}},
    "negative time on the device": {**ROW, "device_ns": {ITERATION: -5}},
    "negative number of samples": {**ROW, "samples": -3},
    "number beyond 64 bits": {**ROW, "ns": {ITERATION: 2**64 - 1}},
    "negative time outside": msgspec.to_builtins(outside("x", -1, start_ns=0)),
    "number beyond 64 bits in a header": msgspec.to_builtins(header(segment="x-0", settings={"x": 2**64})),
    "number beyond 64 bits outside": msgspec.to_builtins(outside("x", 2**64, start_ns=0)),
    "samples beyond any float": {**ROW, "samples": 10**400},
    "unknown stage": {**ROW, "stage": "tuning"},
    "unknown kind": {"kind": "footer"},
    "no kind": {"segment": SEGMENT},
    "no object": [1, 2],
    "another rank's header": msgspec.to_builtins(header(segment="x-0", rank=1, world_size=2)),
    "rank beyond the world": msgspec.to_builtins(header(segment="x-0", world_size=0)),
    "newer schema": {"kind": "header", "schema_version": 2, "everything": "else"},
    "no schema version": {"kind": "header", "segment": "x-0"},
}


@pytest.mark.parametrize("line", BAD_LINES.values(), ids=BAD_LINES.keys())
def test_a_bad_line_is_named_with_its_file_and_number(tmp_path: Path, line: object) -> None:
    run_dir = write_lines(tmp_path, [header(), *TWO_ROWS])
    append_bytes(run_dir, msgspec.json.encode(line) + b"\n" + msgspec.json.encode(end()) + b"\n")

    assert "rank0.jsonl, line 4: " in message_of(run_dir)


def test_a_row_before_any_header(tmp_path: Path) -> None:
    assert "rank0.jsonl, line 1: no header before it" in message_of(write_lines(tmp_path, TWO_ROWS))


def test_a_row_of_an_unknown_segment_is_left_out_and_said(tmp_path: Path) -> None:
    lost = rows([phases(forward=MS)], segment="lost-0")

    run = load_run(write_lines(tmp_path, [header(), *lost, *TWO_ROWS, end()]))

    assert len(run.ranks[0].stages["train"]) == 2
    assert run.problems == ("rank 0: lines of a segment without a header are left out",)


@pytest.mark.parametrize(
    "content",
    [b"hello\n", b"hello", b"\x89PNG\r\n\x1a\n\0\0\0", b"\0" * 100, b"[" * 100_000, b'{"a":' * 100_000, b"\xff\xfe"],
)
def test_a_foreign_file(tmp_path: Path, content: bytes) -> None:
    run_dir = write_lines(tmp_path, [])
    append_bytes(run_dir, content)

    assert "rank0.jsonl" in message_of(run_dir)


@pytest.mark.parametrize("where", ["inside", "outside"])
def test_more_measurements_than_any_run_has(tmp_path: Path, where: str) -> None:
    names = [f"m{number}" for number in range(MAX_MEASUREMENTS_READ + 1)]
    inside = rows([{**phases(forward=MS), **dict.fromkeys(names, 1)}])
    between = [outside(name, 1, start_ns=0) for name in names]
    run_dir = write_lines(tmp_path, [header(), *(inside if where == "inside" else between)])

    assert message_of(run_dir).endswith("more than 4,096 different measurements in a stage")


def test_deep_nesting_in_a_header(tmp_path: Path) -> None:
    nested = b'"settings":{"x":' + b"[" * 10**6 + b"]" * 10**6 + b","
    deep = msgspec.json.encode(header()).replace(b'"settings":{', nested)
    run_dir = write_lines(tmp_path, [])
    append_bytes(run_dir, deep + b"\n" + msgspec.json.encode(TWO_ROWS[0]) + b"\n")

    assert "rank0.jsonl, line 1: " in message_of(run_dir)


def test_a_line_without_an_end_is_refused_before_it_is_read_whole(tmp_path: Path) -> None:
    run_dir = write_lines(tmp_path, [header()])
    file = run_dir / "timing" / "rank0.jsonl"
    os.truncate(file, 2 * 2**30)  # sparse: takes no room

    assert message_of(run_dir) == f"{file}, line 2: longer than {MAX_LINE_BYTES >> 20} MiB"


def test_a_line_is_as_long_as_it_may_be_or_is_refused_however_it_lies_in_the_file(tmp_path: Path) -> None:
    def bytes_of(length: int) -> bytes:
        line = msgspec.json.encode(end())
        return line[:-1] + b" " * (length - len(line)) + b"}\n"

    run_dir = write_lines(tmp_path / "a", [header()])
    append_bytes(run_dir, bytes_of(MAX_LINE_BYTES))
    assert load_run(run_dir).ranks[0].end is not None

    run_dir = write_lines(tmp_path / "b", [header()])
    append_bytes(run_dir, bytes_of(MAX_LINE_BYTES + 1))
    assert message_of(run_dir).endswith(f"rank0.jsonl, line 2: longer than {MAX_LINE_BYTES >> 20} MiB")


def test_a_link_that_leads_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    elsewhere = write_lines(tmp_path / "elsewhere", [header(), end()])
    run_dir = write_lines(tmp_path / "run", [header(world_size=2), end()])
    (run_dir / "timing" / "rank1.jsonl").symlink_to(elsewhere / "timing" / "rank0.jsonl")

    assert message_of(run_dir).endswith("rank1.jsonl: a link that leads out of its folder")


def test_a_summary_that_leads_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    run_dir = write_lines(tmp_path / "run", [header(), end()])
    (run_dir / "timing" / "summary.json").symlink_to("/proc/self/status")

    assert "summary.json: a link that leads out of its folder" in message_of(run_dir)


def test_links_in_a_circle(tmp_path: Path) -> None:
    run_dir = write_lines(tmp_path, [])
    (run_dir / "timing" / "rank1.jsonl").symlink_to("rank1.jsonl")

    assert "rank1.jsonl: cannot be read" in message_of(run_dir)


def test_a_pipe_or_a_folder_under_a_records_name(tmp_path: Path) -> None:
    run_dir = write_lines(tmp_path, [])
    os.mkfifo(run_dir / "timing" / "rank1.jsonl")
    assert "rank1.jsonl: cannot be read: not a regular file" in message_of(run_dir)

    (run_dir / "timing" / "rank1.jsonl").unlink()
    (run_dir / "timing" / "rank1.jsonl").mkdir()
    assert "rank1.jsonl: cannot be read: not a regular file" in message_of(run_dir)


@pytest.mark.parametrize("name", ["empty", "file"])
def test_a_place_without_a_record(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_bytes(b"")

    assert "no record here" in message_of(tmp_path / name)


def test_a_place_that_is_not_there(tmp_path: Path) -> None:
    assert message_of(tmp_path / "nothing").startswith(f"{tmp_path / 'nothing'}: no such folder; give the folder of ")
    assert message_of(tmp_path / "summary.json").startswith(f"{tmp_path / 'summary.json'}: no such folder; ")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"schema_version": 2}',
        b'{"schema_version": "1"}',
        msgspec.json.encode(summary_of([header(), *TWO_ROWS], world_size=2**64)),
        msgspec.json.encode(summary_of([header(), *TWO_ROWS])).replace(
            b'"warmup_iterations":10', b'"warmup_iterations":-2'
        ),
        b"[" * 10**6,
        b"\xff",
        b"\0" * 9,
    ],
)
def test_a_bad_summary(tmp_path: Path, content: bytes) -> None:
    run_dir = write_lines(tmp_path, [header(), end()])
    (run_dir / "timing" / "summary.json").write_bytes(content)

    assert "summary.json: not a summary: " in message_of(run_dir)


def test_an_over_long_summary_is_not_read(tmp_path: Path) -> None:
    run_dir = write_lines(tmp_path, [header(), end()])
    (run_dir / "timing" / "summary.json").touch()
    os.truncate(run_dir / "timing" / "summary.json", 2 * 2**30)

    assert "summary.json: longer than 64 MiB" in message_of(run_dir)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=6,
)


@st.composite
def mangled_lines(draw: st.DrawFn) -> bytes:
    """A line of a record with a field replaced or taken out, or bytes of it changed."""
    line = msgspec.to_builtins(draw(st.sampled_from([header(), *TWO_ROWS, end(), outside("x", 1, start_ns=0)])))
    field = draw(st.sampled_from(sorted(line)))
    how = draw(st.sampled_from(["keep", "replace", "drop", "bytes"]))
    if how == "replace":
        line[field] = draw(json_values)
    elif how == "drop":
        del line[field]
    try:
        data = msgspec.json.encode(line)
    except (OverflowError, UnicodeEncodeError):
        return b"{}"
    if how == "bytes":
        at = draw(st.integers(0, len(data)))
        data = data[:at] + draw(st.binary(max_size=4)) + data[at + draw(st.integers(0, 4)) :]
    return data


@given(st.lists(mangled_lines(), max_size=6))
@settings(max_examples=150, deadline=None)
def test_a_mangled_record_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]) -> None:
    run_dir = write_lines(tmp_path_factory.mktemp("mangled"), [header()])
    append_bytes(run_dir, b"\n".join(lines))
    try:
        stages = load_run(run_dir).ranks[0].stages
    except BadInputError:
        stages = {}  # refused, which is right as well; any other error fails the test
    assert all((series.ns[ITERATION] >= 0).all() for series in stages.values() if len(series))
