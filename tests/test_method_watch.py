"""Whose methods are watched notices nothing of it, and no copy of it is watched."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pytest
from copies import copied_both_ways

from lightning_timing.callbacks.method_watch import MethodWatch, _Watched
from lightning_timing.failsafe import Failsafe
from lightning_timing.no_op import nothing

if TYPE_CHECKING:
    from collections.abc import Callable


class Logger:
    """One whose calls can be told apart."""

    def __init__(self) -> None:
        self.logged: list[int] = []

    def log(self, value: int, *, twice: bool = False) -> str:
        """Logs."""
        self.logged += [value] * (1 + twice)
        return "logged"


class Delegating:
    """Has the methods of another one."""

    def __init__(self, logger: Logger) -> None:
        self.logger = logger

    def __getattr__(self, name: str) -> Any:
        if name == "logger":  # as it is in a copy that has no attributes yet
            raise AttributeError(name)
        return getattr(self.logger, name)


class Heard:
    """Counts what it is told."""

    def __init__(self) -> None:
        self.began = self.ended = 0

    def watch(self, instance: Any, method: str = "log") -> MethodWatch:
        return MethodWatch([(instance, method)], self.begin, self.end, Failsafe("a watch", strict=True))

    def begin(self) -> None:
        self.began += 1

    def end(self) -> None:
        self.ended += 1


def test_calls_go_through_and_are_told_until_it_is_closed() -> None:
    logger, heard = Logger(), Heard()
    watch = heard.watch(logger)
    assert logger.log(1, twice=True) == "logged"
    assert (heard.began, heard.ended) == (1, 1)
    assert (logger.log.__name__, logger.log.__doc__) == ("log", "Logs.")
    assert list(inspect.signature(logger.log).parameters) == ["value", "twice"]

    watch.close()
    logger.log(2)
    assert (heard.began, heard.ended) == (1, 1)
    assert logger.logged == [1, 1, 2]
    assert list(vars(logger)) == ["logged"]


def test_what_a_bound_method_has_is_found_on_its_stand_in() -> None:
    logger, heard = Logger(), Heard()
    watch = heard.watch(logger)
    assert logger.log.__self__ is logger  # type: ignore[attr-defined]  # mypy knows bound methods as callables
    assert logger.log.__func__ is Logger.log  # type: ignore[attr-defined]  # as above
    assert not hasattr(logger.log, "no_attribute")
    assert (heard.began, heard.ended) == (0, 0)

    watch.close()


def test_a_call_that_raises_is_told_to_have_ended() -> None:
    logger, heard = Logger(), Heard()
    watch = heard.watch(logger)
    with pytest.raises(TypeError):
        logger.log()
    watch.close()

    assert (heard.began, heard.ended) == (1, 1)


@copied_both_ways
def test_a_copy_has_its_own_method(copied: Callable[[Any], Any]) -> None:
    logger, heard = Logger(), Heard()
    watch = heard.watch(logger)
    second = copied(copied(logger))
    second.log(1)
    logger.log(2)
    watch.close()

    assert (logger.logged, second.logged) == ([2], [1])
    assert heard.began == 1


@copied_both_ways
def test_the_copied_method_alone_is_that_of_a_copy(copied: Callable[[Any], Any]) -> None:
    logger, heard = Logger(), Heard()
    watch = heard.watch(logger)
    copied(logger.log)(1)
    watch.close()

    assert logger.logged == []
    assert heard.began == 0


@copied_both_ways
def test_a_copy_of_one_that_has_the_methods_of_another(copied: Callable[[Any], Any]) -> None:
    logger, heard = Delegating(Logger()), Heard()
    watch = heard.watch(logger)
    second = copied(logger)
    second.log(1)
    watch.close()

    assert (logger.logged, second.logged) == ([], [1])
    assert heard.began == 0


@copied_both_ways
def test_watched_twice(copied: Callable[[Any], Any]) -> None:
    logger, inner, outer = Logger(), Heard(), Heard()
    first, second = inner.watch(logger), outer.watch(logger)
    other = copied(logger)
    other.log(1)
    logger.log(2)
    second.close()
    logger.log(3)
    first.close()
    logger.log(4)

    assert (inner.began, outer.began) == (2, 1)
    assert (logger.logged, other.logged) == ([2, 3, 4], [1])


def test_what_somebody_else_put_in_its_place_stays() -> None:
    logger, heard = Logger(), Heard()
    watch = heard.watch(logger)
    logger.log = len
    watch.close()
    assert logger.log is len

    watch = heard.watch(logger)
    assert logger.log("four") == 4
    watch.close()
    assert logger.log is len
    assert heard.began == 1


def test_what_stands_for_another_and_hands_attributes_on_is_left_as_it_was() -> None:
    """As some loggers do: the watch would lie in what it stands for, and stay there."""

    class Real:
        def log(self) -> str:
            return "logged"

    class Forwarding:
        def __init__(self, real: Real) -> None:
            object.__setattr__(self, "real", real)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.real, name)

        def __setattr__(self, name: str, value: Any) -> None:
            setattr(self.real, name, value)

    real = Real()
    for _ in range(3):
        watch = MethodWatch([(Forwarding(real), "log")], nothing, nothing, Failsafe("the watch", strict=True))
        watch.close()

    assert not isinstance(vars(real).get("log"), _Watched)
    assert real.log() == "logged"
