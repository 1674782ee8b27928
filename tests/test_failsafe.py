"""A part works until it fails, says so once, and lets nothing through but what it is told to."""

from __future__ import annotations

import warnings

import pytest
from whole_suite import our_warnings

from lightning_timing.failsafe import Failsafe

OFF = "lightning_timing: the lamp is off for the rest of this run: "


def test_it_goes_off_with_one_warning_and_stays_off() -> None:
    turned_off: list[bool] = []
    failsafe = Failsafe("the lamp", strict=False, turn_off=lambda: turned_off.append(failsafe.is_off))
    with our_warnings() as said:
        with failsafe:
            pass
        assert not failsafe.is_off
        for _ in range(3):
            with failsafe:
                raise ValueError("no oil")
        failsafe.fail("in words")

    assert failsafe.is_off
    assert turned_off == [True]
    assert said == [f"{OFF}ValueError: no oil"]


def test_what_failed_in_an_earlier_run_of_the_process_is_said_again() -> None:
    # As where a cell of a notebook is run again: without this Python would show one of the two.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(2):
            with Failsafe("the lamp", strict=False):
                raise ValueError("no oil")

    assert [str(each.message) for each in caught] == [f"{OFF}ValueError: no oil"] * 2


def test_a_filter_of_the_user_s_by_the_module_applies_to_what_is_said_of_a_run() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", module=__name__)
        Failsafe("the lamp", strict=False).fail("no oil")

    assert caught == []


def test_a_reason_may_be_in_words() -> None:
    with our_warnings() as said:
        Failsafe("the lamp", strict=True).fail("no oil")

    assert said == [f"{OFF}no oil"]


def test_what_fails_while_it_is_turned_off_is_not_said_on_top() -> None:
    failsafe = Failsafe("the lamp", strict=False, turn_off=lambda: 1 / 0)
    with our_warnings() as said, failsafe:
        raise ValueError("no oil")

    assert said == [f"{OFF}ValueError: no oil"]


@pytest.mark.parametrize("raises_once", [False, True])
def test_a_strict_one_raises_what_failed_itself(raises_once: bool) -> None:
    failsafe, error = Failsafe("the lamp", strict=True, raises_once=raises_once), ValueError("no oil")
    with our_warnings() as said:
        with pytest.raises(ValueError, match="no oil") as raised, failsafe:
            raise error
        assert raised.value is error
        assert raised.value.__context__ is None
        assert not failsafe.is_off
        if raises_once:
            failsafe.fail(error)
        else:
            with pytest.raises(ValueError, match="no oil"):
                failsafe.fail(error)

    assert len(said) == raises_once


def test_a_strict_one_hides_no_exception_that_is_on_its_way() -> None:
    failsafe = Failsafe("the lamp", strict=True)
    with our_warnings() as said:
        failsafe.fail(ValueError("no oil"), may_raise=False)

    assert failsafe.is_off
    assert len(said) == 1


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_is_meant_to_end_the_program_ends_it(stop: type[BaseException], strict: bool) -> None:
    failsafe = Failsafe("the lamp", strict=strict)
    with our_warnings() as said, pytest.raises(stop), failsafe:
        raise stop

    assert not failsafe.is_off
    assert said == []
