"""What torch.compile is doing, asked at a cost that a hot path can bear, and without importing torch.

Dynamo traces Python code instead of running it. It takes `torch.compiler.is_dynamo_compiling` for a constant, so code
behind it leaves no trace in the graph and no break: clocks, locks and NVTX stay out of compiled regions that way.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping


def is_compiling() -> bool:
    """Says whether this code is being traced by Dynamo. Works whenever torch is imported, before or after this call."""
    torch_compiler = sys.modules.get("torch.compiler")
    try:
        return torch_compiler is not None and torch_compiler.is_dynamo_compiling()
    except AttributeError:  # another thread is importing torch
        return False


def compiling_probe() -> Callable[[], bool]:
    """Returns the cheapest function that does what `is_compiling` does: torch's own if torch is loaded by now.

    Ask once, when something is enabled, and keep the answer: torch's own costs a fifth of `is_compiling`.
    """
    # The module may be there without it, while another thread imports torch.
    return getattr(sys.modules.get("torch.compiler"), "is_dynamo_compiling", is_compiling)


def compilations_so_far() -> int:
    """Returns a number that differs between two calls if, and only if, something was compiled between them.

    An iteration that compiled, or for which Dynamo tried to and gave up, does not take the time that it will take in
    training. 0 where torch.compile was never used.
    """
    dynamo_utils = sys.modules.get("torch._dynamo.utils")
    counters: Mapping[str, Mapping[str, int]] | None = getattr(dynamo_utils, "counters", None)
    if counters is None:  # it is not loaded, or not yet: another thread imports it
        return 0
    # Frames include those given up, but not those compiled with `fullgraph=True`; graphs include these.
    return counters["frames"]["total"] + counters["stats"]["unique_graphs"]
