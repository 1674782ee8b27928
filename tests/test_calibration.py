"""What the hot path costs, as it is found by trying it out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from known_cost import FakeClock

from lightning_timing import Stopwatch
from lightning_timing.callbacks.calibration import try_out
from lightning_timing.callbacks.trail import Trail
from lightning_timing.late_recorder import LateRecorder
from lightning_timing.ledger import Ledger
from lightning_timing.recorder_settings import RecorderSettings
from lightning_timing.user_measurements import UserMeasurements

if TYPE_CHECKING:
    from lightning_timing.overhead import UnitCosts

COST_NS = 7_000


@pytest.mark.parametrize(
    ("costly", "is_late", "found"),
    [
        ((Ledger, "enter"), False, (COST_NS, 0, 0, 0)),
        ((Ledger, "enter"), True, (0, 0, 0, 0)),
        ((UserMeasurements, "start"), True, (0, COST_NS, COST_NS, 0)),
        ((Trail, "turn"), True, (0, 0, 0, COST_NS)),
        ((Trail, "turn"), False, (0, 0, 0, 0)),
    ],
)
def test_each_cost_is_found_where_it_is(
    costly: tuple[type, str], is_late: bool, found: tuple[int, int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    original = getattr(*costly)

    def costs(*args: Any, **kwargs: Any) -> Any:
        clock.advance(COST_NS)
        return original(*args, **kwargs)

    monkeypatch.setattr(*costly, costs)

    assert found_costs(is_late, clock) == found


def found_costs(is_late: bool, clock: FakeClock) -> UnitCosts:
    recorder = LateRecorder(RecorderSettings())
    return try_out(recorder, is_late=is_late, clock=clock)


def test_the_run_s_own_recorder_and_the_stopwatch_are_left_alone() -> None:
    recorder = LateRecorder(RecorderSettings(num_warmup_iters=0))
    for is_late in (True, False):
        assert all(ns > 0 for ns in try_out(recorder, is_late=is_late))

    assert (recorder.counts_inside, recorder.figures().stages) == ((0, 0, 0, 0), {})
    assert not Stopwatch().is_enabled
