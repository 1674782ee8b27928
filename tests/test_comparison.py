"""What a comparison of runs holds, besides the statistics: which measurements, which conditions, what is absent."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from compared_runs import noisy_ms, write_run, write_run_of_epochs
from records import MS, end, header, outside, phases, row, rows, summary_of, write_lines, write_summary

from lightning_timing.comparison import (
    Absence,
    BatchSizes,
    Comparison,
    MeanIteration,
    MeasurementChange,
    Side,
    Throughput,
)
from lightning_timing.comparison_notes import ONE_RUN_A_SIDE, ONE_RUN_BESIDE_SEVERAL
from lightning_timing.conditions import Difference
from lightning_timing.errors import BadInputError
from lightning_timing.figures import MeasurementSummary
from lightning_timing.gate import Held, check_threshold
from lightning_timing.median_change import FASTER, NO_DIFFERENCE, NOT_JUDGED, SLOWER, TOO_FEW
from lightning_timing.phases import CHECKPOINT
from lightning_timing.run_comparison import compare_runs
from lightning_timing.run_times import read_times
from lightning_timing.stage_times import Measured

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lightning_timing.record import IterationRow
    from lightning_timing.run_times import RunTimes

FORWARD = Measured("forward", "host")
NO_FIGURES = MeasurementSummary("iteration", 0, None, None, None, None, None, None, None, None, None, None)


def compare(before: Path, after: Path) -> Comparison:
    return compare_runs([read_times(before)], [read_times(after)])


def changes(comparison: Comparison) -> dict[str, MeasurementChange]:
    return {change.measurement: change for change in comparison.changes}


def runs_of_epochs(folder: Path, centers: list[float], first_wait_ms: float) -> list[RunTimes]:
    """Runs of 110 iterations, one for each center of `forward` in milliseconds."""
    return [
        read_times(write_run_of_epochs(folder / f"{i}", noisy_ms(i, iterations=110, center=center), first_wait_ms))
        for i, center in enumerate(centers)
    ]


def whole(before: Sequence[RunTimes], after: Sequence[RunTimes]) -> MeanIteration:
    (found,) = compare_runs(before, after).wholes
    return found


def test_each_measurement_has_its_change_in_the_order_of_the_loop(tmp_path: Path) -> None:
    before = write_run(tmp_path / "a", noisy_ms(1))
    after = write_run(tmp_path / "b", noisy_ms(2, center=12))
    comparison = compare(before, after)
    assert [c.measurement for c in comparison.changes] == ["iteration", "forward", "other"]
    assert [c.verdict for c in comparison.changes] == [SLOWER, SLOWER, NO_DIFFERENCE]
    forward = changes(comparison)["forward"]
    assert forward.change == pytest.approx(0.2, abs=0.02)
    assert forward.before == Side(pytest.approx(0.010, rel=0.01), 100, 1)
    assert changes(compare(after, before))["forward"].verdict == FASTER
    assert (comparison.before, comparison.after) == ((str(before),), (str(after),))


def test_a_run_compared_with_itself_differs_in_nothing(tmp_path: Path) -> None:
    run = write_run(tmp_path, noisy_ms(1))
    comparison = compare(run, run)
    assert {(c.change, c.verdict) for c in comparison.changes} == {(0.0, NO_DIFFERENCE)}
    assert (comparison.differences, comparison.absences) == ((), ())


def test_of_several_runs_the_number_and_the_spread_count(tmp_path: Path) -> None:
    before = [read_times(write_run(tmp_path / f"a{i}", noisy_ms(i, center=9 + i))) for i in range(3)]
    after = [read_times(write_run(tmp_path / f"b{i}", noisy_ms(9 + i, center=9.5 + i))) for i in range(3)]
    assert changes(compare_runs(before[:1], after[:1]))["forward"].verdict == SLOWER
    several = compare_runs(before, after)
    forward = changes(several)["forward"]
    assert (forward.verdict, forward.before.count, forward.before.runs) == (NO_DIFFERENCE, 300, 3)
    assert ONE_RUN_A_SIDE not in several.notes


def test_the_parts_of_a_change_add_up_to_it_however_much_runs_differ(tmp_path: Path) -> None:
    sides = {"a": (1.0, 1.0, 9.0), "b": (199.0, 199.0, 1999.0)}
    runs = {
        name: [read_times(write_run(tmp_path / f"{name}{i}", [ms] * 40)) for i, ms in enumerate(of_side)]
        for name, of_side in sides.items()
    }
    (mean,) = compare_runs(runs["a"], runs["b"]).means

    assert mean.verdict == SLOWER
    assert [part.phase for part in mean.parts] == ["forward"]
    assert mean.parts[0].change_s == pytest.approx(mean.after.time_s - mean.before.time_s)


def test_what_got_shorter_is_named_beside_what_got_longer(tmp_path: Path) -> None:
    def run(name: str, forward_ms: int, backward_ms: int, loss_ms: int) -> Path:
        ns = {**phases(forward=forward_ms * MS, backward=backward_ms * MS), "loss": loss_ms * MS}
        intervals = [("loss", 0, loss_ms * MS), ("forward", 0, forward_ms * MS)]
        return write_lines(tmp_path / name, [header(), *rows([ns] * 100, intervals=intervals), end()])

    (slower,) = compare(run("a", 300, 300, 10), run("b", 500, 150, 20)).means
    (faster,) = compare(run("c", 500, 150, 400), run("d", 300, 300, 250)).means

    assert [(part.phase, part.change_s) for part in slower.parts] == [
        ("forward", pytest.approx(0.2)),
        ("backward", pytest.approx(-0.15)),
    ]
    assert [(part.phase, part.change_s, part.mostly_in) for part in faster.parts] == [
        ("forward", pytest.approx(-0.2), "loss"),
        ("backward", pytest.approx(0.15), None),
    ]


def test_one_run_a_side_is_noted(tmp_path: Path) -> None:
    one, other = (write_run(tmp_path / name, noisy_ms(1)) for name in ("one", "other"))
    assert compare(one, other).notes == (ONE_RUN_A_SIDE,)


def test_that_one_run_borrows_the_spread_of_the_other_side_is_noted(tmp_path: Path) -> None:
    a, b, c, d = (read_times(write_run(tmp_path / f"{n}", noisy_ms(n))) for n in range(4))
    assert compare_runs([a, b], [c]).notes == compare_runs([a], [b, c]).notes == (ONE_RUN_BESIDE_SEVERAL,)
    assert compare_runs([a, b], [c, d]).notes == ()


def test_the_samples_a_second_of_several_runs_and_ranks(tmp_path: Path) -> None:
    before = [read_times(write_run(tmp_path / f"a{ms}", [float(ms)] * 20)) for ms in (7, 31)]
    for rank, ms in ((0, 15.0), (1, 47.0)):
        write_run(tmp_path / "b", [ms] * 20, rank=rank, world_size=2)
    (throughput,) = compare_runs(before, [read_times(tmp_path / "b")]).throughputs
    assert throughput == Throughput("train", pytest.approx(2000), pytest.approx(1000), of_one_rank=True)


def test_the_samples_a_second_are_those_of_the_device_where_the_host_only_enqueues(tmp_path: Path) -> None:
    many_ns = [phases(forward=10 * MS)] * 20
    before = write_lines(tmp_path / "a", [header(), *rows(many_ns, device_ns={"iteration": 20 * MS}), end()])
    after = write_lines(tmp_path / "b", [header(), *rows(many_ns, device_ns={"iteration": 5 * MS}), end()])

    (throughput,) = compare(before, after).throughputs
    assert throughput.before == pytest.approx(0.5 * throughput.after)


def rows_with(checkpoint_every: int, iterations: int, checkpoint_ms: float = 20.0) -> list[Any]:
    """Iterations of 10 ms, some of which save a checkpoint as well."""
    saving = {CHECKPOINT: round(checkpoint_ms * MS)}
    each = [saving if number % checkpoint_every == 0 else {} for number in range(iterations)]
    return rows([phases(forward=10 * MS, **extra) for extra in each])


def test_what_occurs_less_often_is_not_judged_by_what_it_takes_when_it_does(tmp_path: Path) -> None:
    """Fewer checkpoints, each of which has more to write: that is no slower checkpoint."""
    before = write_lines(tmp_path / "a", [header(), *rows_with(2, 300), end()])
    after = write_lines(tmp_path / "b", [header(), *rows_with(20, 300, 40.0), end()])

    (saving,) = (c for c in compare(before, after).changes if c.measurement == CHECKPOINT)
    assert (saving.verdict, saving.low, saving.high) == ("occurs less often", None, None)
    assert saving.reason == "in 50 % of the iterations before, 5 % after: see the mean iteration"
    assert (saving.before.time_s, saving.after.time_s) == (0.020, 0.040)

    back = compare(after, before)
    (saving,) = (c for c in back.changes if c.measurement == CHECKPOINT)
    assert saving.verdict == "occurs more often"
    assert not check_threshold(back, 0.05, [CHECKPOINT]).has_judged


def test_validating_less_often_is_said_as_it_is_in_no_row(tmp_path: Path) -> None:
    def run(name: str, validated: int) -> Path:
        train, validate = ([phases(forward=ms * MS)] * count for ms, count in ((10, 100), (5, validated)))
        return write_lines(tmp_path / name, [header(), *rows(train), *rows(validate, stage="validate"), end()])

    before, after = run("a", 439), run("b", 109)  # after warm-ups of 10 and 1
    assert compare(before, after).notes[-1] == (
        "validation has 4 iterations for each of training before and 1 after, which take 20 and 5 ms: that is in "
        "none of the figures below"
    )
    assert "validation has" not in "".join(compare(before, run("c", 419)).notes)


@pytest.mark.parametrize(("train", "validate"), [(12, 4), (50, 10)])
def test_the_warm_up_is_no_reason_to_say_that_validation_is_less_frequent(
    train: int, validate: int, tmp_path: Path
) -> None:
    """It is all of a short run's first iterations, and little of a long one's."""

    def run(name: str, times: int) -> Path:
        counted = [rows([phases(forward=50 * MS)] * (times * train - 10))]
        counted.append(rows([phases(forward=50 * MS)] * (times * validate - 1), stage="validate"))
        return write_lines(tmp_path / name, [header(), *counted[0], *counted[1], end()])

    assert "validation" not in " ".join(compare(run("a", 1), run("b", 100)).notes)


def test_why_what_occurs_more_often_between_iterations_is_not_judged(tmp_path: Path) -> None:
    few = write_run_of_epochs(tmp_path / "a", [10.0] * 100, 20, epochs=10)
    many = write_run_of_epochs(tmp_path / "b", [10.0] * 100, 20, epochs=40)

    found = changes(compare(few, many))["first_data_wait"]
    assert (found.verdict, found.reason) == (
        "occurs more often",
        "10 times a run before, 40 after: see the iteration with what lies between",
    )


def of_batches(folder: Path, samples: int | None, forward_ms: float, *, iterations: int = 100) -> Path:
    many_ns = [phases(forward=round(ms * MS), other=MS) for ms in noisy_ms(samples or 0, center=forward_ms)]
    found = rows(many_ns[:iterations], samples=samples)
    waits = [outside("first_data_wait", 4 * (samples or 1) * MS, start_ns=0)] * 4
    return write_lines(folder, [header(), *found, *waits, end()])


def test_runs_with_batches_of_different_sizes_are_compared_by_samples(tmp_path: Path) -> None:
    """Four times the samples in twice the time: that is faster, whatever an iteration takes."""
    small, large = of_batches(tmp_path / "a", 16, 3.0), of_batches(tmp_path / "b", 64, 7.0)
    found = compare(small, large)

    assert found.batch_sizes == (BatchSizes("train", (16,), (64,), samples=16),)
    (mean,) = found.means
    assert (mean.before.time_s, mean.after.time_s) == (pytest.approx(0.004, rel=0.01), pytest.approx(0.002, rel=0.01))
    assert (mean.verdict, [part.phase for part in mean.parts]) == (FASTER, ["forward", "other"])
    assert changes(found)["other"].after.time_s == pytest.approx(0.00025)
    (whole,) = found.wholes
    assert whole.after.time_s - mean.after.time_s == pytest.approx(4 * 64 * 0.004 / 110 / 4)
    assert check_threshold(found, 0.05, ["iteration"]).is_crossed is False
    assert check_threshold(compare(large, small), 0.05, ["iteration"]).is_crossed


def test_what_only_some_iterations_have_is_compared_by_what_it_takes_each_time(tmp_path: Path) -> None:
    """Gradients that were accumulated over four small batches: as many optimizer's steps, waits and saves as before."""

    def run(name: str, samples: int, every: int, iterations: int) -> RunTimes:
        many_ns = []
        for n, ms in enumerate(noisy_ms(samples, iterations=iterations, center=3.0 * samples / 16)):
            step = {"optimizer_step": 5 * MS} if n % every == every - 1 else {}
            many_ns.append(phases(forward=round(ms * MS), **step))
        lines = [*rows(many_ns, samples=samples), *[outside("first_data_wait", 100 * MS, start_ns=0)] * 4]
        return read_times(write_lines(tmp_path / name, [header(), *lines, end()]))

    found = compare_runs([run("a", 16, 4, 790)], [run("b", 64, 1, 190)])
    for name in ("optimizer_step", "first_data_wait"):
        assert changes(found)[name].change == pytest.approx(0)
    (mean,) = found.means
    assert mean.after.time_s == pytest.approx(mean.before.time_s, rel=0.02)
    assert changes(found)["iteration"].verdict == NOT_JUDGED
    assert not check_threshold(found, 0.05, ["iteration"]).is_crossed
    assert found.notes == (ONE_RUN_A_SIDE,)


def test_runs_of_different_numbers_of_processes_are_compared_as_they_are(tmp_path: Path) -> None:
    for name, world_size, samples in (("a", 1, 64), ("b", 2, 32)):
        for rank in range(world_size):
            found = rows([phases(forward=MS)] * 20, samples=samples)
            write_lines(tmp_path / name, [header(rank=rank, world_size=world_size), *found, end()], rank=rank)

    assert compare(tmp_path / "a", tmp_path / "b").batch_sizes == ()


def test_as_many_samples_are_as_long_a_run_whatever_the_batches(tmp_path: Path) -> None:
    small = [read_times(of_batches(tmp_path / f"a{n}", 16, 3.0, iterations=90)) for n in range(3)]
    large = [read_times(of_batches(tmp_path / f"b{n}", 64, 7.0, iterations=15)) for n in range(3)]

    assert whole(small, large).verdict != NOT_JUDGED  # 100 and 25 iterations, with the warm-up


def test_batches_of_unknown_or_uneven_sizes_are_compared_as_they_are(tmp_path: Path) -> None:
    known = of_batches(tmp_path / "a", 16, 3.0)
    unknown = of_batches(tmp_path / "b", None, 7.0)
    uneven = rows([phases(forward=7 * MS)] * 20, samples=64)
    uneven = [replace(line, samples=64 + n % 3) for n, line in enumerate(uneven)]
    write_lines(tmp_path / "c", [header(), *uneven, end()])

    for other in (unknown, tmp_path / "c", of_batches(tmp_path / "d", 16, 7.0)):
        assert compare(known, other).batch_sizes == ()


def test_a_longer_run_has_more_of_everything_as_often(tmp_path: Path) -> None:
    before = write_lines(tmp_path / "a", [header(), *rows_with(5, 100), end()])
    after = write_lines(tmp_path / "b", [header(), *rows_with(5, 300), end()])

    (saving,) = (c for c in compare(before, after).changes if c.measurement == CHECKPOINT)
    assert saving.verdict == "no difference shown"


def test_device_time_is_compared_where_both_sides_have_it(tmp_path: Path) -> None:
    many_ns = [phases(forward=10 * MS)] * 20
    before = write_lines(tmp_path / "a", [header(), *rows(many_ns, device_ns={"forward": 20 * MS}), end()])
    after = write_lines(tmp_path / "b", [header(), *rows(many_ns, device_ns={"forward": 10 * MS}), end()])
    without = write_lines(tmp_path / "c", [header(), *rows(many_ns), end()])
    found = {(c.measurement, c.clock): c.change for c in compare(before, after).changes}
    assert found["forward", "host"] == 0
    assert found["forward", "device"] == pytest.approx(-0.5)
    assert compare(before, without).absences == (Absence("train", "forward", "iteration", "device", "missing"),)


def test_what_occurs_in_some_iterations_is_compared_by_those(tmp_path: Path) -> None:
    def run(name: str, checkpoint_ms: int) -> Path:
        plain, with_checkpoint = phases(forward=MS), phases(forward=MS, checkpoint=checkpoint_ms * MS)
        return write_lines(tmp_path / name, [header(), *rows([*[plain] * 9, with_checkpoint] * 10), end()])

    checkpoint = changes(compare(run("a", 10), run("b", 30)))["checkpoint"]
    assert (checkpoint.change, checkpoint.verdict, checkpoint.before.count) == (pytest.approx(2.0), SLOWER, 10)


def test_what_occurs_between_iterations_is_compared_too(tmp_path: Path) -> None:
    def run(name: str, wait_ms: int) -> Path:
        waits = [outside("first_data_wait", wait_ms * MS, start_ns=0, epoch=epoch) for epoch in range(10)]
        return write_lines(tmp_path / name, [header(), *rows([phases(forward=MS)] * 10), *waits, end()])

    wait = changes(compare(run("a", 100), run("b", 50)))["first_data_wait"]
    assert (wait.change, wait.verdict, wait.after) == (pytest.approx(-0.5), FASTER, Side(0.05, 10, 1))


def test_the_whole_iteration_has_its_part_of_what_lies_between_iterations(tmp_path: Path) -> None:
    """As where each epoch begins with a long wait instead of each batch with a short one: 12 waits, 120 iterations."""
    before = write_run_of_epochs(tmp_path / "a", [39.0] * 110, 20)
    after = write_run_of_epochs(tmp_path / "b", [20.0] * 110, 600)
    comparison = compare(before, after)
    (mean,), (found,) = comparison.means, comparison.wholes
    assert (mean.before.time_s, mean.after.time_s, mean.verdict) == (pytest.approx(0.04), pytest.approx(0.021), FASTER)
    assert (found.before.time_s, found.after.time_s) == (pytest.approx(0.042), pytest.approx(0.081))
    assert found.change == pytest.approx(0.081 / 0.042 - 1)
    assert (found.stage, found.before.runs, found.after.runs) == ("train", 1, 1)


def test_fewer_than_three_runs_a_side_give_the_whole_iteration_no_interval(tmp_path: Path) -> None:
    before = runs_of_epochs(tmp_path / "a", [10, 10.1, 9.9], 20)
    after = runs_of_epochs(tmp_path / "b", [10, 10.1, 9.9], 600)
    for runs, reason in ((1, "one run a side"), (2, "fewer than three runs a side")):
        found = whole(before[:runs], after[:runs])
        assert (found.low, found.high, found.verdict, found.reason) == (None, None, TOO_FEW, reason)
    assert whole(before, after[:2]).reason == "fewer than three runs a side"


def test_the_whole_iteration_of_several_runs_has_an_interval_by_how_much_they_differ(tmp_path: Path) -> None:
    before = runs_of_epochs(tmp_path / "a", [10, 10.1, 9.9], 20)
    after = runs_of_epochs(tmp_path / "b", [10, 10.1, 9.9], 600)
    found = whole(before, after)
    assert (found.verdict, found.reason, found.before.runs, found.after.runs) == (SLOWER, None, 3, 3)
    assert found.low is not None
    assert found.high is not None
    assert found.low < 71 / 13 - 1 < found.high
    assert whole(after, before).verdict == FASTER
    uneven = runs_of_epochs(tmp_path / "c", [8, 10, 12.5], 20)
    assert whole(uneven, before).verdict == NO_DIFFERENCE


def test_whole_iterations_of_runs_of_different_lengths_are_not_judged(tmp_path: Path) -> None:
    """What occurs once, such as the start of the workers, weighs less in a longer run."""
    times = [read_times(write_run_of_epochs(tmp_path / f"{n}", [10.0] * n, 600, epochs=1)) for n in (110, 112, 220)]
    short, as_short, long = times
    found = whole([short] * 3, [long] * 3)
    assert (found.low, found.verdict) == (None, NOT_JUDGED)
    assert found.change == pytest.approx((11 + 600 / 230) / (11 + 600 / 120) - 1)
    assert whole([short] * 3, [as_short] * 3).verdict == FASTER
    assert whole([short], [long]).verdict == NOT_JUDGED


@pytest.mark.parametrize("runs", [1, 3])
@pytest.mark.parametrize(
    ("without", "with_it", "rare", "rare_ms", "every", "is_judged"),
    [
        (40, 400, "checkpoint", 50, 50, False),
        (40, 400, "callbacks/Images", 50, 50, False),
        (40, 400, "checkpoint", 1, 50, True),  # next to nothing
        (40, 44, "checkpoint", 50, 44, True),  # about equally long
        (340, 400, "logging", 50, 10, True),  # it would have come in 340 iterations
        (400, 340, "logging", 50, 10, True),
        (340, 400, "grad_clip", 5, 1, True),
    ],
)
def test_the_mean_is_not_judged_where_a_shorter_run_may_have_ended_before_what_is_rare(
    runs: int, without: int, with_it: int, rare: str, rare_ms: int, every: int, is_judged: bool, tmp_path: Path
) -> None:
    """Every 50th iteration saves a checkpoint: a run of 40 has none, which makes the code no faster."""

    def run_of(name: str, iterations: int, **rare_ns: int) -> RunTimes:
        at = (rare_ns if i % every == every // 2 else {} for i in range(iterations))
        lines = [phases(**{"forward": 9 * MS + i % 7, **more}) for i, more in enumerate(at)]
        return read_times(write_lines(tmp_path / name, [header(), *rows(lines), end()]))

    doing_without = [run_of(f"without{n}", without) for n in range(runs)]
    having = [run_of(f"with{n}", with_it, **{rare: rare_ms * MS}) for n in range(runs)]
    for before, after in ((doing_without, having), (having, doing_without)):
        (mean,) = compare_runs(before, after).means
        assert (mean.low is not None) is is_judged
        assert is_judged or mean.reason == f"runs of different lengths, and on one side only: {rare}"


def test_that_there_are_too_few_iterations_is_said_first(tmp_path: Path) -> None:
    short, long = ([phases(forward=9 * MS)] * n for n in (20, 400))
    long[50] = phases(forward=9 * MS, checkpoint=90 * MS)
    before, after = (write_lines(tmp_path / f"{len(r)}", [header(), *rows(r), end()]) for r in (short, long))
    (mean,) = compare(before, after).means
    assert mean.verdict == TOO_FEW


def test_the_warm_up_counts_for_the_length_of_a_run(tmp_path: Path) -> None:
    def runs_of(counted: int, warmup: int, name: str) -> list[RunTimes]:
        settings = {"num_warmup_iters": warmup}
        folders = (
            write_run_of_epochs(tmp_path / f"{name}{n}", noisy_ms(n, iterations=counted), 600, settings=settings)
            for n in range(3)
        )
        return [read_times(folder) for folder in folders]

    all_counted, fewer_counted = runs_of(60, 0, "all"), runs_of(40, 20, "fewer")
    assert whole(all_counted, fewer_counted).verdict == NO_DIFFERENCE
    longer = runs_of(40, 100, "longer")
    assert whole(fewer_counted, longer).verdict == NOT_JUDGED


def test_what_lies_between_iterations_is_left_out_where_it_takes_next_to_nothing(tmp_path: Path) -> None:
    little, more = (write_run_of_epochs(tmp_path / f"{ms}", [9.0] * 110, ms) for ms in (0.4, 0.6))
    assert compare(little, little).wholes == ()
    assert len(compare(little, more).wholes) == len(compare(more, little).wholes) == 1


def test_nothing_between_iterations_counts_twice(tmp_path: Path) -> None:
    """Parts are in their wholes already, and nothing says in what the user's own measurements lie."""
    between_ms = {
        "first_data_wait": 10,
        "between_iterations/checkpoint": 20,
        "between_iterations/callbacks": 30,
        "between_iterations/callbacks/Saver": 30,
        "matcher": 5,
    }
    made = rows([phases(forward=MS)] * 50)
    between = [outside(name, ms * MS, start_ns=0) for name, ms in between_ms.items()]
    run = write_lines(tmp_path, [header(), *made, *between, end()])
    assert read_times(run).stages["train"].between_ns == pytest.approx(60 * MS / 60)


def test_the_iterations_of_warm_up_share_in_what_lies_between(tmp_path: Path) -> None:
    """What lies between iterations counts from the start. A run that was killed has its warm-up in its header."""
    made = rows([phases(forward=MS)] * 30, stage="validate")
    wait = outside("first_data_wait", 40 * MS, start_ns=0, stage="validate")
    killed = write_lines(tmp_path / "killed", [header(), *made, wait])
    assert read_times(killed).stages["validate"].between_ns == pytest.approx(40 * MS / 31)
    ended = write_lines(tmp_path / "ended", [header(), *made, wait, end()])
    write_summary(ended, summary_of([header(), *made]))
    assert read_times(ended).stages["validate"].between_ns == pytest.approx(40 * MS / 40)


def test_what_lies_between_iterations_is_the_mean_of_the_ranks(tmp_path: Path) -> None:
    """The other ranks go on, and wait for the one that saves in their next iteration."""
    for rank, waits_ms in ((0, 1.0), (1, 0.0)):
        write_run_of_epochs(tmp_path, [1.0] * 50, waits_ms, rank=rank, world_size=2)
    assert read_times(tmp_path).stages["train"].between_ns == pytest.approx(12 * MS / 60 / 2)


def test_missing_and_new_measurements_and_those_without_figures_are_listed(tmp_path: Path) -> None:
    before = [header(), *rows([phases(forward=MS, grad_clip=MS)] * 20), end()]
    after = [header(), *rows([phases(forward=MS, logging=MS)] * 20), end()]
    write_lines(tmp_path / "a", before)
    write_lines(tmp_path / "b", after)
    summary = summary_of(after)
    measured = {**summary.stages["train"].measurements, "grad_clip": NO_FIGURES, "augment": NO_FIGURES}
    stage = replace(summary.stages["train"], measurements=measured)
    write_summary(tmp_path / "b", summary_of(after, stages={"train": stage}))
    comparison = compare(tmp_path / "a", tmp_path / "b")
    assert comparison.absences == (
        Absence("train", "grad_clip", "iteration", "host", "missing"),
        Absence("train", "logging", "iteration", "host", "new"),
        Absence("train", "augment", "iteration", "host", "unmeasured"),
    )
    assert set(changes(comparison)) == {"iteration", "forward", "other"}


def test_a_stage_on_one_side_only_is_listed_once(tmp_path: Path) -> None:
    train = rows([phases(forward=MS)] * 20)
    validate = rows([phases(forward=MS)] * 20, stage="validate")
    before = write_lines(tmp_path / "a", [header(), *train, end()])
    after = write_lines(tmp_path / "b", [header(), *train, *validate, end()])
    assert compare(before, after).absences == (Absence("validate", None, None, "host", "new"),)
    assert compare(after, before).absences == (Absence("validate", None, None, "host", "missing"),)


def test_a_run_killed_in_warm_up_is_listed_not_crashed_on(tmp_path: Path) -> None:
    before = write_run(tmp_path / "a", noisy_ms(1))
    after = write_lines(tmp_path / "b", [header()])
    comparison = compare(before, after)
    assert comparison.changes == ()
    assert comparison.absences == (Absence("train", None, None, "host", "missing"),)
    assert f"{after}: rank 0: no end line: the process was killed, or is still running" in comparison.notes


def test_a_single_iteration_has_a_change_but_no_interval(tmp_path: Path) -> None:
    before, after = write_run(tmp_path / "a", [10.0]), write_run(tmp_path / "b", [20.0])
    forward = changes(compare(before, after))["forward"]
    assert (forward.change, forward.low, forward.high) == (pytest.approx(1.0), None, None)
    assert forward.verdict == TOO_FEW
    assert forward.reason is not None


def test_every_differing_condition_is_named(tmp_path: Path) -> None:
    settings = {"num_warmup_iters": 10, "loader": {"workers": 0, "pin": False}}
    before = write_run(tmp_path / "a", [10.0] * 20, settings=settings)
    after = write_run(
        tmp_path / "b",
        [10.0] * 30,
        device="cuda:0",
        world_size=2,
        environment={"torch": "2.14.0", "lightning": "2.6.6", "python": "3.11.7", "cuda": None},
        settings={"num_warmup_iters": 10, "loader": {"workers": 4, "pin": False}},
    )
    assert compare(before, after).differences == (
        Difference("torch", ("2.13.0",), ("2.14.0",)),
        Difference("loader.workers", ("0",), ("4",)),
        Difference("device", ("cpu",), ("cuda:0",)),
        Difference("world_size", ("1",), ("2",)),
        Difference("train iterations", ("20",), ("30",)),
        Difference("cuda", (None,), ("null",)),
    )


def test_the_batch_size_is_the_usual_one_of_the_run(tmp_path: Path) -> None:
    def run(name: str, samples: int | None) -> Path:
        made = rows([phases(forward=MS)] * 20, samples=samples)
        last = row(20, phases(forward=MS), start_ns=10**10, samples=3)
        return write_lines(tmp_path / name, [header(), *made, last, end()])

    differences = compare(run("a", 32), run("b", 64)).differences
    assert differences == (Difference("train batch size", ("32",), ("64",)),)
    assert compare(run("c", 3), run("d", None)).differences == ()


def test_runs_of_one_side_that_disagree_are_named(tmp_path: Path) -> None:
    hosts = ["node-a", "node-b", "node-a"]
    runs = [read_times(write_run(tmp_path / f"{i}", [10.0] * 20, host=host)) for i, host in enumerate(hosts)]
    assert compare_runs(runs, runs[:1]).differences == (Difference("host", ("node-a", "node-b"), ("node-a",)),)


def test_the_ranks_of_a_run_are_one_series(tmp_path: Path) -> None:
    write_run(tmp_path, [10.0] * 20, rank=0, world_size=2)
    write_run(tmp_path, [30.0] * 15, rank=1, world_size=2)
    train = read_times(tmp_path).stages["train"]
    np.testing.assert_array_equal(train.ns[FORWARD], [20.0 * MS] * 15)


def test_what_one_rank_does_alone_is_taken_from_that_rank(tmp_path: Path) -> None:
    write_lines(tmp_path, [header(world_size=2), *rows([phases(forward=MS, checkpoint=8 * MS)] * 20), end()])
    write_run(tmp_path, [1.0] * 20, rank=1, world_size=2)
    times = read_times(tmp_path).stages["train"].ns[Measured("checkpoint", "host")]
    np.testing.assert_array_equal(times, [8.0 * MS] * 20)


def write_ranks(folder: Path, *ranks_ns: Sequence[dict[str, int]]) -> RunTimes:
    """A run whose ranks have these iterations, from the first batch on."""
    for rank, many_ns in enumerate(ranks_ns):
        write_lines(folder, [header(rank=rank, world_size=len(ranks_ns)), *rows(many_ns), end()], rank=rank)
    return read_times(folder)


def replace_batch(line: IterationRow, by: int) -> IterationRow:
    return replace(line, batch_idx=line.batch_idx + by)


def test_the_parts_of_a_change_add_up_to_it_where_one_rank_waits_for_what_the_other_does_alone(tmp_path: Path) -> None:
    quick = [phases(forward=40 * MS, backward=60 * MS)] * 100
    logs = [phases(forward=40 * MS, backward=60 * MS, logging=40 * MS)] * 100
    waits = [phases(forward=40 * MS, backward=100 * MS)] * 100
    before, after = write_ranks(tmp_path / "a", quick, quick), write_ranks(tmp_path / "b", logs, waits)

    (mean,) = compare_runs([before], [after]).means
    assert [(part.phase, part.change_s) for part in mean.parts] == [
        ("backward", pytest.approx(0.02)),
        ("logging", pytest.approx(0.02)),
    ]
    assert mean.after.time_s - mean.before.time_s == pytest.approx(0.04)


def test_all_measurements_end_with_the_rank_that_ended_first(tmp_path: Path) -> None:
    quick = [phases(forward=100 * MS)] * 200
    logs = [phases(forward=100 * MS, logging=20 * MS)] * 200
    waits = [phases(forward=120 * MS)] * 40
    train = write_ranks(tmp_path / "b", logs, waits).stages["train"]

    assert {measured.name: len(times) for measured, times in train.ns.items()} == dict.fromkeys(
        ("iteration", "forward", "logging", "other"), 40
    )
    (mean,) = compare_runs([write_ranks(tmp_path / "a", quick, quick)], [read_times(tmp_path / "b")]).means
    assert [part.change_s for part in mean.parts] == [pytest.approx(0.01), pytest.approx(0.01)]


@pytest.mark.parametrize("first", [0, 1])
def test_iterations_of_ranks_of_which_one_compiled_longer_belong_together_by_their_batches(
    first: int, tmp_path: Path
) -> None:
    uneven = [phases(forward=(10 if batch % 2 == 0 else 100) * MS) for batch in range(21)]
    ranks = [uneven, uneven[1:]] if first == 0 else [uneven[1:], uneven]
    for rank, many_ns in enumerate(ranks):
        lines = [replace_batch(line, 21 - len(many_ns)) for line in rows(many_ns)]
        write_lines(tmp_path, [header(rank=rank, world_size=2), *lines, end()], rank=rank)

    train = read_times(tmp_path).stages["train"]
    np.testing.assert_array_equal(train.ns[FORWARD], [100.0 * MS, 10.0 * MS] * 10)
    assert train.part_ns["forward"] == pytest.approx(55 * MS)


def test_what_a_rank_does_more_often_between_iterations_is_all_there(tmp_path: Path) -> None:
    for rank, times in enumerate((20, 1)):
        saved = [outside("between_iterations/checkpoint", (30 - 20 * rank) * MS, start_ns=0)] * times
        lines = [header(rank=rank, world_size=2), *rows([phases(forward=MS)] * 20), *saved, end()]
        write_lines(tmp_path, lines, rank=rank)

    saving = read_times(tmp_path).stages["train"].ns[Measured("between_iterations/checkpoint", "host")]
    np.testing.assert_array_equal(saving, [20 * MS, *[30.0 * MS] * 19])


def test_a_record_without_rows_cannot_be_compared(tmp_path: Path) -> None:
    write_summary(tmp_path, summary_of(rows([phases(forward=MS)] * 20)))
    with pytest.raises(BadInputError, match="so there are no times to compare"):
        read_times(tmp_path)


def test_the_whole_interval_must_lie_above_the_threshold(tmp_path: Path) -> None:
    before = write_run(tmp_path / "a", noisy_ms(1))
    comparison = compare(before, write_run(tmp_path / "b", noisy_ms(2, center=12)))
    forward = changes(comparison)["forward"]
    assert forward.low is not None
    assert forward.change is not None
    assert check_threshold(comparison, forward.low - 1e-6, ["forward"]).medians.crossed == (forward,)
    between = check_threshold(comparison, (forward.low + forward.change) / 2, ["forward"])
    assert (between.medians.judged, between.medians.crossed) == ((forward,), ())


def test_no_interval_crosses_no_threshold(tmp_path: Path) -> None:
    comparison = compare(write_run(tmp_path / "a", [10.0]), write_run(tmp_path / "b", [90.0]))
    gate = check_threshold(comparison, 0.05, ["iteration"])
    assert (gate.medians.judged, gate.medians.crossed, gate.has_judged) == ((), (), False)
    assert [change.measurement for change in gate.medians.not_judged] == ["iteration"]


def test_the_whole_iteration_is_held_against_the_threshold_where_it_has_an_interval(tmp_path: Path) -> None:
    before, after = (runs_of_epochs(tmp_path / f"{ms}", [10, 10.1, 9.9], ms) for ms in (20, 60))
    several = compare_runs(before, after)
    gate = check_threshold(several, 0.05, ["iteration"])
    assert gate.wholes == Held(judged=several.wholes, not_judged=(), crossed=several.wholes, undecided=())
    assert (gate.medians.crossed, gate.means.crossed, gate.is_crossed) == ((), (), True)
    assert check_threshold(several, 0.05, ["forward"]).wholes.judged == ()
    single = compare_runs(before[:1], after[:1])
    gate = check_threshold(single, 0.05, ["iteration"])
    assert (gate.wholes.judged, gate.wholes.not_judged, gate.is_crossed) == ((), single.wholes, False)
    assert check_threshold(single, 0.5, ["iteration"]).wholes.not_judged == ()


def test_a_selection_keeps_what_it_names(tmp_path: Path) -> None:
    train, validate = rows([phases(forward=MS)] * 20), rows([phases(forward=MS)] * 20, stage="validate")
    run = write_lines(tmp_path, [header(), *train, *validate, end()])
    comparison = compare(run, run)
    chosen = [("validate", "forward"), ("validate", "other")]
    selected = comparison.of_measurements([*chosen, ("train", "nothing")])
    assert {(change.stage, change.measurement) for change in selected.changes} == {
        ("validate", "forward"),
        ("validate", "other"),
    }
    assert comparison.of_measurements([]) == comparison
    epochs = write_run_of_epochs(tmp_path / "epochs", [10.0] * 20, 600)
    comparison = compare(epochs, epochs)
    assert comparison.of_stages(["validate"]).wholes == comparison.of_measurements([("train", "forward")]).wholes == ()
    assert comparison.of_stages(["train"]).of_measurements([("train", "iteration")]).wholes == comparison.wholes != ()


@pytest.mark.parametrize("lacking", [0, 7, 39])
def test_a_batch_that_one_rank_lacks_shifts_none_of_the_others(lacking: int, tmp_path: Path) -> None:
    """With an optimizer's step in one of four."""
    many_ns = [phases(forward=(10 + n % 4) * MS, **({"optimizer_step": MS} if n % 4 == 3 else {})) for n in range(40)]
    for rank in range(2):
        lines = [line for line in rows(many_ns) if not rank or line.batch_idx != lacking]
        write_lines(tmp_path, [header(rank=rank, world_size=2), *lines, end()], rank=rank)

    train = read_times(tmp_path).stages["train"]
    common = [ns for n, ns in enumerate(many_ns) if n != lacking]
    np.testing.assert_array_equal(train.ns[FORWARD], [ns["forward"] for ns in common])
    assert len(train.ns[Measured("optimizer_step", "host")]) == sum("optimizer_step" in ns for ns in common)


def test_batches_that_come_again_in_an_epoch_belong_together_in_their_order(tmp_path: Path) -> None:
    """As validation that is repeated."""
    for rank in range(2):
        lines = [
            row(n % 5, phases(forward=(10 + n + 100 * rank) * MS), start_ns=n, stage="validate")
            for n in range(10 - rank)
        ]
        write_lines(tmp_path, [header(rank=rank, world_size=2), *lines, end()], rank=rank)

    forward = read_times(tmp_path).stages["validate"].ns[FORWARD]
    np.testing.assert_array_equal(forward, [(60.0 + n) * MS for n in range(9)])


def test_a_rank_with_few_of_the_iterations_is_said(tmp_path: Path) -> None:
    times = write_ranks(tmp_path, [phases(forward=MS)] * 100, [phases(forward=MS)] * 5)

    assert times.problems == ("train: of the 100 iterations of the first rank 5 are on all ranks, and compared",)


def test_the_batches_of_ranks_that_have_different_sizes_have_none(tmp_path: Path) -> None:
    """Or it would depend on which of them is the first."""
    for rank, samples in enumerate((16, 64)):
        found = rows([phases(forward=MS)] * 20, samples=samples)
        write_lines(tmp_path, [header(rank=rank, world_size=2), *found, end()], rank=rank)

    assert read_times(tmp_path).stages["train"].batch_size is None
