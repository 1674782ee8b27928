"""Whether NVTX ranges would arrive in a profile taken here, and the versions that this depends on."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lightning_timing.nvtx_domain import BY_TORCH, LAST_REFUSING_NSYS, nsys_version_in, open_domain, refusal
from lightning_timing.versions import version_of

if TYPE_CHECKING:
    from lightning_timing.nvtx_domain import NvtxStatus

_PROBE: Final = """
import sys
from lightning_timing.nvtx_domain import open_domain
status = open_domain(torch_instead=False)
state = "no tool" if status.tool is None else "refused" if status.sink is None else "open"
open(sys.argv[1], "w").write(state)
"""
"""A program that writes to a file whether it can open the NVTX domain. Standard output is left to nsys."""

_PROBE_TIMEOUT_S: Final = 60


@dataclass(frozen=True)
class ProfilingCheck:
    """What `check_profiling` found.

    Attributes:
        torch: Version of torch; None where it is not installed.
        cuda: Version of CUDA that torch was built for; None for a build without CUDA.
        nvtx: Version of the package `nvtx`; None where it cannot be imported.
        nsys: Version of Nsight Systems, with where it is; None where it is not on the path.
        ncu: Where Nsight Compute is; None where it is not on the path.
        disable_variable: The value of NVTX_DISABLE; None if unset.
        tool: The tool that is attached to this very process; None where none is.
        arrive: Whether ranges would arrive in their domain; None where it could not be tried.
        by_torch: Whether they would arrive without it all the same, through torch's own NVTX.
        explanation: How that is known, or why they would not and what to do.
    """

    torch: str | None
    cuda: str | None
    nvtx: str | None
    nsys: str | None
    ncu: str | None
    disable_variable: str | None
    tool: str | None
    arrive: bool | None
    by_torch: bool
    explanation: str


def check_profiling() -> ProfilingCheck:
    """Looks at this environment. Runs nsys for a second where it is installed; imports no torch."""
    status = open_domain(torch_instead=False)
    nsys = shutil.which("nsys")
    nsys_version = _nsys_version(nsys)
    cuda = _cuda_of_torch()
    arrive, explanation, torch_may_help = _would_arrive(status, nsys, nsys_version)
    by_torch = torch_may_help and cuda is not None
    if by_torch:
        explanation += f". {BY_TORCH}, which `lightning-timing nsys` does not read"
    return ProfilingCheck(
        torch=version_of("torch"),
        cuda=cuda,
        nvtx=status.nvtx_version,
        nsys=f"{nsys_version or 'unknown version'} ({nsys})" if nsys else None,
        ncu=shutil.which("ncu"),
        disable_variable=status.disable_variable,
        tool=status.tool,
        arrive=arrive,
        by_torch=by_torch,
        explanation=explanation,
    )


def _would_arrive(status: NvtxStatus, nsys: str | None, nsys_version: str | None) -> tuple[bool | None, str, bool]:
    """Returns `arrive` and `explanation` of the check, and whether torch's own NVTX would help, if it has any."""
    if status.problem is not None:
        return False, status.problem, status.torch_may_help and (status.tool or nsys) is not None
    if status.disable_variable:
        return False, f"NVTX_DISABLE={status.disable_variable} switches NVTX ranges off in Python: unset it", False
    if status.tool is not None:
        return True, "a domain was opened under the tool that is attached", False
    if nsys is None:
        unknown = f"nsys is not on the path, so it was not tried. It must be newer than {LAST_REFUSING_NSYS}"
        return None, unknown, False
    state = _state_under_nsys(nsys)
    if state == "open":
        return True, "a domain was opened in a process under nsys", False
    if state == "refused":
        return False, refusal(status.nvtx_version, nsys_version), True
    return None, "nsys could not run a program here, so it was not tried", False


def _state_under_nsys(nsys: str) -> str:
    """Tries the domain in a process under nsys: `open`, `refused`, or another text where nsys does not work here."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "answer")
        command = [nsys, "profile", "--trace=nvtx", "--sample=none", "--cpuctxsw=none"]
        # A capture that nothing triggers: the tool is attached all the same, and no report has to be written.
        command += ["--capture-range=nvtx", "--nvtx-capture=none@none", f"--output={folder}/report"]
        command += [sys.executable, "-c", _PROBE, str(answer)]
        if _run(command) is None or not answer.exists():
            return ""
        return answer.read_text()


def _nsys_version(nsys: str | None) -> str | None:
    output = _run([nsys, "--version"]) if nsys else None
    return output and nsys_version_in(output)


def _run(command: list[str]) -> str | None:
    """Returns what a command prints; None where it cannot be run, or takes too long."""
    try:
        finished = subprocess.run(command, capture_output=True, text=True, timeout=_PROBE_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return finished.stdout


def _cuda_of_torch() -> str | None:
    """The value of `cuda` in torch's version file, which is read and not imported, since torch takes seconds."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    try:
        text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    found = re.search(r"""^cuda(?: *:[^=]*)? *= *['"]([^'"]+)""", text, re.MULTILINE)
    return found and found[1]
