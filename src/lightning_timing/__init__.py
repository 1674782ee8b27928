"""Where does my PyTorch Lightning iteration's time go, and did my change help?

Importing this imports neither torch nor Lightning; the callbacks do, when one of their names is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from lightning_timing.errors import BadInputError, MisuseError, PresetError, RangeMismatchError, TimingError
from lightning_timing.live_report import live_report
from lightning_timing.nvtx_ranges import NVTXRangeWrapper
from lightning_timing.span import span
from lightning_timing.stopwatch import Stopwatch

if TYPE_CHECKING:
    from lightning_timing.callbacks.cuda_profiler import CUDAProfilerCallback
    from lightning_timing.callbacks.factory import build_callbacks
    from lightning_timing.callbacks.nvtx import NVTXCallback
    from lightning_timing.callbacks.stopwatch import StopwatchCallback

__all__ = [
    "BadInputError",
    "CUDAProfilerCallback",
    "MisuseError",
    "NVTXCallback",
    "NVTXRangeWrapper",
    "PresetError",
    "RangeMismatchError",
    "Stopwatch",
    "StopwatchCallback",
    "TimingError",
    "build_callbacks",
    "span",
]

_IMPORTED_ON_USE: Final = {
    "CUDAProfilerCallback": "lightning_timing.callbacks.cuda_profiler",
    "NVTXCallback": "lightning_timing.callbacks.nvtx",
    "StopwatchCallback": "lightning_timing.callbacks.stopwatch",
    "build_callbacks": "lightning_timing.callbacks.factory",
}

# Rendering lies in a layer above the Stopwatch, so it is handed down from here.
Stopwatch._render = staticmethod(live_report)


def __getattr__(name: str) -> Any:
    module = _IMPORTED_ON_USE.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
