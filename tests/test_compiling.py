from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from programs import output_of, run_program

from lightning_timing.compiling import compilations_so_far, compiling_probe, is_compiling


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.mark.parametrize("probe", [is_compiling, compiling_probe()])
def test_it_is_true_only_in_what_dynamo_traces(probe: Callable[[], bool]) -> None:
    def seen(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if probe() else x - 1

    assert seen(torch.zeros(1)).item() == -1
    assert torch.compile(seen, backend="eager", fullgraph=True)(torch.zeros(1)).item() == 1
    assert probe() is False


def test_the_probe_is_torchs_own_where_torch_is_loaded() -> None:
    assert compiling_probe() is torch.compiler.is_dynamo_compiling


def test_it_works_before_torch_is_loaded_and_loads_it_not(tmp_path: Path) -> None:
    code = """
        import sys
        from lightning_timing.compiling import compilations_so_far, compiling_probe
        probe = compiling_probe()
        print(probe(), compilations_so_far(), "torch" in sys.modules)
        import torch
        seen = torch.compile(lambda x: x + 1 if probe() else x - 1, backend="eager", fullgraph=True)
        print(seen(torch.zeros(1)).item())
    """
    assert output_of(run_program(code, tmp_path)).splitlines() == ["False 0 False", "1.0"]


def test_while_another_thread_imports_torch_nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch.compiler", "torch._dynamo.utils"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))

    assert compiling_probe() is is_compiling
    assert (is_compiling(), compilations_so_far()) == (False, 0)


def test_compiling_and_recompiling_change_the_count_and_cached_calls_do_not() -> None:
    whole = torch.compile(lambda x: x * 2, backend="eager", fullgraph=True)
    arguments = (torch.zeros(2), torch.ones(2), torch.zeros(2, dtype=torch.float64), torch.zeros(2))
    assert changes(whole, *arguments) == [True, False, True, False]


def test_a_frame_that_dynamo_gives_up_changes_the_count_once() -> None:
    def hopeless(x: torch.Tensor) -> torch.Tensor:
        with held_outside:
            return x * 2

    held_outside = contextlib.ExitStack()
    assert changes(torch.compile(hopeless, backend="eager"), torch.zeros(2), torch.zeros(2)) == [True, False]


def changes(function: Callable[[torch.Tensor], torch.Tensor], *arguments: torch.Tensor) -> list[bool]:
    """Whether each call changes the count."""
    counts = [compilations_so_far()]
    for argument in arguments:
        function(argument)
        counts.append(compilations_so_far())
    return [before != after for before, after in itertools.pairwise(counts)]
