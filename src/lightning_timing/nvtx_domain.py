"""Where NVTX ranges go in this process, and whether they would arrive.

The package `nvtx` answers differently by version. From 0.2.12 on it asks the attached tool whether it takes the domain,
and hands out a dummy where no tool is attached, or where the tool is an Nsight Systems too old for the question: then
the profile is silently empty. Before that its domains have no `push_range`, and `annotate` objects are what can be
prepared.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from lightning_timing.versions import version_of

DOMAIN: Final = "lightning_timing"
"""The NVTX domain of every range of this package."""

LAST_REFUSING_NSYS: Final = "2023.4.4"
"""The last Nsight Systems that is known to refuse what `nvtx` asks for."""

BY_TORCH: Final = (
    "Until then torch's own NVTX takes its place, in the default domain, without category, colour and payload"
)
"""What happens where `nvtx` fails under a tool, and torch was built with CUDA."""


class RangeSink(NamedTuple):
    """How ranges are written here. Every function but `prepare` is called on the hot path.

    Attributes:
        prepare: Makes what `push` and `start` take, from a name, a category (or None) and a colour (0xAARRGGBB).
        push: Opens a range on the calling thread.
        pop: Closes the calling thread's innermost range.
        start: Opens a range that may close on any thread and cross others. Returns what `end` takes.
        end: Closes it.
        set_payload: Gives what was prepared an integer payload; None where ranges cannot have one.
    """

    prepare: Callable[[str, str | None, int], Any]
    push: Callable[[Any], object]
    pop: Callable[[], object]
    start: Callable[[Any], Any]
    end: Callable[[Any], object]
    set_payload: Callable[[Any, int], None] | None


class NvtxStatus(NamedTuple):
    """What was found when the domain was opened.

    Attributes:
        nvtx_version: The version of the package `nvtx`; None where it cannot be imported.
        disable_variable: The value of NVTX_DISABLE, which switches the package off unless empty; None if unset.
        tool: The injection library of the attached tool; None where none is attached.
        sink: Where ranges go; None where nothing would take them.
        problem: Why ranges are lost or lack something, and what to do; None where all is well. Without a tool only that
            `nvtx` cannot be imported is one.
        torch_may_help: Whether torch's own NVTX takes the ranges under a tool, if it has any.
    """

    nvtx_version: str | None
    disable_variable: str | None
    tool: str | None
    sink: RangeSink | None
    problem: str | None
    torch_may_help: bool = False


def attached_tool() -> str | None:
    """The injection library of the tool this process runs under (nsys, ncu or another); None where there is none."""
    return os.environ.get("NVTX_INJECTION64_PATH") or None


def open_domain(torch_instead: bool = True) -> NvtxStatus:
    """Finds out where ranges go in this process. Imports `nvtx`.

    Args:
        torch_instead: Whether to use torch's own NVTX, if it has any, where `nvtx` fails under a tool. Imports torch.
    """
    status = NvtxStatus(None, os.environ.get("NVTX_DISABLE"), attached_tool(), sink=None, problem=None)
    try:
        import nvtx  # type: ignore[import-untyped]  # it ships no types
    except ImportError:
        advice = "the package nvtx is not installed: NVTX ranges are off (pip install nvtx)"
        return _without_nvtx(status, advice, torch_instead)
    status = status._replace(nvtx_version=version_of("nvtx"))
    disabled, tool = status.disable_variable, status.tool
    if disabled:
        problem = f"NVTX_DISABLE={disabled} switches NVTX ranges off in Python, though a tool is attached: unset it"
        return status._replace(problem=problem if tool else None)
    domain = nvtx.get_domain(DOMAIN) if hasattr(nvtx, "get_domain") else None
    if not hasattr(domain, "push_range"):
        return status._replace(sink=_annotate_sink(nvtx) if tool else None)
    if isinstance(domain, nvtx.Domain):
        return status._replace(sink=_domain_sink(domain))
    if tool is None:
        return status
    if not os.path.exists(tool):
        problem = f"NVTX_INJECTION64_PATH names no file ({tool}), so no tool is attached: correct or unset it"
        return status._replace(problem=problem)
    return _without_nvtx(status, refusal(status.nvtx_version, nsys_version_in(tool)), torch_instead)


def refusal(nvtx_version: str | None, nsys_version: str | None) -> str:
    """Says why a tool gets no ranges from an `nvtx` that asks for more than the tool has, and what to do.

    Args:
        nvtx_version: The version of the package `nvtx`.
        nsys_version: The version of Nsight Systems, or None where it is not known.
    """
    known = nsys_version or f"{LAST_REFUSING_NSYS} or older"
    return (
        f"the tool (Nsight Systems {known}) refuses the NVTX domain of the package nvtx {nvtx_version}, by which no "
        f"range would arrive: Nsight Systems up to {LAST_REFUSING_NSYS} does not work with nvtx 0.2.12 or newer. "
        "Install a newer Nsight Systems, or pip install nvtx==0.2.11"
    )


def nsys_version_in(text: str) -> str | None:
    """The version of Nsight Systems in a path or in the output of `nsys --version`; None where there is none."""
    found = re.search(r"\b20\d\d\.\d+(\.\d+)*", text)
    return found and found.group()


def _without_nvtx(status: NvtxStatus, problem: str, torch_instead: bool) -> NvtxStatus:
    """The status where `nvtx` is of no use: under a tool, torch's own NVTX takes its place if the build has it."""
    sink = _torch_sink() if status.tool and torch_instead else None
    if sink is not None:
        problem += f". {BY_TORCH}"
    return status._replace(sink=sink, problem=problem, torch_may_help=True)


def _domain_sink(domain: Any) -> RangeSink:
    def prepare(name: str, category: str | None, color: int) -> Any:
        return domain.get_event_attributes(message=name, color=color, category=category)

    def set_payload(attributes: Any, value: int) -> None:
        attributes.payload = value

    return RangeSink(prepare, domain.push_range, domain.pop_range, domain.start_range, domain.end_range, set_payload)


def _annotate_sink(nvtx: Any) -> RangeSink:
    """Returns the sink for nvtx before 0.2.12, made only of functions that later versions have as well."""

    def prepare(name: str, category: str | None, color: int) -> Any:
        return nvtx.annotate(name, color=color, domain=DOMAIN, category=category)

    def pop() -> None:
        nvtx.pop_range(domain=DOMAIN)

    def start(annotation: Any) -> Any:
        attributes = annotation.attributes
        return nvtx.start_range(attributes.message.string, color=attributes.color, domain=DOMAIN)

    def set_payload(annotation: Any, value: int) -> None:
        annotation.attributes.payload = value

    return RangeSink(prepare, nvtx.annotate.__enter__, pop, start, nvtx.end_range, set_payload)


def _torch_sink() -> RangeSink | None:
    """Returns a sink of torch's own NVTX, without domains and categories; None where torch was built without NVTX."""
    try:
        import torch
    except ImportError:
        return None
    if torch.version.cuda is None:
        return None
    nvtx = torch.cuda.nvtx

    def prepare(name: str, category: str | None, color: int) -> str:
        return name

    return RangeSink(prepare, nvtx.range_push, nvtx.range_pop, nvtx.range_start, nvtx.range_end, None)
