"""Makes the device known to torch, for the whole process: `from queued_device import loading`."""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any

import torch

torch.utils.rename_privateuse1_backend("queued")
torch.ops.load_library(os.environ["QUEUED_DEVICE_LIBRARY"])

kernel = torch.ops.queued.kernel
"""Enqueues a kernel on the current stream of a device, by its number, which takes so many milliseconds."""

set_capturing = torch.ops.queued.set_capturing
"""Begins or ends the capture of all streams."""


class _Queued(ModuleType):
    """What torch and its users find as `torch.queued`, as they find `torch.cuda`."""

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return True

    def device_count(self) -> int:
        return torch.accelerator.device_count()

    def synchronize(self, *device: Any) -> None:
        torch.accelerator.synchronize(*device)

    def is_current_stream_capturing(self) -> bool:
        return torch.ops.queued.is_capturing()

    def _lazy_init(self) -> None:
        """Without it torch never takes the device for one that was used."""

    def _is_in_bad_fork(self) -> bool:
        return False

    def manual_seed_all(self, seed: int) -> None:
        """It draws no random numbers."""


torch._register_device_module("queued", _Queued("queued"))
