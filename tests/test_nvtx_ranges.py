from __future__ import annotations

import copy
import importlib.metadata
import pickle
import sys
import types
import warnings
from typing import TYPE_CHECKING, Any

import nvtx
import pytest
import torch
from fake_sink import FakeTool, attached_tool
from nvtx_recording import DOMAIN, record
from programs import output_of, run_program

from lightning_timing import failsafe
from lightning_timing.errors import MisuseError, RangeMismatchError, TimingError
from lightning_timing.nvtx_ranges import NVTXRangeWrapper, start_process_range

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def wrapper(monkeypatch: pytest.MonkeyPatch) -> Iterator[NVTXRangeWrapper]:
    """The wrapper, off before and after, in a process that has said nothing yet."""
    monkeypatch.setattr(failsafe, "_said", set())
    monkeypatch.delenv("NVTX_INJECTION64_PATH", raising=False)
    monkeypatch.delenv("NVTX_DISABLE", raising=False)
    instance = NVTXRangeWrapper()
    instance.disable()
    yield instance
    instance.disable()


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> FakeTool:
    return attached_tool(monkeypatch)


def test_there_is_one_instance_however_it_is_come_by(wrapper: NVTXRangeWrapper) -> None:
    assert NVTXRangeWrapper() is wrapper
    assert pickle.loads(pickle.dumps(wrapper)) is wrapper  # noqa: S301  # our own bytes
    assert copy.deepcopy(wrapper) is wrapper
    assert copy.copy(wrapper) is wrapper


@pytest.mark.parametrize(("args", "kwargs"), [((False, False, True), {}), ((), {"keep_track_of_range_order": True})])
def test_arguments_to_the_constructor_enable_it(wrapper: NVTXRangeWrapper, args: Any, kwargs: Any) -> None:
    assert not wrapper.is_enabled
    assert NVTXRangeWrapper(*args, **kwargs) is wrapper
    assert wrapper.is_enabled
    with pytest.raises(RangeMismatchError):
        wrapper.range_pop()


def test_enabling_twice_is_an_error_and_after_disabling_none(wrapper: NVTXRangeWrapper) -> None:
    wrapper.enable()
    with pytest.raises(MisuseError, match="enabled already"):
        NVTXRangeWrapper(sync_on_push=False)
    wrapper.disable()
    wrapper.disable()
    wrapper.enable()

    assert issubclass(MisuseError, TimingError)


def test_until_it_is_enabled_every_method_is_a_no_op(wrapper: NVTXRangeWrapper, tool: FakeTool) -> None:
    wrapper.range_pop("never pushed")
    wrapper.range_push("mine")
    wrapper._push_phase("forward", "train", 0)
    wrapper._pop_phase()

    assert tool.events == []
    assert wrapper._close_open_ranges() == []


def test_without_a_tool_nothing_is_recorded_and_nothing_said(wrapper: NVTXRangeWrapper) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wrapper.enable()
        wrapper.range_pop()
        wrapper.range_push("mine")

    assert wrapper.is_enabled
    assert not wrapper._is_recording


def test_the_order_is_checked_without_a_tool_too(wrapper: NVTXRangeWrapper) -> None:
    wrapper.enable(keep_track_of_range_order=True)
    wrapper.range_push("mine")
    with pytest.raises(RangeMismatchError, match="the innermost range is 'mine', not 'other'"):
        wrapper.range_pop("other")
    wrapper.range_pop("mine")

    assert wrapper._close_open_ranges() == []


def test_disabling_closes_what_is_open(wrapper: NVTXRangeWrapper, tool: FakeTool) -> None:
    wrapper.enable()
    wrapper._push_phase("iteration", "train", 0)
    wrapper._push_phase("forward", "train", 0)
    wrapper.disable()
    wrapper._pop_phase()

    assert tool.events == ["+iteration", "+forward", "-forward", "-iteration"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"sync_on_push": True}, ["sync", "+mine", "-mine"]),
        ({"sync_on_pop": True}, ["+mine", "sync", "-mine"]),
        ({"sync_on_push": True, "sync_on_pop": True}, ["sync", "+mine", "sync", "-mine"]),
    ],
)
def test_synchronizing(
    options: Any, expected: list[str], wrapper: NVTXRangeWrapper, tool: FakeTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lightning_timing.nvtx_ranges.synchronize", lambda: tool.events.append("sync"))
    wrapper.enable(**options)
    wrapper.range_push("mine")
    wrapper.range_pop()

    assert tool.events == expected


def test_a_process_range_needs_no_enabling(tool: FakeTool) -> None:
    end = start_process_range("capture")
    end()

    assert tool.events == ["(capture", ")capture"]


def test_without_the_package_nvtx_it_works_with_one_warning(
    wrapper: NVTXRangeWrapper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "nvtx", None)
    with pytest.warns(UserWarning, match="package nvtx is not installed") as warned:
        wrapper.enable()
    wrapper.disable()
    wrapper.enable()
    wrapper.range_push("mine")
    wrapper.range_pop("mine")

    assert len(warned) == 1
    assert wrapper.is_enabled


class DummyDomain:
    """What nvtx hands out where the tool refuses the domain."""

    def push_range(self, attributes: Any) -> None:
        raise AssertionError("a range would be lost")


@pytest.fixture
def refusing_tool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A process under an Nsight Systems that does not take what nvtx asks for."""
    library = tmp_path / "nsight-systems" / "2023.4.4" / "libToolsInjection64.so"
    library.parent.mkdir(parents=True)
    library.touch()
    monkeypatch.setenv("NVTX_INJECTION64_PATH", str(library))
    nvtx = types.SimpleNamespace(get_domain=lambda name: DummyDomain(), Domain=FakeTool)
    monkeypatch.setitem(sys.modules, "nvtx", nvtx)
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.2.17")


CLASH = (
    r"Nsight Systems 2023\.4\.4\) refuses .* nvtx 0\.2\.17.*"
    r"Install a newer Nsight Systems, or pip install nvtx==0\.2\.11"
)


@pytest.mark.usefixtures("refusing_tool")
def test_a_refused_domain_is_said_once_with_the_versions_and_the_way_out(
    wrapper: NVTXRangeWrapper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.warns(UserWarning, match=CLASH) as warned:
        wrapper.enable()
    wrapper.disable()
    wrapper.enable()
    wrapper.range_push("mine")

    assert [warning.filename for warning in warned] == [__file__]
    assert not wrapper._is_recording


@pytest.mark.usefixtures("refusing_tool")
def test_a_refused_domain_is_replaced_by_torchs_own_nvtx_where_the_build_has_it(
    wrapper: NVTXRangeWrapper, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = FakeTool()
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda.nvtx, "range_push", lambda name: tool.push(tool.prepare(name, None, 0)))
    monkeypatch.setattr(torch.cuda.nvtx, "range_pop", tool.pop)
    with pytest.warns(UserWarning, match=CLASH + ".*torch's own NVTX takes its place, in the default domain"):
        wrapper.enable()
    wrapper._push_phase("iteration", "train", 3)
    wrapper.range_push("mine")
    wrapper.range_pop()
    wrapper._pop_phase()

    assert tool.events == ["+iteration", "+mine", "-mine", "-iteration"]


@pytest.mark.skipif(not hasattr(nvtx, "get_domain"), reason="this nvtx does not say whether a tool takes its ranges")
def test_a_tool_that_does_not_exist_is_said(wrapper: NVTXRangeWrapper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVTX_INJECTION64_PATH", "/no/such/tool.so")
    with pytest.warns(UserWarning, match=r"names no file \(/no/such/tool.so\)"):
        wrapper.enable()


def test_nvtx_disable_is_said_under_a_tool_and_otherwise_respected(
    wrapper: NVTXRangeWrapper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NVTX_DISABLE", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wrapper.enable()
    wrapper.disable()
    monkeypatch.setenv("NVTX_INJECTION64_PATH", "/tool.so")
    with pytest.warns(UserWarning, match="NVTX_DISABLE=1 switches NVTX ranges off"):
        wrapper.enable()

    assert not wrapper._is_recording


@pytest.mark.parametrize("tracked", [False, True])
def test_a_compiled_region_has_no_break_and_no_range(
    wrapper: NVTXRangeWrapper, tool: FakeTool, *, tracked: bool
) -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        NVTXRangeWrapper().range_push("inside")
        y = x * 2
        wrapper.range_pop("inside")
        return y + 1

    torch.compiler.reset()
    wrapper.enable(keep_track_of_range_order=tracked)
    compiled = torch.compile(forward, backend="eager", fullgraph=True)

    assert compiled(torch.ones(1)).item() == 3
    assert tool.events == []
    assert forward(torch.ones(1)).item() == 3
    assert tool.events == ["+inside", "-inside"]
    torch.compiler.reset()


def test_ranges_arrive_at_a_real_tool(tmp_path: Path) -> None:
    code = """
        from lightning_timing import NVTXRangeWrapper
        from lightning_timing.nvtx_ranges import start_process_range

        ranges = NVTXRangeWrapper()
        ranges.enable()
        end_capture = start_process_range("capture")
        for batch_idx in (4, 5):
            ranges._push_phase("iteration", "train", batch_idx)
            ranges._push_phase("forward", "train", batch_idx)
            NVTXRangeWrapper().range_push("mine")
            ranges.range_pop("mine")
            ranges._pop_phase()
            ranges._pop_phase()
        end_capture()
        ranges.range_push("outside")
        ranges.disable()
    """
    recording = record(code, tmp_path)

    assert recording.is_balanced
    assert {seen.domain for seen in recording.ranges} == {DOMAIN}
    assert [(*seen.path, seen.kind, seen.category, seen.payload) for seen in recording.ranges] == [
        ("capture", "start", None, None),
        ("iteration", "push", "train", 4),
        ("iteration", "forward", "push", "train", 4),
        ("iteration", "forward", "mine", "push", "train", 4),
        ("iteration", "push", "train", 5),
        ("iteration", "forward", "push", "train", 5),
        ("iteration", "forward", "mine", "push", "train", 5),
        ("outside", "push", None, None),
    ]
    colors = {seen.name: seen.color for seen in recording.ranges}
    assert colors["iteration"] == "#ff9e9e9e"
    assert colors["forward"] == "#ff3182bd"
    assert colors["mine"] == colors["outside"] == "#ff17becf"


def test_each_threads_ranges_nest_on_that_thread(tmp_path: Path) -> None:
    code = """
        import threading
        from lightning_timing import NVTXRangeWrapper

        ranges = NVTXRangeWrapper(keep_track_of_range_order=True)
        start, count = threading.Barrier(8), 50

        def work(name):
            start.wait()
            for _ in range(count):
                ranges.range_push(name)
                ranges.range_push("inner")
                ranges.range_pop("inner")
                ranges.range_pop(name)

        threads = [threading.Thread(target=work, args=(f"worker {number}",)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    """
    recording = record(code, tmp_path)

    assert recording.is_balanced
    by_thread = {
        tid: [seen.path for seen in recording.ranges if seen.tid == tid] for tid in {s.tid for s in recording.ranges}
    }
    assert sorted(by_thread.values()) == [
        [(f"worker {number}",), (f"worker {number}", "inner")] * 50 for number in range(8)
    ]


def test_a_forked_child_cannot_close_what_its_parent_opened(tmp_path: Path) -> None:
    code = """
        import os
        from lightning_timing import NVTXRangeWrapper

        ranges = NVTXRangeWrapper(keep_track_of_range_order=True)
        ranges._push_phase("iteration", "train", 0)
        ranges.range_push("parents")
        if os.fork() == 0:
            ranges.range_push("childs")
            ranges.range_pop("childs")
            ranges._pop_phase()
            print([entry.name for entry in ranges._recorder.open_ranges()], flush=True)
            os._exit(0)
        os.wait()
        ranges.range_pop("parents")
        ranges._pop_phase()
    """
    recording = record(code, tmp_path)

    assert recording.output == "[]\n"
    assert recording.is_balanced
    assert recording.paths == ["iteration", "iteration/parents", "childs"]
    assert len({seen.pid for seen in recording.ranges}) == 2


def test_under_a_tool_an_exception_leaves_every_range_closed_innermost_first(tmp_path: Path) -> None:
    code = """
        import warnings
        from lightning_timing import NVTXRangeWrapper

        warnings.simplefilter("ignore")
        ranges = NVTXRangeWrapper(False, False, True)
        ranges._push_phase("iteration", "train", 0)
        ranges._push_phase("forward", "train", 0)
        try:
            ranges.range_push("mine")
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            print([entry.name for entry in ranges._close_open_ranges()])
    """
    recording = record(code, tmp_path)

    assert recording.output == "['mine']\n"
    assert recording.is_balanced
    assert recording.closing_order == ["mine", "forward", "iteration"]


def test_importing_it_loads_neither_torch_nor_nvtx(tmp_path: Path) -> None:
    code = """
        import sys
        from lightning_timing import NVTXRangeWrapper
        print("nvtx" in sys.modules, "torch" in sys.modules)
        NVTXRangeWrapper().enable()
        print("nvtx" in sys.modules, "torch" in sys.modules)
    """
    assert output_of(run_program(code, tmp_path)) == "False False\nTrue False\n"
