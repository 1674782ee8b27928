"""All three callbacks at once, on a scripted clock, an NVTX tool and a CUDA profiler that write down what they hear."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fake_sink import FakeTool
from known_cost import FakeClock
from ledger_records import lightning, rows, stopwatch, summary
from tiny_training import fit_tiny, tiny_loader, tiny_module

from lightning_timing import CUDAProfilerCallback, NVTXCallback, NVTXRangeWrapper, Stopwatch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest


@dataclass
class FakeRuntime:
    """CUDA's profiler; `calls` says what it was asked for, in order."""

    calls: list[str] = field(default_factory=list)

    def synchronize(self) -> None:
        self.calls.append("synchronize")

    def profiler_start(self) -> None:
        self.calls.append("start")

    def profiler_stop(self) -> None:
        self.calls.append("stop")


class Suite:
    """The callbacks, and what they reach.

    Attributes:
        clock: The Stopwatch's clock.
        tool: The NVTX tool that is attached.
        runtime: CUDA's profiler.
        callbacks: One of each of the three.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
        self.clock = FakeClock()
        self.tool = FakeTool()
        self.runtime = FakeRuntime()
        self.callbacks: list[Any] = [
            stopwatch(self.clock, **options),
            NVTXCallback(keep_track_of_range_order=options.get("on_misuse") == "raise"),
            CUDAProfilerCallback(runtime=self.runtime),
        ]
        monkeypatch.setattr("lightning_timing.nvtx_ranges.open_domain", lambda: self.tool.status)

    def check_over(self, windows: int) -> None:
        """The singletons are off, every range is closed, and as many windows as given were stopped once each.

        All of it since this was last called.
        """
        assert not Stopwatch().is_enabled
        assert not NVTXRangeWrapper().is_enabled
        opened = [event[1:] for event in self.tool.events if event[0] in "+("]
        closed = [event[1:] for event in self.tool.events if event[0] in "-)"]
        assert sorted(opened) == sorted(closed)
        assert self.tool.bare_pops == 0
        assert self.runtime.calls == ["synchronize", "start", "synchronize", "stop"] * windows
        assert opened.count("capture") == windows
        self.tool.events.clear()
        self.runtime.calls.clear()

    def check_next_run_is_clean(self, root: Path) -> None:
        """The same callbacks measure a new run as if there had been none before."""
        pl = lightning()
        fit_tiny(pl, root, tiny_module(pl), tiny_loader(2), callbacks=self.callbacks)
        assert [row["batch_idx"] for row in rows(root)] == [0, 1]
        assert summary(root)["status"] == "completed"
        assert summary(root)["stages"]["train"]["iterations"] == 2
        self.check_over(windows=1)


@contextmanager
def our_warnings() -> Iterator[list[str]]:
    """The warnings of this package, each time that one is given."""
    said: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield said
    said += [str(each.message) for each in caught if str(each.message).startswith("lightning_timing: ")]
