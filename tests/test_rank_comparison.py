"""How ranks compare, and which of them, if any, holds the others up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from records import MS, header, load_run, phases, rows, write_lines

from lightning_timing.phases import BACKWARD, BARRIER, CHECKPOINT, DATA_WAIT, FORWARD, ITERATION
from lightning_timing.rank_comparison import RankComparison, compare_ranks, rank_figures
from lightning_timing.reporting.run_blocks import culprit_line

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lightning_timing.record_series import StageSeries

Ns = dict[str, int]
ITERATIONS = 40


def series_of(folder: Path, many_ns: Sequence[Ns]) -> StageSeries:
    return load_run(write_lines(folder, [header(), *rows(many_ns)])).ranks[0].stages["train"]


def in_step(own: Sequence[Sequence[Ns]]) -> list[list[Ns]]:
    """What each rank measures when all wait for the slowest in `backward`: `own` is what each would take by itself."""
    longest = [max(sum(ns.values()) for ns in iteration) for iteration in zip(*own, strict=True)]
    return [
        [
            phases(**{**ns, BACKWARD: ns[BACKWARD] + whole - sum(ns.values())})
            for ns, whole in zip(rank, longest, strict=True)
        ]
        for rank in own
    ]


def compared(folder: Path, ranks: Sequence[Sequence[Ns]]) -> RankComparison:
    found = compare_ranks(
        rank_figures(number, series_of(folder / str(number), many_ns)) for number, many_ns in enumerate(ranks)
    )
    assert found is not None
    return found


def alone(data_wait: int = 1, forward: int = 10, backward: int = 20) -> Ns:
    return {DATA_WAIT: data_wait * MS, FORWARD: forward * MS, BACKWARD: backward * MS}


EVEN = [alone()] * ITERATIONS


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_rank_that_is_slow_in_loading(tmp_path: Path, ranks: int) -> None:
    slow = [alone(data_wait=9)] * ITERATIONS
    culprit = compared(tmp_path, in_step([*[EVEN] * (ranks - 1), slow])).culprit

    assert culprit is not None
    assert culprit.rank == ranks - 1
    assert culprit.phases == pytest.approx({DATA_WAIT: 0.008})
    assert culprit.excess_s == pytest.approx(0.008)
    assert culprit.waiting_phase == BACKWARD
    assert culprit.wait_s == pytest.approx(0.008)


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_rank_that_is_slow_in_forward(tmp_path: Path, ranks: int) -> None:
    slow = [alone(forward=15)] * ITERATIONS
    culprit = compared(tmp_path, in_step([slow, *[EVEN] * (ranks - 1)])).culprit

    assert culprit is not None
    assert culprit.rank == 0
    assert culprit.phases == pytest.approx({FORWARD: 0.005})


def test_a_rank_that_is_evenly_slow(tmp_path: Path) -> None:
    slow = [alone(data_wait=5, forward=14, backward=28)] * ITERATIONS
    culprit = compared(tmp_path, in_step([EVEN, slow, EVEN, EVEN])).culprit

    assert culprit is not None
    assert culprit.rank == 1
    assert culprit.phases == pytest.approx({DATA_WAIT: 0.004, FORWARD: 0.004})


def test_all_ranks_are_evenly_slow(tmp_path: Path) -> None:
    slow = [alone(data_wait=30)] * ITERATIONS

    assert compared(tmp_path, in_step([slow] * 4)).culprit is None


def test_no_rank_is_slow(tmp_path: Path) -> None:
    noise = np.random.default_rng(0)
    own = [[alone(forward=int(noise.integers(9, 12))) for _ in range(ITERATIONS)] for _ in range(4)]

    assert compared(tmp_path, in_step(own)).culprit is None


def test_a_moment_of_slowness_is_none(tmp_path: Path) -> None:
    once = [alone(data_wait=1000 if batch == 7 else 1) for batch in range(ITERATIONS)]

    assert compared(tmp_path, in_step([EVEN, once])).culprit is None


def saving(own_ms: int, every: int = 10, first_ms: int = 0) -> list[Ns]:
    """Iterations of which some save a checkpoint, the first of them at some more cost; rank 0's write is 200 ms."""
    made = []
    for batch in range(ITERATIONS):
        ns = alone()
        if batch % every == every - 1:
            first = first_ms if batch == every - 1 else 0
            ns = {**ns, CHECKPOINT: (own_ms + first) * MS, BARRIER: (200 - own_ms) * MS}
        made.append(phases(**ns))
    return made


def test_a_rank_that_writes_checkpoints_is_named_though_it_does_so_seldom(tmp_path: Path) -> None:
    culprit = compared(tmp_path, [saving(200), saving(1), saving(1)]).culprit

    assert culprit is not None
    assert culprit.rank == 0
    assert culprit.phases == pytest.approx({CHECKPOINT: 0.0199})
    assert culprit.waiting_phase == BARRIER
    assert culprit.wait_s == pytest.approx(0.0199)


def test_what_the_first_checkpoint_costs_every_rank_hides_no_writer(tmp_path: Path) -> None:
    culprit = compared(tmp_path, [saving(200), saving(1, first_ms=900)]).culprit

    assert culprit is not None
    assert culprit.rank == 0
    assert culprit.phases == pytest.approx({CHECKPOINT: 0.0199})


def test_ranks_that_all_write_checkpoints_have_no_culprit(tmp_path: Path) -> None:
    assert compared(tmp_path, [saving(200)] * 3).culprit is None


def test_a_checkpoint_that_is_little_in_the_whole_run_makes_no_culprit(tmp_path: Path) -> None:
    assert compared(tmp_path, [saving(80, every=ITERATIONS), saving(1, every=ITERATIONS)]).culprit is None


def test_ranks_that_do_not_wait_for_each_other_have_no_culprit(tmp_path: Path) -> None:
    slow = [phases(**alone(data_wait=30))] * ITERATIONS

    assert compared(tmp_path, [[phases(**ns) for ns in EVEN], slow]).culprit is None


def test_sharded_ranks_that_wait_in_forward_are_no_culprits(tmp_path: Path) -> None:
    """The quick ranks' forward is long because of the slow rank's loading."""
    quick, slow = phases(**alone(forward=20)), phases(**alone(data_wait=11))
    culprit = compared(tmp_path, [[quick] * ITERATIONS, [slow] * ITERATIONS]).culprit

    assert culprit is not None
    assert culprit.rank == 1
    assert culprit.phases == pytest.approx({DATA_WAIT: 0.01})
    assert culprit.waiting_phase == FORWARD


def test_a_rank_that_is_slower_by_chance_is_no_culprit(tmp_path: Path) -> None:
    """Nobody waits for anybody, but whichever rank is slower in a quarter of the run, its other phases are shorter."""
    slow, quick = ([phases(**alone(wait, backward=back))] * (ITERATIONS // 4) for wait, back in ((9, 16), (1, 20)))

    half = [*slow, *slow, *quick, *quick], [*quick, *quick, *quick, *slow]
    assert compared(tmp_path / "half", half).culprit is None
    mostly = compared(tmp_path / "mostly", ([*slow, *slow, *slow, *quick], half[1])).culprit
    assert mostly is not None
    assert mostly.rank == 0


def test_ranks_of_a_slow_node_are_named_together(tmp_path: Path) -> None:
    """Which of them is the slowest is chance."""
    slow, slowest = [alone(data_wait=9)] * ITERATIONS, [alone(data_wait=10)] * ITERATIONS
    culprit = compared(tmp_path, in_step([EVEN, EVEN, EVEN, slow, slowest])).culprit

    assert culprit is not None
    assert (culprit.rank, culprit.alike) == (4, (3,))
    assert culprit_line(culprit).startswith("Rank 4, like rank 3, holds the others up: ")


def test_each_phase_has_its_median_and_slowest_rank(tmp_path: Path) -> None:
    found = compared(tmp_path, [[phases(**alone(forward=forward))] * 3 for forward in (10, 14, 11)])

    forward = found.phases[FORWARD]
    assert (forward.median_s, forward.fastest_s, forward.slowest_s) == pytest.approx((0.011, 0.010, 0.014))
    assert forward.slowest_rank == 1
    assert list(found.phases) == [ITERATION, DATA_WAIT, FORWARD, BACKWARD, "other"]


def test_ranks_with_unequal_numbers_of_batches(tmp_path: Path) -> None:
    found = compared(tmp_path, [[phases(**alone())] * 3, [phases(**alone())] * 5])

    assert found.iterations == (3, 5)
    assert found.phases[FORWARD].slowest_s == pytest.approx(0.010)


def test_one_iteration_is_enough_to_compare(tmp_path: Path) -> None:
    assert compared(tmp_path, [[phases(**alone())], [phases(**alone())]]).ranks == 2


def test_one_rank_has_nothing_to_compare_with(tmp_path: Path) -> None:
    assert compare_ranks([rank_figures(0, series_of(tmp_path, [phases(forward=MS)]))]) is None
    assert compare_ranks([]) is None


def test_instant_iterations_have_no_culprit(tmp_path: Path) -> None:
    assert compared(tmp_path, [[phases(forward=0)] * 3] * 2).culprit is None
