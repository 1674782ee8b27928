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
    return torch_compiler is not None and torch_compiler.is_dynamo_compiling()


def compiling_probe() -> Callable[[], bool]:
    """Returns the cheapest function that does what `is_compiling` does: torch's own if torch is loaded by now.

    Ask once, when something is enabled, and keep the answer: torch's own costs a fifth of `is_compiling`.
    """
    torch_compiler = sys.modules.get("torch.compiler")
    return is_compiling if torch_compiler is None else torch_compiler.is_dynamo_compiling


def compilations_so_far() -> int:
    """Returns a number that differs between two calls if, and only if, something was compiled between them.

    An iteration that compiled, or for which Dynamo tried to and gave up, does not take the time that it will take in
    training. 0 where torch.compile was never used.
    """
    dynamo_utils = sys.modules.get("torch._dynamo.utils")
    if dynamo_utils is None:
        return 0
    counters: Mapping[str, Mapping[str, int]] = dynamo_utils.counters
    # Frames include those given up, but not those compiled with `fullgraph=True`; graphs include these.
    return counters["frames"]["total"] + counters["stats"]["unique_graphs"]
