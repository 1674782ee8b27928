"""What is heard of optimizers through torch's own hooks."""

from __future__ import annotations

from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest
import torch

from lightning_timing.callbacks.optimizer_watch import OptimizerWatch
from lightning_timing.parts import Part

if TYPE_CHECKING:
    from collections.abc import Callable


class Twice(torch.optim.SGD):
    """Evaluates its closure twice."""

    def step(self, closure: Any = None) -> Any:
        return closure and (closure(), closure())


def watched(optimizer: Any, heard: list[str], part: Part | None = None) -> OptimizerWatch:
    part = part or Part("the test", strict=True)
    return OptimizerWatch([optimizer], lambda: heard.append("step"), lambda: heard.append("closure"), part)


def twice() -> Twice:
    return Twice([torch.nn.Parameter(torch.ones(1))], lr=0.1)


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (lambda optimizer: optimizer.step(), None),
        (lambda optimizer: optimizer.step(lambda: 1), (1, 1)),
        (lambda optimizer: optimizer.step(closure=lambda: 1), (1, 1)),
    ],
    ids=["none", "positional", "keyword"],
)
def test_a_step_is_told_of_and_each_evaluation_of_its_closure(step: Callable[[Any], Any], expected: Any) -> None:
    heard: list[str] = []
    optimizer = twice()
    watch = watched(optimizer, heard)

    assert watch.hears_all
    assert step(optimizer) == expected
    assert heard == ["step", *["closure"] * len(expected or ())]
    watch.close()
    step(optimizer)
    assert heard == ["step", *["closure"] * len(expected or ())]


def test_steps_on_another_thread_are_none_of_the_loop_s() -> None:
    heard: list[str] = []
    optimizer = twice()
    watched(optimizer, heard)
    thread = Thread(target=optimizer.step)
    thread.start()
    thread.join()

    assert not heard


@pytest.mark.parametrize("optimizer", [object(), object.__new__(Twice)], ids=["of-no-class", "not-initialised"])
def test_what_has_no_hooks_is_left_alone(optimizer: Any) -> None:
    assert not watched(optimizer, []).hears_all


def _fail() -> None:
    raise RuntimeError("a mistake of ours")


def test_a_failure_of_ours_ends_no_step() -> None:
    optimizer, part = twice(), Part("the test", strict=False)
    watch = OptimizerWatch([optimizer], _fail, _fail, part)

    with pytest.warns(UserWarning, match="the test is off"):
        assert optimizer.step(lambda: 1) == (1, 1)
    watch.close()
