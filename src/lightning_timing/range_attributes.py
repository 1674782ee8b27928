"""What ranges look like in the profiler: their colours, and what the sink prepares once for each name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from lightning_timing.names import why_refused
from lightning_timing.phases import (
    BACKWARD,
    BARRIER,
    BATCH_TRANSFER,
    CALLBACKS,
    CHECKPOINT,
    DATA_WAIT,
    FIRST_DATA_WAIT,
    FORWARD,
    GRAD_CLIP,
    ITERATION,
    LOGGING,
    LR_SCHEDULER,
    OPTIMIZER_STEP,
    ZERO_GRAD,
)

if TYPE_CHECKING:
    from lightning_timing.nvtx_domain import RangeSink

PHASE_COLORS: Final = {
    ITERATION: 0xFF9E9E9E,
    DATA_WAIT: 0xFFE6550D,
    FIRST_DATA_WAIT: 0xFFA63603,
    BATCH_TRANSFER: 0xFFFDAE6B,
    FORWARD: 0xFF3182BD,
    ZERO_GRAD: 0xFFBCBDDC,
    BACKWARD: 0xFF31A354,
    GRAD_CLIP: 0xFF8C6D31,
    OPTIMIZER_STEP: 0xFF756BB1,
    LR_SCHEDULER: 0xFF9E9AC8,
    CALLBACKS: 0xFFD6616B,
    LOGGING: 0xFFE7BA52,
    CHECKPOINT: 0xFF843C39,
    BARRIER: 0xFF7B4173,
}
"""A colour for each phase, as 0xAARRGGBB. `callbacks/<name>` has that of `callbacks`."""

USER_COLOR: Final = 0xFF17BECF
"""The colour of every other range."""

MAX_NAMES: Final = 4096
"""Names that are registered with the tool for one stage. A tool never frees them, so more would be a leak."""

OVERFLOW_NAME: Final = f"(more than {MAX_NAMES} names)"
REFUSED_NAME: Final = "(refused name)"


class PreparedRanges(dict[str, Any]):
    """What the sink takes to open the ranges of one stage, by name. Each is made when its name is first looked up.

    Args:
        sink: Prepares them.
        category: The stage; None outside of any.
        on_bad_name: Called with the reason why a name is not used, and the name used instead. It may raise.

    Attributes:
        set_payload: Sets the payload of one of them, the batch index; None outside of a stage, or where there are none.
    """

    def __init__(self, sink: RangeSink, category: str | None, on_bad_name: Callable[[str, str], None]) -> None:
        super().__init__()
        self.set_payload = None if category is None else sink.set_payload
        self._sink = sink
        self._category = category
        self._on_bad_name = on_bad_name

    def __missing__(self, name: str) -> Any:
        return self._prepare(self._usable(name))

    def _usable(self, name: str) -> str:
        reason = why_refused(name)
        if reason is None and "\0" in name:
            reason = "NVTX would cut a name at a NUL character"
        if reason is not None:
            self._on_bad_name(reason, REFUSED_NAME)
            return REFUSED_NAME
        if len(self) >= MAX_NAMES:
            self._on_bad_name(f"there are more than {MAX_NAMES} names", OVERFLOW_NAME)
            return OVERFLOW_NAME
        return name

    def _prepare(self, name: str) -> Any:
        prepared = self.get(name)
        if prepared is None:
            color = PHASE_COLORS.get(name.partition("/")[0], USER_COLOR)
            prepared = self[name] = self._sink.prepare(name, self._category, color)
        return prepared
