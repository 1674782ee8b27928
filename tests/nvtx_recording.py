"""What a program tells an NVTX tool, read back from the recorder in `nvtx_tools`, a library made for tests."""

from __future__ import annotations

import functools
import importlib.metadata
import json
import os
import shutil
import subprocess
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from programs import output_of, run_program

TOOLS = Path(__file__).parent / "nvtx_tools"
DOMAIN = "lightning_timing"

_built = tempfile.TemporaryDirectory(prefix="nvtx_tools")


@dataclass(frozen=True)
class RecordedRange:
    """A range that a tool saw.

    Attributes:
        path: The names of the push/pop ranges it lies in, outermost first, and its own.
        kind: `push` or `start`.
        end: When it closed, in nanoseconds; None if it never did.
    """

    path: tuple[str, ...]
    kind: str
    domain: str | None
    category: str | None
    payload: int | None
    color: str | None
    pid: int
    tid: int
    start: int
    end: int | None = None

    @property
    def name(self) -> str:
        return self.path[-1]


@dataclass
class Recording:
    """What a tool saw of a program.

    Attributes:
        ranges: The ranges, in the order in which they opened.
        unmatched: Pops and ends without a push or a start.
        output: What the program printed.
    """

    ranges: list[RecordedRange] = field(default_factory=list)
    unmatched: list[dict[str, Any]] = field(default_factory=list)
    output: str = ""

    @property
    def is_balanced(self) -> bool:
        return not self.unmatched and all(recorded.end is not None for recorded in self.ranges)

    @property
    def closing_order(self) -> list[str]:
        """The names of the ranges in the order in which they closed."""
        closed = [recorded for recorded in self.ranges if recorded.end is not None]
        return [recorded.name for recorded in sorted(closed, key=lambda recorded: recorded.end or 0)]

    def during(self, name: str) -> Recording:
        """The part that began while the one start/end range of this name was open, without that range."""
        (around,) = [recorded for recorded in self.ranges if recorded.kind == "start" and recorded.name == name]
        end = float("inf") if around.end is None else around.end
        ranges = [r for r in self.ranges if around.start <= r.start < end and r is not around]
        return Recording(ranges, [event for event in self.unmatched if around.start <= event["t"] < end], self.output)

    @property
    def paths(self) -> list[str]:
        return ["/".join(recorded.path) for recorded in self.ranges]


def built(source: str, *options: str) -> Path:
    """Compiles one of the C files, once in a process. Skips the test where that cannot be done, but not in CI."""
    return _built_once(source, options)


def record(code: str, folder: Path, *arguments: str, **environment: str) -> Recording:
    """Runs a program with the recorder attached.

    Args:
        code: The program.
        folder: Its working directory.
        *arguments: Its command line.
        **environment: Variables that it gets beside this process's own.
    """
    file = folder / "nvtx.jsonl"
    program = run_program(code, folder, *arguments, **attached(file), **environment)
    return replace(read_recording(file), output=output_of(program))


def attached(file: Path) -> dict[str, str]:
    """The variables that attach the recorder to a program, writing to `file`."""
    return {"NVTX_INJECTION64_PATH": str(built_recorder()), "NVTX_RECORDER_FILE": str(file)}


def built_recorder() -> Path:
    """The recorder's library."""
    return built("nvtx_recorder.c", "-fvisibility=hidden", "-pthread")


def read_recording(file: Path) -> Recording:
    """Pairs the events in a recorder's file."""
    recording = Recording()
    stacks: dict[tuple[int, int, str | None], list[int]] = defaultdict(list)
    started: dict[tuple[int, int], int] = {}
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines() if file.exists() else []
    for event in map(json.loads, lines):
        stack = stacks[event["pid"], event["tid"], event.get("domain")]
        if event["ev"] == "push":
            stack.append(len(recording.ranges))
            recording.ranges.append(_opened(event, [recording.ranges[index].name for index in stack[:-1]]))
        elif event["ev"] == "start":
            started[event["pid"], event["range"]] = len(recording.ranges)
            recording.ranges.append(_opened(event, []))
        elif event["ev"] in ("pop", "end"):
            index = _index_of_closed(event, stack, started)
            if index is None:
                recording.unmatched.append(event)
            else:
                recording.ranges[index] = replace(recording.ranges[index], end=event["t"])
    return recording


def _opened(event: dict[str, Any], outside: list[str]) -> RecordedRange:
    return RecordedRange(
        path=(*outside, event["msg"]),
        kind=event["ev"],
        domain=event["domain"],
        category=event.get("category_name"),
        payload=event.get("payload"),
        color=event.get("color"),
        pid=event["pid"],
        tid=event["tid"],
        start=event["t"],
    )


def _index_of_closed(event: dict[str, Any], stack: list[int], started: dict[tuple[int, int], int]) -> int | None:
    if event["ev"] == "end":
        return started.pop((event["pid"], event["range"]), None)
    return stack.pop() if stack else None


@functools.cache
def _built_once(source: str, options: tuple[str, ...]) -> Path:
    headers = _nvtx_headers()
    if shutil.which("gcc") is None or headers is None:
        assert "CI" not in os.environ, "gcc and the NVTX headers (nvidia-nvtx) must be there in CI"
        # A developer may do without a compiler; CI, which installs one, may not.
        pytest.skip("needs gcc and the NVTX headers (pip install nvidia-nvtx)")
    library = Path(_built.name, source).with_suffix(".so")
    command = ["gcc", "-O2", "-Wall", "-shared", "-fPIC", *options, f"-I{headers}", TOOLS / source, "-o", library]
    subprocess.run([*command, "-ldl"], check=True)
    return library


def _nvtx_headers() -> Path | None:
    """The folder that holds `nvtx3/`, in the wheel nvidia-nvtx."""
    try:
        files = importlib.metadata.files("nvidia-nvtx") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    return next((Path(str(f.locate())).parents[1] for f in files if f.match("nvtx3/nvToolsExtPayload.h")), None)
