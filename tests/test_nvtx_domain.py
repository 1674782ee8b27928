from __future__ import annotations

import importlib.metadata
import sys
from importlib.metadata import PackageNotFoundError
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from lightning_timing.nvtx_domain import DOMAIN, nsys_version_in, open_domain, refusal

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NVTX_INJECTION64_PATH", raising=False)
    monkeypatch.delenv("NVTX_DISABLE", raising=False)


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A tool that is attached."""
    library = tmp_path / "tool.so"
    library.touch()
    monkeypatch.setenv("NVTX_INJECTION64_PATH", str(library))
    return str(library)


class OldNvtx:
    """The package before 0.2.12: prepared ranges are `annotate` objects, and domains cannot push."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        package = self

        class Annotate:
            def __init__(self, message: str, color: int, domain: str, category: str | None) -> None:
                self.attributes = SimpleNamespace(message=SimpleNamespace(string=message), color=color, payload=None)
                self.of = (domain, category)

            def __enter__(self) -> None:
                package.calls.append(("push", self.attributes.message.string, *self.of, self.attributes.payload))

        self.annotate = Annotate

    def pop_range(self, domain: str) -> None:
        self.calls.append(("pop", domain))

    def start_range(self, message: str, color: int, domain: str) -> str:
        self.calls.append(("start", message, domain))
        return "handle"

    def end_range(self, handle: str) -> None:
        self.calls.append(("end", handle))


@pytest.fixture
def old_nvtx(monkeypatch: pytest.MonkeyPatch) -> OldNvtx:
    package = OldNvtx()
    monkeypatch.setitem(sys.modules, "nvtx", package)
    return package


def test_an_old_nvtx_writes_the_same_ranges(old_nvtx: OldNvtx, tool: str) -> None:
    status = open_domain()
    sink = status.sink
    assert sink is not None
    assert sink.set_payload is not None
    assert (status.tool, status.problem) == (tool, None)
    prepared = sink.prepare("forward", "train", 0xFF3182BD)
    sink.set_payload(prepared, 7)
    sink.push(prepared)
    sink.pop()
    sink.end(sink.start(prepared))

    assert old_nvtx.calls == [
        ("push", "forward", DOMAIN, "train", 7),
        ("pop", DOMAIN),
        ("start", "forward", DOMAIN),
        ("end", "handle"),
    ]


@pytest.mark.usefixtures("old_nvtx")
def test_an_old_nvtx_does_not_say_whether_a_tool_listens_but_the_environment_does() -> None:
    status = open_domain()

    assert (status.sink, status.tool, status.problem) == (None, None, None)


def test_without_nvtx_torch_stands_in_under_a_tool(monkeypatch: pytest.MonkeyPatch, tool: str) -> None:
    calls: list[tuple[Any, ...]] = []
    monkeypatch.setitem(sys.modules, "nvtx", None)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda.nvtx, "range_start", lambda name: calls.append(("start", name)) or 5)
    monkeypatch.setattr(torch.cuda.nvtx, "range_end", lambda handle: calls.append(("end", handle)))
    status = open_domain()
    sink = status.sink
    assert sink is not None
    sink.end(sink.start(sink.prepare("capture", None, 0)))

    assert calls == [("start", "capture"), ("end", 5)]
    assert (sink.set_payload, status.nvtx_version, status.tool) == (None, None, tool)
    assert "not installed" in (status.problem or "")
    assert "torch's own NVTX" in (status.problem or "")


@pytest.mark.usefixtures("tool")
@pytest.mark.parametrize("without_torch", [True, False])
def test_without_either_nothing_is_recorded(monkeypatch: pytest.MonkeyPatch, *, without_torch: bool) -> None:
    monkeypatch.setitem(sys.modules, "nvtx", None)
    monkeypatch.setattr(torch.version, "cuda", None)
    if without_torch:
        monkeypatch.setitem(sys.modules, "torch", None)
    status = open_domain()

    assert status.sink is None
    assert status.problem == "the package nvtx is not installed: NVTX ranges are off (pip install nvtx)"


@pytest.mark.usefixtures("tool")
def test_torch_is_left_alone_where_that_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nvtx", None)
    monkeypatch.setattr(torch.version, "cuda", "13.0")

    assert open_domain(torch_instead=False).sink is None


def test_a_copy_of_nvtx_without_its_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)

    assert open_domain().nvtx_version is None


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVIDIA Nsight Systems version 2022.4.2.1-df9881f", "2022.4.2.1"),
        ("NVIDIA Nsight Systems version 2026.1.1.204-261137109867v0", "2026.1.1.204"),
        ("/opt/nvidia/nsight-systems/2023.4.4/target-linux-x64/libToolsInjection64.so", "2023.4.4"),
        ("/usr/lib/x86_64-linux-gnu/nsight-systems/target-linux-x64/libToolsInjection64.so", None),
        ("", None),
    ],
)
def test_the_version_of_nsys_in_a_text(text: str, version: str | None) -> None:
    assert nsys_version_in(text) == version


def test_a_refusal_names_what_is_known() -> None:
    assert "Nsight Systems 2022.4.2.1) refuses the NVTX domain of the package nvtx 0.2.17" in refusal(
        "0.2.17", "2022.4.2.1"
    )
    assert "Nsight Systems 2023.4.4 or older) refuses" in refusal("0.2.17", None)
