"""Which measurement gets CPU usage, and which of its intervals count."""

from __future__ import annotations

from typing import Any

import pytest
from known_cost import FakeClock

from lightning_timing.cpu_choice import CpuChoice
from lightning_timing.cpu_usage import CpuUsageMeter


@pytest.fixture
def metered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the meters are told, but for their sampling."""
    told: list[str] = []
    for method in ("begin", "end", "drop", "keep", "forget"):
        monkeypatch.setattr(CpuUsageMeter, method, lambda _, method=method: told.append(method))
    for method in ("start", "stop"):
        monkeypatch.setattr(CpuUsageMeter, method, lambda _: None)
    return told


def of_iterations(stage: str | None = None) -> CpuChoice:
    cpu = CpuChoice(FakeClock())
    cpu.choose("iteration", by_default=True)
    if stage is not None:
        cpu.choose_stage(stage)
    return cpu


def test_a_stretch_of_iterations_is_metered_as_one(metered: list[str]) -> None:
    cpu = of_iterations()
    for _ in range(3):
        if cpu.is_due("train"):
            cpu.begin()
    cpu.rest()
    cpu.rest()

    assert metered == ["begin", "end"]
    assert cpu.is_due("train")


def test_an_iteration_that_turns_out_to_be_warm_up_is_forgotten(metered: list[str]) -> None:
    cpu = of_iterations()
    cpu.begin_stage(is_warming_up=False)
    cpu.begin()
    cpu.leave_out(is_warming_up=False)
    cpu.rest()

    assert metered == ["keep", "begin", "forget"]
    assert cpu.is_due("train")


def test_nothing_is_forgotten_of_a_warm_up_that_was_known_before(metered: list[str]) -> None:
    cpu = of_iterations()
    cpu.begin_stage(is_warming_up=True)
    cpu.leave_out(is_warming_up=True)
    cpu.leave_out(is_warming_up=False)

    assert metered == ["keep"]


@pytest.mark.usefixtures("metered")
def test_what_was_chosen_by_default_may_be_replaced_until_somebody_chooses_it() -> None:
    cpu = of_iterations()
    assert cpu.may_be("mine")
    cpu.choose("iteration", by_default=True)
    assert cpu.may_be("mine")
    cpu.choose("iteration")
    cpu.choose("iteration", by_default=True)
    assert not cpu.may_be("mine")


def test_chosen_again_it_goes_on(metered: list[str]) -> None:
    cpu = of_iterations()
    cpu.begin()
    cpu.choose("iteration")

    assert not cpu.is_due("train")


@pytest.mark.usefixtures("metered")
def test_only_the_iterations_of_the_first_stage_are_metered_but_training_goes_before() -> None:
    cpu = of_iterations("validate")
    assert (cpu.is_due("validate"), cpu.is_due("train")) == (True, False)
    cpu.choose_stage("test")
    assert (cpu.is_due("validate"), cpu.is_due("test")) == (True, False)
    cpu.choose_stage("train")
    cpu.choose_stage("validate")
    assert (cpu.is_due("validate"), cpu.is_due("train")) == (False, True)


@pytest.mark.usefixtures("metered")
def test_what_was_metered_of_another_stage_is_forgotten_for_training() -> None:
    cpu = of_iterations("validate")
    before: Any = cpu._meter
    cpu.choose_stage("train")

    assert cpu._meter is not before
    assert cpu.name == "iteration"
