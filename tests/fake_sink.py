"""A sink that writes down what it is told, in place of an NVTX tool."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lightning_timing.nvtx_domain import NvtxStatus, RangeSink

if TYPE_CHECKING:
    import pytest


@dataclass
class FakeAttributes:
    """What the fake prepares for a name."""

    name: str
    category: str | None
    color: int
    payload: int | None = None


class FakeTool:
    """What would be seen by a tool. Events are `+name` for a push and `-name` for a pop, by thread in `by_thread`."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.pushed: list[FakeAttributes] = []
        self.by_thread: dict[str, list[str]] = {}
        self.bare_pops = 0
        self.prepared = 0

    @property
    def sink(self) -> RangeSink:
        return RangeSink(self.prepare, self.push, self.pop, self.start, self.end, self.set_payload)

    @property
    def status(self) -> NvtxStatus:
        """What opening the domain gives where this tool is attached."""
        return NvtxStatus("0.2.17", None, "/tool.so", self.sink, None)

    def prepare(self, name: str, category: str | None, color: int) -> FakeAttributes:
        self.prepared += 1
        return FakeAttributes(name, category, color)

    def set_payload(self, attributes: FakeAttributes, value: int) -> None:
        attributes.payload = value

    def push(self, attributes: FakeAttributes) -> None:
        self.by_thread.setdefault(threading.current_thread().name, []).append(attributes.name)
        self.events.append(f"+{attributes.name}")
        self.pushed.append(FakeAttributes(**vars(attributes)))

    def pop(self) -> None:
        stack = self.by_thread.get(threading.current_thread().name, [])
        if stack:
            self.events.append(f"-{stack.pop()}")
        else:
            self.bare_pops += 1

    def start(self, attributes: FakeAttributes) -> str:
        self.events.append(f"({attributes.name}")
        return attributes.name

    def end(self, handle: Any) -> None:
        self.events.append(f"){handle}")


def attached_tool(monkeypatch: pytest.MonkeyPatch) -> FakeTool:
    """A tool that this process runs under, for the rest of the test."""
    tool = FakeTool()
    monkeypatch.setattr("lightning_timing.nvtx_ranges.open_domain", lambda: tool.status)
    return tool
