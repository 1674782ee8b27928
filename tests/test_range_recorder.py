from __future__ import annotations

import re
import threading
import warnings
from typing import TYPE_CHECKING, Any

import pytest
from fake_sink import FakeTool

from lightning_timing.errors import MisuseError, RangeMismatchError
from lightning_timing.phases import FIRST_DATA_WAIT, ITERATION, OTHER, PHASES
from lightning_timing.range_attributes import MAX_NAMES, OVERFLOW_NAME, PHASE_COLORS, REFUSED_NAME, USER_COLOR
from lightning_timing.range_recorder import MAX_LEFT_OPEN, RangeRecorder

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def tool() -> FakeTool:
    return FakeTool()


@pytest.fixture
def recorder(tool: FakeTool) -> RangeRecorder:
    return RangeRecorder(tool.sink, tracked=False)


@pytest.fixture
def tracked(tool: FakeTool) -> RangeRecorder:
    return RangeRecorder(tool.sink, tracked=True)


def on_thread(name: str, work: Callable[[], Any]) -> Any:
    """Runs something on a thread of its own, and raises what it raised."""
    result: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            result.append(work())
        except BaseException as error:  # noqa: BLE001  # handed to the test's own thread
            errors.append(error)

    thread = threading.Thread(target=run, name=name)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return result[0]


def push_and_pop(recorder: RangeRecorder, *names: Any) -> None:
    for name in names:
        recorder.push(name)
        recorder.pop(None)


def line_of(function: Callable[..., Any], offset: int) -> str:
    return f"{__file__}:{function.__code__.co_firstlineno + offset}"


def test_ranges_nest_in_the_order_of_the_calls(tool: FakeTool, recorder: RangeRecorder) -> None:
    recorder.push("outer")
    recorder.push("inner")
    recorder.pop(None)
    recorder.pop("outer")

    assert tool.events == ["+outer", "+inner", "-inner", "-outer"]
    assert recorder.open_ranges() == []


def test_untracked_a_name_that_is_expected_is_not_compared(tool: FakeTool, recorder: RangeRecorder) -> None:
    recorder.push("outer")
    recorder.pop("something else")

    assert tool.events == ["+outer", "-outer"]


def test_a_name_is_prepared_once_in_a_stage(tool: FakeTool, recorder: RangeRecorder) -> None:
    for batch_idx in range(3):
        recorder.push_phase("iteration", "train", batch_idx)
        recorder.push("mine")
        recorder.pop(None)
        recorder.pop_phase()

    assert tool.prepared == 2


def test_ranges_inside_a_phase_have_its_stage_and_batch(tool: FakeTool, recorder: RangeRecorder) -> None:
    recorder.push("before")
    recorder.pop(None)
    recorder.push_phase("iteration", "validate", 4)
    recorder.push("mine")
    recorder.pop(None)
    recorder.pop_phase()
    recorder.push("after")

    seen = [(attributes.name, attributes.category, attributes.payload) for attributes in tool.pushed]
    assert seen == [
        ("before", None, None),
        ("iteration", "validate", 4),
        ("mine", "validate", 4),
        ("after", None, None),
    ]


def test_phases_have_colours_of_their_own(tool: FakeTool, recorder: RangeRecorder) -> None:
    for name in [*PHASE_COLORS, "callbacks/EarlyStopping", "mine"]:
        recorder.push_phase(name, "train", 0)

    colors = [attributes.color for attributes in tool.pushed]
    assert colors == [*PHASE_COLORS.values(), PHASE_COLORS["callbacks"], USER_COLOR]
    assert len({*PHASE_COLORS.values(), USER_COLOR}) == len(PHASE_COLORS) + 1
    assert {*PHASE_COLORS, OTHER} == {ITERATION, FIRST_DATA_WAIT, *PHASES}


def test_a_pop_without_a_push_is_warned_of_once_and_does_nothing(tool: FakeTool, recorder: RangeRecorder) -> None:
    with pytest.warns(UserWarning, match=r"range_pop\('mine'\) at .*test_range_recorder.py:\d+: thread MainThread has"):
        recorder.pop("mine")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        recorder.pop(None)

    assert (tool.events, tool.bare_pops) == ([], 0)


def test_user_code_cannot_close_a_phase(tool: FakeTool, recorder: RangeRecorder) -> None:
    recorder.push_phase("forward", "train", 0)
    with pytest.warns(UserWarning, match="has no range open that it could close"):
        recorder.pop("forward")
    recorder.unwind("forward")

    assert tool.events == ["+forward"]


def test_what_is_left_open_inside_a_phase_is_closed_with_it_innermost_first(
    tool: FakeTool, recorder: RangeRecorder
) -> None:
    recorder.push_phase("forward", "train", 0)
    recorder.push("a")
    recorder.push("b")
    with pytest.warns(UserWarning, match=r"'b' \(thread MainThread\)\n    'a' \(thread MainThread\)"):
        recorder.pop_phase()

    assert tool.events == ["+forward", "+a", "+b", "-b", "-a", "-forward"]
    assert [left.name for left in recorder.close_all()] == ["b", "a"]
    assert recorder.close_all() == []


def test_a_range_that_was_open_before_a_phase_stays_the_users(tool: FakeTool, recorder: RangeRecorder) -> None:
    recorder.push("around")
    recorder.push_phase("iteration", "train", 0)
    recorder.push_phase("forward", "train", 0)
    recorder.pop_phase()
    recorder.pop_phase()
    recorder.pop("around")

    assert tool.events == ["+around", "+iteration", "+forward", "-forward", "-iteration", "-around"]


def test_closing_a_phase_that_is_not_open_does_nothing(tool: FakeTool, recorder: RangeRecorder) -> None:
    recorder.push("mine")
    recorder.pop_phase()

    assert tool.events == ["+mine"]


def test_closing_all_closes_phases_too_and_reports_only_what_users_left(
    tool: FakeTool, recorder: RangeRecorder
) -> None:
    recorder.push("around")
    recorder.push_phase("iteration", "train", 0)
    recorder.push_phase("forward", "train", 0)
    recorder.push("mine")
    with pytest.warns(UserWarning, match="left open"):
        left = recorder.close_all()

    assert tool.events[4:] == ["-mine", "-forward", "-iteration", "-around"]
    assert [entry.name for entry in left] == ["mine", "around"]


def test_unwinding_closes_down_to_a_name_and_no_further(tool: FakeTool, recorder: RangeRecorder) -> None:
    for name in ("a", "b", "c"):
        recorder.push(name)
    with pytest.warns(UserWarning, match="'c'"):
        recorder.unwind("b")
    recorder.unwind("not open")

    assert tool.events[3:] == ["-c", "-b"]
    assert [entry.name for entry in recorder.open_ranges()] == ["a"]


def test_a_thread_never_closes_what_another_opened(tool: FakeTool, recorder: RangeRecorder) -> None:
    recorder.push("mains")
    with pytest.warns(UserWarning, match=r"Open on other threads:\n    'mains' \(thread MainThread\)"):
        on_thread("Other", lambda: recorder.pop("mains"))
    recorder.pop("mains")

    assert (tool.events, tool.bare_pops) == (["+mains", "-mains"], 0)


def test_closing_all_leaves_other_threads_ranges_open_and_reports_them(tool: FakeTool, recorder: RangeRecorder) -> None:
    on_thread("Other", lambda: recorder.push("others"))
    recorder.push("mains")
    with pytest.warns(UserWarning, match="'mains'"):
        left = recorder.close_all()

    assert tool.events == ["+others", "+mains", "-mains"]
    assert [(entry.name, entry.thread) for entry in left] == [("mains", "MainThread"), ("others", "Other")]


def test_a_new_thread_starts_with_nothing_open_even_if_it_gets_a_dead_threads_number(recorder: RangeRecorder) -> None:
    on_thread("First", lambda: recorder.push("left"))
    opened = on_thread("Second", lambda: (recorder.push("own"), recorder._local.stack.describe())[1])

    assert [entry.name for entry in opened] == ["own"]


def test_tracked_a_mismatch_names_both_the_stack_the_thread_and_where_each_was_pushed(tracked: RangeRecorder) -> None:
    tracked.push_phase("iteration", "train", 7)
    tracked.push("outer")
    tracked.push("inner")
    with pytest.raises(RangeMismatchError) as raised:
        tracked.pop("outer")

    here = test_tracked_a_mismatch_names_both_the_stack_the_thread_and_where_each_was_pushed
    assert str(raised.value) == (
        f"range_pop('outer') at {line_of(here, 5)}: the innermost range is 'inner', not 'outer'.\n"
        "Open on thread MainThread, innermost first:\n"
        f"    'inner' (thread MainThread, pushed at {line_of(here, 3)}, in train batch 7)\n"
        f"    'outer' (thread MainThread, pushed at {line_of(here, 2)}, in train batch 7)\n"
        f"    'iteration' (thread MainThread, pushed at {line_of(here, 1)}, in train batch 7)"
    )


def test_tracked_after_a_mismatch_everything_is_still_open(tool: FakeTool, tracked: RangeRecorder) -> None:
    tracked.push("outer")
    tracked.push("inner")
    with pytest.raises(RangeMismatchError):
        tracked.pop("outer")
    tracked.pop("inner")
    tracked.pop("outer")

    assert tool.events == ["+outer", "+inner", "-inner", "-outer"]


def test_tracked_a_pop_without_a_push_raises_and_says_who_has_it_open(tool: FakeTool, tracked: RangeRecorder) -> None:
    tracked.push("mains")
    with pytest.raises(RangeMismatchError) as raised:
        on_thread("Other", lambda: tracked.pop("mains"))

    assert re.search(
        r"thread Other has no range open.*\n.*\n    none\nOpen on other threads:\n    'mains'", str(raised.value)
    )
    assert (tool.events, tool.bare_pops) == (["+mains"], 0)


def test_tracked_what_is_left_open_is_reported_with_its_place_and_iteration(tracked: RangeRecorder) -> None:
    tracked.push_phase("iteration", "train", 3)
    tracked.push("forgotten")
    with pytest.warns(UserWarning, match="forgotten"):
        tracked.pop_phase()
    (left,) = tracked.close_all()

    here = test_tracked_what_is_left_open_is_reported_with_its_place_and_iteration
    assert (left.name, left.place, left.iteration) == ("forgotten", line_of(here, 2), "train batch 3")
    assert not left.is_phase


def test_a_range_left_open_in_every_iteration_is_no_leak(recorder: RangeRecorder) -> None:
    def iterate() -> None:
        for batch_idx in range(MAX_LEFT_OPEN + 5):
            recorder.push_phase("iteration", "train", batch_idx)
            recorder.push("forgotten")
            recorder.pop_phase()

    with pytest.warns(UserWarning, match="left open") as warned:
        iterate()

    assert len(warned) == 1
    assert len(recorder.close_all()) == MAX_LEFT_OPEN


BAD_NAMES = [
    (5, "not int"),
    ([], "not list"),
    ("", "empty"),
    ("x" * 100_000, "100000"),
    ("\ud800", "surrogate"),
    ("a\0b", "NUL"),
]


@pytest.mark.parametrize(("name", "reason"), BAD_NAMES, ids=[reason for _, reason in BAD_NAMES])
def test_tracked_a_name_that_cannot_be_kept_is_refused(
    name: Any, reason: str, tool: FakeTool, tracked: RangeRecorder
) -> None:
    with pytest.raises(MisuseError, match=reason) as raised:
        tracked.push(name)

    assert "recorded" not in str(raised.value)
    assert (tool.events, tracked.open_ranges()) == ([], [])


@pytest.mark.parametrize(("name", "reason"), BAD_NAMES, ids=[reason for _, reason in BAD_NAMES])
def test_untracked_it_is_recorded_under_a_stand_in_with_one_warning(
    name: Any, reason: str, tool: FakeTool, recorder: RangeRecorder
) -> None:
    with pytest.warns(UserWarning, match=f"{reason}.*recorded as {re.escape(REFUSED_NAME)}") as warned:
        push_and_pop(recorder, name, name)

    assert len(warned) == 1
    assert tool.events == [f"+{REFUSED_NAME}", f"-{REFUSED_NAME}"] * 2


@pytest.mark.parametrize("name", ["a/b", "../up", "\x1b[1m", "[bold]x[/bold]", "😀", "שלום", "<script>"])
def test_other_names_are_kept_exactly(name: str, tool: FakeTool, tracked: RangeRecorder) -> None:
    tracked.push(name)
    tracked.pop(name)

    assert tool.events == [f"+{name}", f"-{name}"]


def test_names_made_up_on_the_way_are_capped(tool: FakeTool, recorder: RangeRecorder) -> None:
    with pytest.warns(UserWarning, match=f"more than {MAX_NAMES} names") as warned:
        push_and_pop(recorder, *(f"name {number}" for number in range(MAX_NAMES + 50)))

    assert len(warned) == 1
    assert tool.prepared == MAX_NAMES + 1
    assert tool.events[-2:] == [f"+{OVERFLOW_NAME}", f"-{OVERFLOW_NAME}"]


def test_synchronizing_comes_before_the_range_opens_and_before_it_closes(tool: FakeTool) -> None:
    recorder = RangeRecorder(
        tool.sink,
        tracked=False,
        sync_on_push=lambda: tool.events.append("sync push"),
        sync_on_pop=lambda: tool.events.append("sync pop"),
    )
    recorder.push_phase("forward", "train", 0)
    recorder.push("mine")
    recorder.pop(None)
    recorder.pop_phase()

    assert tool.events == [
        *("sync push", "+forward", "sync push", "+mine"),
        *("sync pop", "-mine", "sync pop", "-forward"),
    ]


def test_forgetting_closes_nothing(tool: FakeTool, recorder: RangeRecorder) -> None:
    recorder.push_phase("iteration", "train", 0)
    recorder.push("parents")
    recorder.forget_open()
    recorder.push("childs")
    recorder.pop(None)

    assert tool.events[2:] == ["+childs", "-childs"]
    assert tool.pushed[-1].category is None
    assert recorder.open_ranges() == []
