"""The interface to the CUDA profiler's start and stop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch


class CudaRuntime(Protocol):
    """The calls to CUDA around a capture window."""

    def synchronize(self) -> None:
        """Waits until the device has done all that was enqueued."""

    def profiler_start(self) -> None:
        """Calls cudaProfilerStart."""

    def profiler_stop(self) -> None:
        """Calls cudaProfilerStop."""


class TorchCudaRuntime:
    """CUDA, called through torch.

    Args:
        device: The device to synchronize.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def synchronize(self) -> None:
        """Waits until the device has done all that was enqueued."""
        import torch

        torch.cuda.synchronize(self._device)

    def profiler_start(self) -> None:
        """Calls cudaProfilerStart."""
        import torch

        torch.cuda.profiler.start()  # type: ignore[no-untyped-call]  # torch does not annotate it

    def profiler_stop(self) -> None:
        """Calls cudaProfilerStop."""
        import torch

        torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]  # torch does not annotate it


def cuda_runtime(device: torch.device) -> CudaRuntime | None:
    """CUDA's runtime for a device; None where the device is no CUDA device."""
    return TorchCudaRuntime(device) if device.type == "cuda" else None
