"""Check whether NVTX ranges would arrive in a profile taken here, and show the commands that take one.

Versions of torch, CUDA, nvtx, Nsight Systems and Nsight Compute, and whether a tool is attached. Where nsys is
installed, a small program is run under it to see. The exit code is 1 where ranges would be lost, or lack their domain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lightning_timing.profiling_check import ProfilingCheck, check_profiling
from lightning_timing.profiling_commands import commands_for

if TYPE_CHECKING:
    import argparse

_VERDICTS: Final = {True: "ranges arrive", False: "RANGES WOULD BE LOST", None: "not known whether ranges arrive"}
_BY_TORCH: Final = "RANGES WOULD ARRIVE WITHOUT THEIR DOMAIN"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`check` has no arguments."""


def run(args: argparse.Namespace) -> int:
    """Prints what was found, and the commands.

    Returns:
        0, or 1 where ranges would be lost, or lack their domain.
    """
    found = check_profiling()
    for name, value in _facts(found).items():
        print(f"{name:<15} {value}")
    print(f"\n{_BY_TORCH if found.by_torch else _VERDICTS[found.arrive]}: {found.explanation}")
    for command in commands_for(found.cuda is not None):
        print(f"\n# {command.title}\n{command.text}")
        if command.note:
            print(f"# {command.note}")
    return 1 if found.arrive is False else 0


def _facts(found: ProfilingCheck) -> dict[str, str]:
    missing = "not installed"
    return {
        "torch": found.torch or missing,
        "CUDA of torch": found.cuda or "none: a build without CUDA",
        "nvtx": found.nvtx or missing,
        "nsys": found.nsys or "not on the path",
        "ncu": found.ncu or "not on the path",
        "NVTX_DISABLE": "not set" if found.disable_variable is None else repr(found.disable_variable),
        "attached tool": found.tool or "none",
    }
