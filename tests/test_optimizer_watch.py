"""What is heard of optimizers through torch's own hooks."""

from __future__ import annotations

from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest
import torch
from copies import copied_both_ways

from lightning_timing.callbacks.optimizer_watch import OptimizerWatch
from lightning_timing.failsafe import Failsafe

if TYPE_CHECKING:
    from collections.abc import Callable


class Twice(torch.optim.SGD):
    """Evaluates its closure twice."""

    def step(self, closure: Any = None) -> Any:
        return closure and (closure(), closure())


def watched(optimizer: Any, heard: list[str], failsafe: Failsafe | None = None) -> OptimizerWatch:
    failsafe = failsafe or Failsafe("the test", strict=True)
    return OptimizerWatch([optimizer], lambda: heard.append("step"), lambda: heard.append("closure"), failsafe)


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
    optimizer, failsafe = twice(), Failsafe("the test", strict=False)
    watch = OptimizerWatch([optimizer], _fail, _fail, failsafe)

    with pytest.warns(UserWarning, match="the test is off"):
        assert optimizer.step(lambda: 1) == (1, 1)
    watch.close()


class OfAModel(torch.optim.SGD):
    """Its step takes what is callable, and no closure."""

    def step(self, model: Any = None) -> Any:  # type: ignore[override]  # as users do
        return None if model is None else list(model.parameters())


class CountedClosure:
    """A closure with attributes of its own."""

    n = 3

    def __call__(self) -> int:
        return self.n


class ReadsItsClosure(torch.optim.SGD):
    def step(self, closure: Any = None) -> Any:
        return None if closure is None else (closure.n, closure())


def test_what_is_no_closure_is_handed_on_as_it_is() -> None:
    optimizer, heard = OfAModel([torch.nn.Parameter(torch.ones(1))], lr=0.1), list[str]()
    watch = watched(optimizer, heard)

    assert len(optimizer.step(torch.nn.Linear(1, 1))) == 2
    assert heard == ["step"]
    watch.close()


@pytest.mark.parametrize("as_keyword", [True, False])
def test_a_closure_keeps_its_attributes(as_keyword: bool) -> None:
    optimizer, heard = ReadsItsClosure([torch.nn.Parameter(torch.ones(1))], lr=0.1), list[str]()
    watch = watched(optimizer, heard)

    closure = CountedClosure()
    assert (optimizer.step(closure=closure) if as_keyword else optimizer.step(closure)) == (3, 3)
    assert heard == ["step", "closure"]
    watch.close()


class HandsOn:
    """Steps by itself, and hands every attribute that it has not on to another optimizer, as DeepSpeed's does."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.optimizer, name)

    def step(self, closure: Any = None) -> Any:
        return closure and closure()


def test_one_that_hands_its_attributes_on_and_steps_by_itself_is_left_alone() -> None:
    inner, heard = twice(), list[str]()

    assert not watched(HandsOn(inner), heard).hears_all
    inner.step()
    assert heard == []


class KeepsAllOfItself(torch.optim.SGD):
    def __getstate__(self) -> dict[str, Any]:
        return dict(self.__dict__)


@copied_both_ways
def test_a_copy_made_meanwhile_tells_nothing(copied: Callable[[Any], Any]) -> None:
    optimizer, heard = KeepsAllOfItself([torch.nn.Parameter(torch.ones(1))], lr=0.1), list[str]()
    watch = watched(optimizer, heard)

    copied(optimizer).step()
    assert heard == []
    watch.close()
