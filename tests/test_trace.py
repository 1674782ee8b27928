from __future__ import annotations

import argparse
import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from records import MS, end, header, outside, phases, row, rows, summary_of, write_lines, write_summary

from lightning_timing.cli import trace as command
from lightning_timing.errors import BadInputError
from lightning_timing.phases import PHASES
from lightning_timing.reporting.trace import DEVICE_TRACK
from lightning_timing.reporting.trace_layout import Lane, Lanes, Nesting, Slot

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from lightning_timing.record import Line

Event = dict[str, Any]


def trace(run_dir: Path, *options: str) -> list[Event]:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    args = parser.parse_args([str(run_dir), *options])
    assert command.run(args) == 0
    path = args.output or run_dir / "timing" / "trace.json"
    events: list[Event] = json.loads(path.read_bytes())["traceEvents"]
    return events


def trace_of(run_dir: Path, lines: Sequence[Line], parents: Mapping[str, str] | None = None) -> list[Event]:
    """The events of one rank's lines, with a summary where the user's measurements have parents."""
    if parents is not None:
        write_summary(run_dir, summary_of(lines, parents=parents))
    return trace(write_lines(run_dir, lines))


def complete(events: Iterable[Event]) -> list[Event]:
    return [event for event in events if event["ph"] == "X"]


def named(events: Iterable[Event], name: str) -> list[Event]:
    return [event for event in events if event["name"] == name]


def span_ns(event: Event) -> tuple[int, int]:
    start = round(event["ts"] * 1000)
    return start, start + round(event["dur"] * 1000)


def self_ns(events: Iterable[Event]) -> dict[str, int]:
    """The time of each name that no event inside it covers, after a check that no two events of a track cross."""
    tracks = defaultdict(list)
    for event in complete(events):
        tracks[event["pid"], event["tid"]].append(event)
    own: dict[str, int] = defaultdict(int)
    for track in tracks.values():
        open_events: list[tuple[int, str]] = []
        for event in sorted(track, key=lambda e: (span_ns(e)[0], -span_ns(e)[1])):
            start, end_ns = span_ns(event)
            while open_events and open_events[-1][0] <= start:
                open_events.pop()
            if open_events:
                assert end_ns <= open_events[-1][0], f"{event} crosses {open_events[-1]}"
                own[open_events[-1][1]] -= end_ns - start
            own[event["name"]] += end_ns - start
            open_events.append((end_ns, event["name"]))
    return dict(own)


def test_an_iteration_without_intervals_is_laid_out_in_the_order_of_the_loop(tmp_path: Path) -> None:
    ns = phases(backward=4 * MS, data_wait=1 * MS, forward=3 * MS, other=7)
    events = complete(trace_of(tmp_path, [header(), *rows([ns, ns]), end()]))
    assert [event["name"] for event in events] == [
        *("iteration 0", "data_wait", "forward", "backward"),
        *("iteration 1", "data_wait", "forward", "backward"),
    ]
    assert [event["args"] for event in events[1:4]] == [{"approximate": True}] * 3
    assert "approximate" not in events[0]["args"]
    first = span_ns(events[0])[0]
    assert [span_ns(event)[0] - first for event in events[:4]] == [0, 0, 1 * MS, 4 * MS]
    assert self_ns(events[:4]) == {"iteration 0": 7, "data_wait": MS, "forward": 3 * MS, "backward": 4 * MS}


def test_an_iteration_says_what_it_is_known_by(tmp_path: Path) -> None:
    made = row(5, phases(forward=1), start_ns=0, epoch=2, global_step=9, stage="validate", samples=None)
    (event,) = named(trace_of(tmp_path, [header(), made]), "validate iteration 0")
    expected = {"stage": "validate", "epoch": 2, "batch_idx": 5, "global_step": 9, "samples": None, "not_drawn": []}
    assert event["args"] == expected


def test_kept_intervals_are_drawn_where_they_were(tmp_path: Path) -> None:
    ns = phases(data_wait=10, forward=30, optimizer_step=20, other=5)
    intervals = [("data_wait", 0, 10), ("forward", 20, 50), ("optimizer_step", 12, 62)]  # in the order of their ends
    events = complete(trace_of(tmp_path, [header(), row(0, ns, start_ns=1_000_000_000, intervals=intervals)]))
    assert {event["name"]: span_ns(event) for event in events} == {
        "iteration 0": (0, 65),
        "data_wait": (0, 10),
        "optimizer_step": (12, 62),
        "forward": (20, 50),
    }
    assert not any("approximate" in event["args"] for event in events)
    assert self_ns(events) == {"iteration 0": 5, "data_wait": 10, "optimizer_step": 20, "forward": 30}


def test_of_two_intervals_that_coincide_the_one_that_ended_last_encloses_the_other(tmp_path: Path) -> None:
    ns = phases(optimizer_step=0, forward=10)
    intervals = [("forward", 0, 10), ("optimizer_step", 0, 10)]
    events = complete(trace_of(tmp_path, [header(), row(0, ns, start_ns=0, intervals=intervals)]))
    assert self_ns(events) == {"iteration 0": 0, "optimizer_step": 0, "forward": 10}


@pytest.mark.parametrize("phase", ["callbacks", "optimizer_step"])
def test_the_parts_of_a_phase_lie_inside_it(tmp_path: Path, phase: str) -> None:
    ns = {**phases(**{phase: 5}, forward=3), f"{phase}/A": 2, f"{phase}/B": 3}
    events = trace_of(tmp_path, [header(), row(0, ns, start_ns=0)])
    assert self_ns(events) == {"iteration 0": 0, "forward": 3, phase: 0, f"{phase}/A": 2, f"{phase}/B": 3}
    assert {event["tid"] for event in events} == {0}


def test_kept_parts_of_callbacks_are_drawn_without_their_sum(tmp_path: Path) -> None:
    ns = {**phases(callbacks=5), "callbacks/A": 2, "callbacks/B": 3}
    intervals = [("callbacks/A", 0, 2), ("callbacks/B", 2, 5)]
    events = trace_of(tmp_path, [header(), row(0, ns, start_ns=0, intervals=intervals)])
    assert self_ns(events) == {"iteration 0": 0, "callbacks/A": 2, "callbacks/B": 3}


def test_the_users_measurements_lie_below_what_they_ran_in(tmp_path: Path) -> None:
    ns = {**phases(data_wait=5, forward=100), "matcher": 60, "cost": 20}
    parents = {"cost": "matcher", "matcher": "forward"}
    events = complete(trace_of(tmp_path, [header(), row(0, ns, start_ns=0)], parents))
    starts = {event["name"]: span_ns(event)[0] - span_ns(events[0])[0] for event in events}
    assert starts["forward"] == starts["matcher"] == starts["cost"] == 5
    assert self_ns(events) == {"iteration 0": 0, "data_wait": 5, "forward": 40, "matcher": 40, "cost": 20}
    assert {event["tid"] for event in events} == {0}
    assert {event["cat"] for event in events} == {"iteration", "phase", "measurement"}


def test_a_users_measurement_never_pushes_a_kept_interval_aside(tmp_path: Path) -> None:
    ns = {**phases(forward=90, logging=10), "matcher": 60}
    intervals = [("logging", 50, 60), ("forward", 0, 100)]
    events = complete(
        trace_of(tmp_path, [header(), row(0, ns, start_ns=0, intervals=intervals)], {"matcher": "forward"})
    )
    assert self_ns(e for e in events if e["tid"] == 0) == {"iteration 0": 0, "forward": 90, "logging": 10}
    (matcher,) = named(events, "matcher")
    assert (matcher["tid"], matcher["args"]) == (1, {"approximate": True})
    assert span_ns(matcher)[0] == span_ns(events[0])[0]


def test_what_several_threads_did_at_once_takes_further_tracks(tmp_path: Path) -> None:
    ns = {**phases(forward=100), **{f"worker {i}": 80 for i in range(3)}}
    parents = {f"worker {i}": "forward" for i in range(3)}
    events = trace_of(tmp_path, [header(), *rows([ns] * 4)], parents)
    assert self_ns(events)["worker 0"] == self_ns(events)["worker 2"] == 4 * 80
    tracks = {e["args"]["name"] for e in named(events, "thread_name")}
    assert tracks == {"iterations", "beside the iterations 1", "beside the iterations 2"}


def test_what_fits_on_no_track_is_named_in_its_iteration(tmp_path: Path) -> None:
    ns = {**phases(forward=10), **{f"worker {i}": 9 for i in range(20)}}
    events = complete(
        trace_of(tmp_path, [header(), row(0, ns, start_ns=0)], {f"worker {i}": "forward" for i in range(20)})
    )
    not_drawn = events[0]["args"]["not_drawn"]
    drawn = {event["name"] for event in events}
    assert not_drawn
    assert drawn | set(not_drawn) == {"iteration 0", "forward"} | {f"worker {i}" for i in range(20)}
    assert drawn.isdisjoint(not_drawn)


def test_what_a_kept_interval_lay_in_holds_for_later_iterations_too(tmp_path: Path) -> None:
    ns = {**phases(data_wait=5, forward=100), "matcher": 60}
    kept = row(0, ns, start_ns=0, intervals=[("data_wait", 0, 5), ("matcher", 20, 80), ("forward", 5, 105)])
    events = trace_of(tmp_path, [header(), kept, row(1, ns, start_ns=200)])
    exact, later = named(events, "matcher")
    assert (span_ns(exact)[1] - span_ns(exact)[0], exact["args"]) == (60, {})
    assert (exact["tid"], later["tid"], later["args"]) == (0, 0, {"approximate": True})


def test_without_a_summary_the_users_measurements_lie_beside_the_phases(tmp_path: Path) -> None:
    ns = {**phases(data_wait=5, forward=100), "matcher": 60}
    (matcher,) = named(trace_of(tmp_path, [header(), row(0, ns, start_ns=0)]), "matcher")
    assert (matcher["tid"], matcher["args"]) == (1, {"approximate": True})


def test_parents_that_go_round_in_a_circle_lose_nothing(tmp_path: Path) -> None:
    ns = {**phases(forward=100), "a": 10, "b": 20, "c": 30}
    events = trace_of(tmp_path, [header(), row(0, ns, start_ns=0)], {"a": "b", "b": "a", "c": "c"})
    assert {"a", "b", "c"} <= {event["name"] for event in complete(events)}


def test_ranks_share_one_time_axis(tmp_path: Path) -> None:
    wall = 1_700_000_000_000_000_000
    for rank, (monotonic, late) in enumerate([(500, 0), (9_000_000, 250)]):
        head = header(rank=rank, world_size=2, monotonic_ns=monotonic, unix_ns=wall + late, pid=rank)
        write_lines(tmp_path, [head, row(0, phases(forward=50), start_ns=monotonic + 1000)], rank=rank)
    starts = {event["pid"]: span_ns(event)[0] for event in named(trace(tmp_path), "iteration 0")}
    assert starts == {0: 1000, 1: 1250}


def test_every_rank_is_a_named_process(tmp_path: Path) -> None:
    for rank in (0, 1):
        head = header(rank=rank, world_size=2, device=f"cuda:{rank}", pid=70 + rank)
        write_lines(tmp_path, [head, row(0, phases(forward=50), start_ns=0)], rank=rank)
    events = trace(tmp_path)
    assert {event["pid"]: event["args"]["name"] for event in named(events, "process_name")} == {
        0: "rank 0 (cuda:0, node-a, process 70)",
        1: "rank 1 (cuda:1, node-a, process 71)",
    }
    assert {event["pid"]: event["args"]["sort_index"] for event in named(events, "process_sort_index")} == {0: 0, 1: 1}


def test_a_wall_clock_set_back_between_two_calls_does_not_fold_them_over_each_other(tmp_path: Path) -> None:
    hour = 3_600 * 10**9
    fit, test = header(segment="r-0", monotonic_ns=0), header(segment="r-1", monotonic_ns=1000, entry_point="test")
    test = header(segment="r-1", monotonic_ns=1000, unix_ns=fit.unix_ns - hour, entry_point="test")
    lines = [
        fit,
        row(0, phases(forward=500), start_ns=100, segment="r-0"),
        test,
        row(0, phases(forward=500), start_ns=1100, segment="r-1", stage="test"),
    ]
    events = complete(trace_of(tmp_path, lines))
    assert [span_ns(event)[0] for event in events if event["cat"] == "iteration"] == [100, 1100]
    assert {event["tid"] for event in events} == {0}


def test_an_earlier_run_in_the_same_file_is_not_drawn(tmp_path: Path) -> None:
    lines = [
        header(segment="old-0"),
        row(0, phases(forward=500), start_ns=0, segment="old-0"),
        header(segment="new-0"),
        row(0, phases(forward=300), start_ns=0, segment="new-0"),
    ]
    assert self_ns(trace_of(tmp_path, lines)) == {"iteration 0": 0, "forward": 300}


def test_what_was_measured_outside_of_iterations_is_drawn(tmp_path: Path) -> None:
    lines = [
        header(monotonic_ns=0),
        outside("first_data_wait", 40, start_ns=10),
        row(0, phases(forward=9), start_ns=50),
    ]
    (event,) = named(trace_of(tmp_path, lines), "first_data_wait")
    assert (span_ns(event), event["cat"], event["args"]) == ((10, 50), "outside", {"stage": "train", "epoch": 0})


def test_what_lies_between_iterations_pushes_none_of_them_aside(tmp_path: Path) -> None:
    lines = [
        header(monotonic_ns=0),
        outside("between_iterations/callbacks", 60, start_ns=40),
        outside("between_iterations/callbacks/A", 60, start_ns=40),
        outside("first_data_wait", 95, start_ns=10),
        row(0, phases(forward=9), start_ns=50),
    ]
    events = trace_of(tmp_path, lines)
    assert {event["name"]: event["tid"] for event in complete(events)} == {
        "first_data_wait": 1,
        "between_iterations/callbacks": 2,
        "between_iterations/callbacks/A": 2,
        "iteration 0": 0,
        "forward": 0,
    }


def test_device_time_has_a_track_of_its_own_on_which_work_queues(tmp_path: Path) -> None:
    device = {"iteration": 150, "forward": 80, "backward": 70}
    made = rows([phases(forward=10, backward=10)] * 2, start_ns=0, device_ns=device)
    events = trace_of(tmp_path, [header(monotonic_ns=0), *made])
    on_device = [event for event in complete(events) if event["tid"] == DEVICE_TRACK]
    assert [(event["name"], *span_ns(event)) for event in on_device] == [
        ("forward", 0, 80),
        ("backward", 80, 150),
        ("forward", 150, 230),
        ("backward", 230, 300),
    ]
    assert all(event["args"] == {"approximate": True} for event in on_device)
    assert "device" in {event["args"]["name"] for event in named(events, "thread_name")}


def test_there_is_no_device_track_where_no_device_was_timed(tmp_path: Path) -> None:
    events = trace_of(tmp_path, [header(), *rows([phases(forward=10)] * 2)])
    assert {event["tid"] for event in events} == {0}


@pytest.mark.parametrize(
    "name",
    ["\x00\x1b[31m\x7f", "🦊👩‍🚀", "<img src=x onerror=alert(1)>", "../../etc/passwd", "שלום\u202e", '"],"', "\u2028"],
)
def test_names_survive_exactly(tmp_path: Path, name: str) -> None:
    ns = {**phases(forward=10), name: 5}
    events = trace_of(tmp_path, [header(), row(0, ns, start_ns=0)], {name: "forward"})
    assert len(named(events, name)) == 1


def test_nothing_lies_outside_the_folder_asked_for(tmp_path: Path) -> None:
    run_dir = write_lines(tmp_path / "run", [header(), *rows([phases(forward=10)])])
    before = set(tmp_path.rglob("*"))
    trace(run_dir)
    assert set(tmp_path.rglob("*")) - before == {run_dir / "timing" / "trace.json"}


def test_a_file_of_the_record_stands_for_its_folder(tmp_path: Path) -> None:
    run_dir = write_lines(tmp_path / "run", [header(), *rows([phases(forward=10)])])
    assert command.run(argparse.Namespace(run=run_dir / "timing" / "rank0.jsonl", output=None)) == 0
    assert (run_dir / "timing" / "trace.json").exists()


def test_a_link_in_the_place_of_the_trace_is_replaced_and_not_followed(tmp_path: Path) -> None:
    run_dir = write_lines(tmp_path / "run", [header(), *rows([phases(forward=10)])])
    precious = tmp_path / "precious"
    precious.write_text("keep")
    (run_dir / "timing" / "trace.json").symlink_to(precious)
    assert named(trace(run_dir), "forward")
    assert precious.read_text() == "keep"


def test_a_timing_folder_that_leads_out_of_the_run_gets_no_file(tmp_path: Path) -> None:
    elsewhere = write_lines(tmp_path / "elsewhere", [header(), *rows([phases(forward=10)])])
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    (run_dir / "timing").symlink_to(elsewhere / "timing")
    with pytest.raises(BadInputError, match="leads out of"):
        trace(run_dir)
    assert not (elsewhere / "timing" / "trace.json").exists()
    assert named(trace(run_dir, "-o", str(tmp_path / "t.json")), "forward")


@pytest.mark.parametrize("place", ["missing/t.json", "a_file/t.json", ".", "x" * 300])
def test_a_place_that_cannot_be_written_is_said_in_one_line(tmp_path: Path, place: str) -> None:
    run_dir = write_lines(tmp_path / "run", [header(), *rows([phases(forward=10)])])
    (tmp_path / "a_file").touch()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(BadInputError, match=r"^[^\n]*: cannot be written: [^\n]*$"):
        trace(run_dir, "-o", str(tmp_path / place))
    assert sorted(tmp_path.rglob("*")) == before


def test_an_interval_of_negative_length_is_bad_input_and_leaves_no_file(tmp_path: Path) -> None:
    bad = row(0, phases(forward=10), start_ns=0, intervals=[("forward", 10, 0)])
    run_dir = write_lines(tmp_path, [header(), bad])
    with pytest.raises(BadInputError, match=r"rank0\.jsonl, line 2: an interval ends before it starts"):
        trace(run_dir)
    assert sorted(path.name for path in (run_dir / "timing").iterdir()) == ["rank0.jsonl"]


def test_a_record_without_rows_of_any_rank_is_bad_input(tmp_path: Path) -> None:
    write_summary(tmp_path, summary_of([]))
    with pytest.raises(BadInputError, match="nothing to draw"):
        trace(tmp_path)


nanoseconds = st.integers(min_value=0, max_value=50)


@settings(deadline=None)  # a busy machine may take long over a file
@given(
    many=st.lists(
        st.tuples(
            st.integers(min_value=0, max_value=100),
            st.dictionaries(st.sampled_from([*PHASES[:6], "callbacks/A", "a", "b", "c"]), nanoseconds),
            st.none() | st.lists(st.tuples(st.sampled_from("xyz"), nanoseconds, nanoseconds), max_size=4),
        ),
        max_size=6,
    )
)
def test_no_two_events_of_a_track_cross_whatever_the_rows_say(
    tmp_path_factory: pytest.TempPathFactory, many: list[tuple[int, dict[str, int], list[tuple[str, int, int]] | None]]
) -> None:
    made = [
        row(
            number,
            {"iteration": 60, **ns},
            start_ns=start,
            intervals=None if kept is None else [(name, min(a, b), max(a, b)) for name, a, b in kept],
        )
        for number, (start, ns, kept) in enumerate(many)
    ]
    parents = {"a": "forward", "b": "a", "c": "iteration"}
    own = self_ns(trace_of(tmp_path_factory.mktemp("run"), [header(monotonic_ns=0), *made], parents))

    assert min(own.values(), default=0) >= 0


def test_a_lane_takes_neighbours_and_what_lies_inside_but_nothing_that_crosses() -> None:
    lane = Lane()
    assert lane.take("a", 0, 10)
    assert lane.take("b", 2, 5)
    assert lane.take("c", 5, 10)
    assert not lane.take("d", 8, 12)
    assert not lane.take("d", 8, 9, within="a")
    assert lane.take("d", 8, 9, within="c")
    assert lane.take("e", 10, 20)
    assert not lane.take("f", 3, 4)


def test_lanes_hand_on_what_crosses_to_the_next_one() -> None:
    lanes = Lanes()
    slots = [Slot("a", 0, 10), Slot("b", 5, 15), Slot("c", 6, 9), Slot("d", 20, 30, is_beside=True)]
    assert [lanes.take(slot) for slot in slots] == [0, 1, 0, 1]


def test_children_are_laid_out_from_the_start_of_their_parent() -> None:
    forward = Slot("forward", 100, 110)
    slots = Nesting(dict.fromkeys("abc", "forward")).lay_out({"a": 3, "b": 4, "c": 9}, {"forward": forward})
    assert slots == [Slot("a", 100, 103, True), Slot("b", 103, 107, True), Slot("c", 100, 109, True, is_beside=True)]
