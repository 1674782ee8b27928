"""How a recorder counts: its warm-up, and what it does about misuse."""

from __future__ import annotations

from typing import Literal

from lightning_timing.errors import TimingError
from lightning_timing.phases import TRAIN
from lightning_timing.validation import check_whole_number


class RecorderSettings:
    """How a recorder counts and how it takes misuse.

    Args:
        num_warmup_iters: First iterations of training that are not counted. Of any other stage only the first one is
            not counted, unless this is 0.
        on_misuse: `raise` a MisuseError, or `warn` once for each name and drop the sample.

    Raises:
        TimingError: One of them is out of its range.
    """

    __slots__ = ("num_warmup_iters", "on_misuse")

    def __init__(self, num_warmup_iters: int = 10, on_misuse: Literal["raise", "warn"] = "raise") -> None:
        check_whole_number("num_warmup_iters", num_warmup_iters, least=0)
        if on_misuse not in ("raise", "warn"):
            raise TimingError(f"on_misuse takes raise or warn, got {on_misuse!r}")
        self.num_warmup_iters = num_warmup_iters
        self.on_misuse: Literal["raise", "warn"] = on_misuse

    def warmup_of(self, stage: str) -> int:
        """Returns how many iterations of a stage are not counted.

        Iterations that compile before any was counted are left out in addition.
        """
        return self.num_warmup_iters if stage == TRAIN else min(self.num_warmup_iters, 1)
