"""`lightning-timing compare`: its arguments, its three forms of output and its exit codes."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from compared_runs import noisy_ms, write_run, write_run_of_epochs
from records import MS, end, header, phases, rows, summary_of, write_lines, write_summary

from lightning_timing.cli.main import main
from lightning_timing.record import SegmentSummary

if TYPE_CHECKING:
    from pathlib import Path

    from lightning_timing.record import IterationRow

pytestmark = pytest.mark.usefixtures("_wide_terminal")


@pytest.fixture
def before(tmp_path: Path) -> Path:
    return write_run(tmp_path / "before", noisy_ms(1))


@pytest.fixture
def after(tmp_path: Path) -> Path:
    """A run whose forward takes 20 % longer."""
    return write_run(tmp_path / "after", noisy_ms(2, center=12), device="cuda:0")


def compare(*arguments: Path | str) -> int:
    return main(["compare", *map(str, arguments)])


def shown(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_text_has_medians_change_interval_verdict_and_conditions(
    before: Path, after: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare(before, after) == 0
    lines = capsys.readouterr().out.splitlines()
    (forward,) = (line.split() for line in lines if line.startswith("  forward"))
    assert forward[:5] == ["forward", "10.0", "ms", "12.0", "ms"]
    assert forward.count("%") == 3
    assert forward[-5:] == ["slower", "in", "these", "runs", "100"]
    assert ["device", "cpu", "cuda:0"] in [line.split() for line in lines]
    (place,) = (place for place, line in enumerate(lines) if line.startswith("note: one run a side"))
    assert place < lines.index("Differing conditions") < lines.index("train: medians")


def test_a_run_compared_with_itself_shows_no_difference(before: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare(before, before / "timing", "--fail-above", "0%") == 0
    text = capsys.readouterr().out
    assert "slower" not in text
    assert "faster" not in text
    assert text.count("no difference shown") == 4
    assert "conditions: no difference is recorded" in text
    assert f"note: {before / 'timing'}: this run is on both sides" in text


def test_the_summary_of_an_earlier_run_says_nothing_of_a_later_one_that_was_killed(
    after: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    times = [phases(forward=5 * MS)] * 30
    earlier = [header(segment="earlier-0"), *rows(times, segment="earlier-0"), end(segment="earlier-0")]
    killed = [header(segment="killed-0"), *rows(times, segment="killed-0")]
    run = write_lines(tmp_path / "killed", [*earlier, *killed])
    validation = rows(times, segment="earlier-0", stage="validate")
    write_summary(
        run, summary_of([*earlier, *validation], segments=(SegmentSummary("earlier-0", "fit", "completed", {}),))
    )

    assert compare(run, after) == 0
    assert "validate" not in capsys.readouterr().out


def test_json_has_numbers_as_shares_and_seconds(before: Path, after: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare(before, after, "--json") == 0
    found = shown(capsys)
    assert list(found) == [
        *(
            "before",
            "after",
            "one_run_a_side",
            "differences",
            "changes",
            "mean_iterations",
            "whole_iterations",
            "absences",
            "samples_per_second",
            "batch_sizes",
        ),
        *("notes", "fail_above"),
    ]
    assert found["one_run_a_side"] is True
    assert found["samples_per_second"] == [
        {
            "stage": "train",
            "before": pytest.approx(2909, rel=0.01),
            "after": pytest.approx(2461, rel=0.01),
            "of_one_rank": False,
        }
    ]
    assert found["fail_above"] is None
    (forward,) = (change for change in found["changes"] if change["measurement"] == "forward")
    assert forward["low"] < 0.2 < forward["high"]
    assert forward["after"] == {"time_s": pytest.approx(0.012, rel=0.01), "count": 100, "runs": 1}
    words = [forward[key] for key in ("stage", "clock", "verdict", "reason")]
    assert words == ["train", "host", "slower", None]


def test_json_has_null_for_what_is_not_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare(write_run(tmp_path / "a", [0.0]), write_run(tmp_path / "b", [1.0]), "--json") == 0
    forward = shown(capsys)["changes"][1]
    assert [forward[key] for key in ("measurement", "change", "low", "high")] == ["forward", None, None, None]


def test_markdown_is_a_table(before: Path, after: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare(before, after, "--markdown") == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("| &emsp;forward | 10.0 ms | 12.0 ms |") for line in lines) == 1


def test_what_only_some_iterations_do_is_found_by_the_mean_and_held_against_the_threshold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the optimizer's step where gradients are accumulated, which the median does not hear of."""
    sides = []
    for name, step_ms in (("before", 20), ("after", 40)):
        times = [ms + (step_ms if place % 4 == 3 else 0) for place, ms in enumerate(noisy_ms(5))]
        sides.append(write_run(tmp_path / name, times))

    assert compare(*sides, "--fail-above", "5%") == 1
    lines = capsys.readouterr().out.splitlines()
    (mean,) = (line for line in lines if line.startswith("train: an iteration takes"))
    assert "16.0 ms before, 21.0 ms after on average (+31" in mean
    assert mean.endswith("slower in these runs")
    (median,) = (line for line in lines if line.startswith("iteration"))
    assert "no difference shown" in median
    assert lines[-1].startswith("above 5 %: train mean iteration (+")

    assert compare(*sides, "--json") == 0
    (found,) = shown(capsys)["mean_iterations"]
    assert found["stage"] == "train"
    assert found["low"] < found["change"] < found["high"]
    assert compare(*sides, "--fail-above", "5%", "--measurement", "other") == 0


def test_what_lies_between_iterations_is_said_below_the_mean_iteration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As where a dataset spends at each epoch's start what each batch took before, and more."""
    sides = (
        write_run_of_epochs(tmp_path / "before", noisy_ms(1, iterations=110, center=39), 20),
        write_run_of_epochs(tmp_path / "after", noisy_ms(2, iterations=110, center=20), 600),
    )
    assert compare(*sides, "--fail-above", "5%") == 0
    lines = capsys.readouterr().out.splitlines()
    (place,) = (place for place, line in enumerate(lines) if line.startswith("train: an iteration takes"))
    assert lines[place].endswith("faster in these runs")
    whole = "train: with its part of what lies between iterations it takes 42.0 ms before, 81.0 ms after (+93."
    assert lines[place + 2].startswith(whole)
    assert lines[place + 2].endswith(" %)")
    assert lines[place + 3].startswith("train: of these +39.0 ms, first_data_wait has +58.")
    assert lines[place + 3].endswith("; forward has -19.0 ms")
    assert " ".join(lines).endswith(
        "  no whole interval above 5 % in train iteration, train mean iteration; "
        "not judged: train with what lies between iterations (+93.0 %, one run a side)"
    )

    assert compare(*sides, "--fail-above", "5%", "--json") == 0
    found = shown(capsys)
    (whole_iteration,) = found["whole_iterations"]
    assert found["fail_above"]["wholes_not_judged"] == [whole_iteration]
    assert whole_iteration["stage"] == "train"
    assert whole_iteration["before"]["time_s"] == pytest.approx(0.042, rel=0.01)
    assert [whole_iteration[key] for key in ("low", "high", "verdict", "reason")] == [
        *(None, None, "too few to compare", "one run a side")
    ]


def test_what_lies_between_iterations_is_judged_by_several_runs_a_side(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = (
        [write_run_of_epochs(tmp_path / f"{ms}-{i}", noisy_ms(i, iterations=110), ms) for i in range(3)]
        for ms in (20, 60)
    )
    assert compare("--before", *before, "--after", *after, "--fail-above", "5%") == 1
    lines = capsys.readouterr().out.splitlines()
    (whole,) = (line for line in lines if line.startswith("train: with its part of what lies between iterations"))
    assert "it takes 13.0 ms before, 17.0 ms after (+3" in whole
    assert whole.endswith("): slower")
    assert lines[-1].startswith("above 5 %: train with what lies between iterations (+")
    assert compare("--before", *after, "--after", *before, "--fail-above", "5%") == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        "no whole interval above 5 % in train iteration, train mean iteration, train with what lies between iterations"
    )


def test_runs_of_different_lengths_are_no_answer_for_what_lies_between_iterations(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short, long = (write_run_of_epochs(tmp_path / f"{n}", [9.0] * n, 600, epochs=1) for n in (110, 220))
    assert compare(long, short, "--fail-above", "5%") == 0
    lines = capsys.readouterr().out.splitlines()
    reason = "runs of different lengths: what occurs once weighs less in a longer one"
    (whole,) = (line for line in lines if line.startswith("train: with its part of what lies between iterations"))
    assert whole.endswith(f" (+19.0 %): not judged ({reason})")
    gate = f"; not judged: train with what lies between iterations (+19.0 %, {reason})"
    assert " ".join(lines).endswith(gate)


def test_several_runs_a_side(before: Path, after: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    second = write_run(tmp_path / "second", noisy_ms(3))
    assert compare("--before", before, second, "--after", after, "--json") == 0
    found = shown(capsys)
    assert (found["before"], found["after"]) == ([str(before), str(second)], [str(after)])
    assert found["changes"][0]["before"]["runs"] == 2
    assert found["one_run_a_side"] is False
    assert compare("--before", before, second, "--after", after) == 0
    text = capsys.readouterr().out
    assert "in these runs" not in text
    assert "one run a side" not in text


def test_a_run_named_twice_is_one_run(before: Path, after: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare("--before", before, before / "timing", "--after", after, "--json") == 0
    assert shown(capsys)["changes"][0]["before"] == {
        "time_s": pytest.approx(0.011, rel=0.01),
        "count": 100,
        "runs": 1,
    }


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--fail-above", "5%"], 1),
        (["--fail-above", "5"], 1),
        (["--fail-above", "30 %"], 0),
        (["--fail-above", "5%", "--measurement", "forward"], 1),
        (["--fail-above", "5%", "--measurement", "other"], 0),
        (["--fail-above", "5%", "--measurement", "other", "--measurement", "forward"], 1),
        (["--fail-above", "5%", "--json"], 1),
        (["--measurement", "forward"], 0),
    ],
)
def test_the_exit_code_says_whether_the_threshold_was_crossed(
    before: Path, after: Path, options: list[str], code: int
) -> None:
    assert compare(before, after, *options) == code


def test_faster_never_fails(before: Path, after: Path) -> None:
    assert compare(after, before, "--fail-above", "5%") == 0


def test_what_crossed_the_threshold_is_named(before: Path, after: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare(before, after, "--fail-above", "5%") == 1
    assert capsys.readouterr().out.splitlines()[-1].startswith("above 5 %: train iteration (+1")
    assert compare(before, after, "--fail-above", "50%") == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        "no whole interval above 50 % in train iteration, train mean iteration"
    )
    assert compare(before, after, "--fail-above", "5%", "--json") == 1
    gate = shown(capsys)["fail_above"]
    assert (gate["threshold"], [c["measurement"] for c in gate["crossed"]]) == (0.05, ["iteration"])


def test_what_was_guarded_and_is_gone_does_not_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(name: str, *stages: str, **more_ns: int) -> Path:
        found = [line for stage in stages for line in rows([phases(forward=10 * MS, **more_ns)] * 40, stage=stage)]
        return write_lines(tmp_path / name, [header(), *found, end()])

    both, validation, with_backward = (
        run("a", "train", "validate"),
        run("b", "validate"),
        run("c", "train", "validate", backward=0),
    )
    assert compare(both, validation, "--fail-above", "5%") == 2
    out, error = capsys.readouterr()
    assert out.splitlines()[-1].endswith("validate mean iteration; not judged: train all of it (only before)")
    assert "--fail-above cannot judge what was measured only before: all of train; --stage" in error
    assert compare(both, validation, "--fail-above", "5%", "--stage", "validate") == 0
    assert compare(validation, both, "--fail-above", "5%") == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("not judged: train all of it (only after)")

    named = ("--measurement", "forward", "--measurement", "backward", "--stage", "train", "--fail-above", "5%")
    assert compare(with_backward, both, *named) == 2
    assert "measured only before: backward of train" in capsys.readouterr().err
    assert compare(with_backward, both, "--fail-above", "5%") == 0
    capsys.readouterr()
    assert compare(both, with_backward, *named, "--json") == 0
    (new,) = shown(capsys)["fail_above"]["absences"]
    assert (new["measurement"], new["kind"]) == ("backward", "new")


def test_the_samples_a_second_of_several_ranks_are_those_of_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = write_run(tmp_path / "a", [9.0] * 20), tmp_path / "b"
    for rank in range(2):
        write_run(two, [9.0] * 20, rank=rank, world_size=2)

    assert compare(one, two) == 0
    assert (
        "throughput of one rank over all iterations: 3,200 samples/s before, 3,200 samples/s after (+0.00 %)"
        in capsys.readouterr().out.splitlines()
    )


def test_that_times_are_those_of_as_many_samples_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, samples, forward_ms in (("a", 16, 3), ("b", 64, 7)):
        found = rows([phases(forward=forward_ms * MS, other=MS)] * 40, samples=samples)
        write_lines(tmp_path / name, [header(), *found, end()])

    assert compare(tmp_path / "a", tmp_path / "b", "--fail-above", "5%") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("train: 16 samples take 4.00 ms before, 2.00 ms after on average (-50.0 %, ")
    note = (
        "note: train has batches of 16 samples before, 64 after: so that they compare, its times are "
        "those of 16 samples"
    )
    assert note in lines
    assert compare(tmp_path / "a", tmp_path / "b", "--json") == 0
    assert shown(capsys)["batch_sizes"] == [{"stage": "train", "before": [16], "after": [64], "samples": 16}]


def test_a_stage_is_shown_and_judged_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(name: str, validate_ms: int) -> Path:
        train = rows([phases(forward=10 * MS)] * 20)
        validate = rows([phases(forward=validate_ms * MS)] * 20, stage="validate")
        return write_lines(tmp_path / name, [header(), *train, *validate, end()])

    a, b = run("a", 10), run("b", 20)
    assert compare(a, b, "--fail-above", "5%") == 1
    assert compare(a, b, "--fail-above", "5%", "--stage", "train") == 0
    capsys.readouterr()
    assert compare(a, b, "--stage", "validate", "--json") == 0
    assert {change["stage"] for change in shown(capsys)["changes"]} == {"validate"}


def test_users_measurements_lie_below_their_parents(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ns = {**phases(forward=4 * MS, callbacks=MS), "callbacks/Saver": MS, "matcher": 2 * MS, "cost": MS, "alone": MS}
    made = rows([ns] * 20, device_ns={"forward": MS})
    parents = {"matcher": "forward", "cost": "matcher"}
    runs = [write_lines(tmp_path / name, [header(), *made, end()]) for name in ("a", "b")]
    for run in runs:
        write_summary(run, summary_of([header(), *made, end()], parents=parents))
    assert compare(*runs) == 0
    lines = capsys.readouterr().out.splitlines()
    first = next(place for place, line in enumerate(lines) if line.startswith("measurement "))
    assert [line[:18].rstrip() for line in lines[first + 1 : first + 10]] == [
        "iteration",
        "  forward",
        "  forward (device)",
        "    matcher",
        "      cost",
        "  callbacks",
        "    Saver",
        "  other",
        "alone",
    ]


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("cost", {"cost"}),
        ("matcher/cost", {"cost"}),
        ("forward/matcher/cost", {"cost"}),
        ("iteration/forward", {"forward"}),
        ("callbacks/Saver", {"callbacks/Saver"}),
        ("Saver", {"callbacks/Saver"}),
        ("iteration/callbacks/Saver", {"callbacks/Saver"}),
    ],
)
def test_a_measurement_may_be_named_as_reports_show_it(
    given: str, names: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ns = {**phases(forward=4 * MS, callbacks=MS), "callbacks/Saver": MS, "matcher": 2 * MS, "cost": MS}
    made = [header(), *rows([ns] * 20), end()]
    run = write_lines(tmp_path, made)
    write_summary(run, summary_of(made, parents={"matcher": "forward", "cost": "matcher"}))
    assert compare(run, run, "--measurement", given, "--fail-above", "5%", "--json") == 0
    found = shown(capsys)
    assert {change["measurement"] for change in found["changes"]} == names
    assert {change["measurement"] for change in found["fail_above"]["judged"]} == names


def test_a_path_is_found_in_the_stage_and_on_the_side_that_has_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def spanned(stage: str, phase: str) -> list[IterationRow]:
        ns, intervals = {**phases(**{phase: 4 * MS}), "net": MS}, [("net", MS, 2 * MS), (phase, 0, 4 * MS)]
        return rows([ns] * 20, stage=stage, intervals=intervals)

    both = write_lines(tmp_path / "a", [header(), *spanned("train", "forward"), *spanned("validate", "callbacks")])
    plain = write_run(tmp_path / "b", [4.0] * 20)

    for path, stage in (("forward/net", "train"), ("callbacks/net", "validate")):
        capsys.readouterr()
        assert compare(both, both, "--measurement", path, "--fail-above", "5%", "--json") == 0
        assert [found["stage"] for found in shown(capsys)["fail_above"]["judged"]] == [stage]
    assert compare(both, plain, "--stage", "train", "--measurement", "forward/net", "--json") == 0
    (absence,) = shown(capsys)["absences"]
    assert (absence["measurement"], absence["parent"], absence["kind"]) == ("net", "forward", "missing")


def test_parents_in_a_circle_end_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = [header(), *rows([{**phases(forward=MS), "a": MS, "b": MS}] * 20), end()]
    run = write_lines(tmp_path, made)
    write_summary(run, summary_of(made, parents={"a": "b", "b": "a"}))
    assert compare(run, run, "--measurement", "b/a", "--json") == 0
    assert {change["measurement"] for change in shown(capsys)["changes"]} == {"a"}


def test_parents_of_a_killed_run_are_told_by_its_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = rows(
        [{**phases(forward=4 * MS), "matcher": 2 * MS}] * 20,
        intervals=[("forward", 0, 4 * MS), ("matcher", MS, 3 * MS)],
    )
    run = write_lines(tmp_path, [header(), *made])
    assert compare(run, run) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("    matcher ") for line in lines)


def test_a_part_without_its_whole_has_its_full_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = rows([{**phases(callbacks=MS), "callbacks/Saver": MS}] * 20)
    run = write_lines(tmp_path, [header(), *made, end()])
    assert compare(run, run, "--measurement", "callbacks/Saver") == 0
    assert "\ncallbacks/Saver  " in capsys.readouterr().out


def write_run_with_parts(run_dir: Path, *, forward_ms: float, spans: dict[str, float], wait_ms: float = 1.0) -> Path:
    """A run of 40 iterations, in whose `forward` spans take milliseconds, each but `head` directly."""
    ns = phases(data_wait=round(wait_ms * MS), forward=round(forward_ms * MS), other=MS)
    ns |= {name: round(ms * MS) for name, ms in spans.items()}
    intervals = [("forward", 0, round(forward_ms * MS))]
    at = 0
    for name, ms in spans.items():
        begin = MS // 10 if name == "head" else at
        intervals.append((name, begin, begin + round(ms * MS)))
        at = max(at, begin + round(ms * MS))
    return write_lines(run_dir, [header(), *rows([ns] * 40, intervals=intervals), end()])


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        (
            {"forward_ms": 5, "spans": {"net": 4}},
            {"forward_ms": 25, "spans": {"augment": 20, "net": 4}},
            "train: of these +20.0 ms, forward has +20.0 ms, most of it in augment",
        ),
        (
            {"forward_ms": 25, "spans": {"net": 20, "head": 15}, "wait_ms": 9.0},
            {"forward_ms": 10, "spans": {"net": 9, "head": 5}, "wait_ms": 4.0},
            "train: of these -20.0 ms, forward has -15.0 ms, most of it in head; data_wait has -5.00 ms",
        ),
        (
            {"forward_ms": 5, "spans": {}, "wait_ms": 1.0},
            {"forward_ms": 4, "spans": {}, "wait_ms": 6.0},
            "train: of these +4.00 ms, data_wait has +5.00 ms; forward has -1.00 ms",
        ),
        ({"forward_ms": 5, "spans": {}}, {"forward_ms": 5, "spans": {}}, None),
    ],
)
def test_where_the_change_of_the_mean_iteration_lies(
    tmp_path: Path, before: Any, after: Any, line: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [write_run_with_parts(tmp_path / name, **run) for name, run in (("a", before), ("b", after))]

    assert compare(*runs) == 0
    found = [found for found in capsys.readouterr().out.splitlines() if found.startswith("train: of these")]
    assert found == ([] if line is None else [line])
    assert compare(*runs, "--json") == 0
    (mean,) = shown(capsys)["mean_iterations"]
    assert [part["phase"] for part in mean["parts"]] == ([] if line is None else re.findall(r"(\w+) has", line))


def test_of_several_optimizers_the_one_that_changed_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a row of both together; the parts of `callbacks`, which has one, are not named beside it."""
    runs = []
    for name, ms in (("a", 2), ("b", 9)):
        ns = {**phases(forward=5 * MS, callbacks=ms * MS), "callbacks/Saver": ms * MS, "optimizer_step/1": ms * MS}
        ns["iteration"] += ms * MS
        runs.append(write_lines(tmp_path / name, [header(), *rows([ns] * 40), end()]))

    assert compare(*runs) == 0
    line = "train: of these +14.0 ms, callbacks has +7.00 ms; optimizer_step/1 has +7.00 ms"
    assert line in capsys.readouterr().out.splitlines()


def test_how_many_rows_would_differ_by_chance_is_said_where_some_do(
    before: Path, after: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = [
        [write_run(tmp_path / f"{center}-{seed}", noisy_ms(seed, center=center)) for seed in range(3)]
        for center in (10.0, 15.0)
    ]
    assert compare("--before", *sides[0], "--after", *sides[1]) == 0
    line = "2 of 3 rows differ; had nothing changed, about 0.2 would by chance"
    assert line in capsys.readouterr().out.splitlines()

    assert compare(before, after) == 0
    line = "2 of 3 rows differ between these two runs, as they may where nothing changed"
    assert line in capsys.readouterr().out.splitlines()
    assert compare(before, after, "--measurement", "forward") == 0  # the one that was asked for
    assert "rows differ" not in capsys.readouterr().out
    assert compare(before, write_run(tmp_path / "again", noisy_ms(3))) == 0
    assert "rows differ" not in capsys.readouterr().out


def test_how_many_of_many_rows_would_differ_by_chance_is_a_plain_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = {f"callbacks/C{number}": MS for number in range(237)}

    def run(name: str, forward_ms: list[float]) -> Path:
        made = rows([{**phases(forward=round(ms * MS), callbacks=237 * MS), **parts} for ms in forward_ms])
        return write_lines(tmp_path / name, [header(), *made, end()])

    before = [run(f"before{seed}", noisy_ms(seed)) for seed in range(3)]
    after = [run(f"after{seed}", noisy_ms(seed, center=5.0)) for seed in range(3)]

    assert compare("--before", *before, "--after", *after) == 0
    line = "2 of 240 rows differ; had nothing changed, about 12 would by chance"
    assert line in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("samples", "options", "line"),
    [
        ((32, 64), [], "throughput over all iterations: 3,200 samples/s before, 3,200 samples/s after (+0.00 %)"),
        ((32, 48), [], "throughput over all iterations: 3,200 samples/s before, 2,400 samples/s after (-25.0 %)"),
        (
            (32, 48),
            ["--measurement", "iteration"],
            "throughput over all iterations: 3,200 samples/s before, 2,400 samples/s after (-25.0 %)",
        ),
        ((32, 48), ["--measurement", "forward"], None),
        ((32, None), [], None),
    ],
)
def test_samples_a_second_are_named_where_both_sides_know_them(
    tmp_path: Path,
    samples: tuple[int | None, int | None],
    options: list[str],
    line: str | None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    runs = [
        write_lines(tmp_path / name, [header(), *rows([phases(forward=ms * MS)] * 20, samples=samples_of_batch), end()])
        for name, ms, samples_of_batch in zip("ab", (10, 20), samples, strict=True)
    ]
    assert compare(*runs, *options) == 0
    found = [found for found in capsys.readouterr().out.splitlines() if found.startswith("throughput")]
    assert found == ([] if line is None else [line])


def test_what_was_not_measured_on_both_sides_is_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = write_lines(tmp_path / "a", [header(), *rows([phases(forward=MS, grad_clip=MS)] * 20), end()])
    b = write_lines(tmp_path / "b", [header(), *rows([phases(forward=MS, logging=MS)] * 20), end()])
    assert compare(a, b) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "only before: grad_clip" in lines
    assert "only after: logging" in lines


def test_the_reason_for_no_interval_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare(write_run(tmp_path / "a", [1.0]), write_run(tmp_path / "b", [1.0])) == 0
    lines = capsys.readouterr().out.splitlines()
    reason = "(measured fewer than 8 times on a side: measure longer, or give several runs a side)"
    assert f"too few to compare: iteration, forward, other {reason}" in lines
    (forward,) = (line.split() for line in lines if line.startswith("  forward"))
    assert forward[5:] == ["+0.00", "%", "-", "too", "few", "to", "compare", "1"]


def test_names_from_a_record_are_text_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "[red]a/b|c\x1b[31m\u202e"
    ns = {**phases(forward=MS), name: MS}
    run = write_lines(tmp_path, [header(settings={name: "x"}), *rows([ns] * 20), end()])
    other = write_run(tmp_path / "other", [1.0] * 20)
    for form in ([], ["--markdown"]):
        assert compare(run, other, *form) == 0
        text = capsys.readouterr().out
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert "a/b" in text
    assert compare(run, other, "--json") == 0
    assert name in [absence["measurement"] for absence in shown(capsys)["absences"]]


def test_where_long_conditions_differ_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = "/data/" + "a" * 80
    runs = [write_run(tmp_path / v, [1.0] * 20, settings={"data": f"{folder}/{v}"}) for v in ("v1", "v2")]
    assert compare(*runs, "--markdown") == 0
    (row,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("| data |"))
    assert row == f"| data | {folder}/v1 | {folder}/v2 |"


def test_names_in_the_lines_about_the_mean_are_text_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of what changed most, and of what a shorter run may have ended before."""
    name = "callbacks/a/b\x1b[31m\u202e"
    short, long = [{"iteration": MS}] * 40, [{"iteration": 9 * MS, name: 8 * MS}]
    before = write_lines(tmp_path / "before", [header(), *rows([{"iteration": 2 * MS, name: MS}] * 40), end()])
    after = write_lines(tmp_path / "after", [header(), *rows(long * 40), end()])
    without = write_lines(tmp_path / "without", [header(), *rows(short), end()])
    rare = write_lines(tmp_path / "rare", [header(), *rows((short + long) * 2), end()])
    for runs, said in (((before, after), "of these +7.00 ms, callbacks/a/b"), ((without, rare), "only: callbacks/a/b")):
        assert compare(*runs) == 0
        text = capsys.readouterr().out
        assert all(line.isprintable() for line in text.splitlines())
        assert said in " ".join(text.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{before}"], "give two runs, or --before RUN... --after RUN..."),
        (["{before}", "{after}", "{after}"], "give two runs, or --before RUN... --after RUN..."),
        (["--before", "{before}"], "give two runs, or --before RUN... --after RUN..."),
        (
            ["{before}", "{after}", "--measurement", "typo"],
            "no measurement 'typo' in any stage but sanity_check on either side; there is iteration, forward, other",
        ),
        (
            ["{before}", "{after}", "--measurement", "forwrd"],
            "no measurement 'forwrd' in any stage but sanity_check on either side; there is forward, iteration, other",
        ),
        (["{before}", "{after}", "--stage", "test"], "nothing was measured in test on either side"),
        (["{before}", "{after}/missing"], "missing: no such folder"),
    ],
    ids=[
        "one run",
        "three runs",
        "before alone",
        "unknown measurement",
        "misspelled measurement",
        "unknown stage",
        "no record",
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    before: Path, after: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare(*(argument.format(before=before, after=after) for argument in arguments)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_the_only_run_below_a_folder_is_the_one_meant(
    before: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logged = write_run(tmp_path / "w1" / "lightning_logs" / "version_0", noisy_ms(2))
    assert compare(before, tmp_path / "w1", "--json") == 0
    assert shown(capsys)["after"] == [str(logged)]
    write_run(tmp_path / "w1" / "lightning_logs" / "version_1", noisy_ms(3))
    assert compare(before, tmp_path / "w1") == 2
    several = f"{tmp_path / 'w1'}: several runs below it: {logged}, {logged.with_name('version_1')}; give one of them"
    assert several in capsys.readouterr().err


def test_what_is_no_run_is_said_with_what_to_give(
    before: Path, after: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    give = "give the folder of a run, the one that holds timing/rank<N>.jsonl or summary.json"
    assert compare(before, tmp_path / "nope") == 2
    assert f"{tmp_path / 'nope'}: no such folder; {give}; there is {after}, {before}" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert compare(before, tmp_path / "empty") == 2
    assert f"{tmp_path / 'empty'}: no record here, as where timing was off; {give}\n" in capsys.readouterr().err
    assert compare(before, "/nope") == compare(before, "nope") == 2
    assert "there is" not in capsys.readouterr().err


def test_a_threshold_with_nothing_to_judge_is_bad_input(
    before: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    killed = write_lines(tmp_path / "killed", [header()])
    assert compare(before, killed) == 0
    assert compare(before, killed, "--fail-above", "5%") == 2
    assert "nothing to judge" in capsys.readouterr().err


def test_a_threshold_that_no_interval_is_held_against_is_bad_input_not_a_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else a job whose runs are too short would pass whatever happened."""

    def run(name: str, train_ms: int, train_rows: int) -> Path:
        train = rows([phases(forward=train_ms * MS)] * train_rows)
        validate = rows([phases(forward=10 * MS)] * 20, stage="validate")
        return write_lines(tmp_path / name, [header(), *train, *validate, end()])

    short = run("before", 10, 4), run("after", 500, 4)
    assert compare(*short, "--fail-above", "5%", "--stage", "train") == 2
    captured = capsys.readouterr()
    assert "too few to compare" in captured.out
    assert "nothing to hold against 5 %; not judged: train iteration (too few to compare), " in captured.out
    assert (
        "--fail-above has nothing to judge: iteration in train: measured fewer than 8 times on a side: measure longer"
    ) in captured.err
    assert compare(*short, "--fail-above", "5%") == 0
    assert " ".join(capsys.readouterr().out.split()).endswith(
        "no whole interval above 5 % in validate iteration; not judged: train iteration (too few to compare), "
        "train mean iteration (+4,900 %, too few to compare)"
    )


def test_what_may_be_above_the_threshold_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = write_run(tmp_path / "a", [8.0, 12.0] * 20), write_run(tmp_path / "b", [8.5, 12.5] * 20)

    assert compare(before, after, "--fail-above", "5%", "--measurement", "forward") == 0
    assert (
        capsys.readouterr()
        .out.splitlines()[-1]
        .startswith("no whole interval above 5 % in train forward; it may be more in train forward (-")
    )
    assert compare(before, after, "--fail-above", "5%", "--measurement", "forward", "--json") == 0
    gate = shown(capsys)["fail_above"]
    assert gate["undecided"] == gate["judged"] != []


def test_what_is_too_uneven_to_compare_does_not_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its interval holds nearly everything, and is not shown."""
    before, after = write_run(tmp_path / "a", [1.0] * 20), write_run(tmp_path / "b", [0.5, 50.0] * 10)
    assert compare(before, after, "--fail-above", "5%", "--measurement", "forward") == 2
    assert "forward in train: the ends of the interval are a factor of 10 or more apart" in capsys.readouterr().err
    both = ("--measurement", "forward", "--measurement", "other")
    assert compare(before, after, "--fail-above", "5%", *both) == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        "no whole interval above 5 % in train other; not judged: train forward (too uneven to compare)"
    )


@pytest.mark.parametrize("threshold", ["five", "nan%", "inf", ""])
def test_a_threshold_is_a_number(before: Path, threshold: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        compare(before, before, "--fail-above", threshold)
    assert stopped.value.code == 2
    assert "a percentage such as 5%" in capsys.readouterr().err


def test_the_interval_stays_on_a_narrow_terminal(
    before: Path, after: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert compare(before, after) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "95 % interval verdict" in text
    assert "columns left out at 80 characters: after, counts (a wider" in text


def test_counts_that_differ_are_both_shown(before: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shorter = write_run(tmp_path / "shorter", noisy_ms(2, iterations=50))
    assert compare(before, shorter) == 0
    (forward,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("  forward"))
    assert forward.endswith("  100 / 50")


def test_the_sanity_check_is_compared_where_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [header(), *rows([phases(forward=MS)] * 20), *rows([phases(forward=MS)] * 20, stage="sanity_check"), end()]
    run, other = write_lines(tmp_path / "a", lines), write_lines(tmp_path / "b", lines)
    assert compare(run, other, "--json") == 0
    found = shown(capsys)
    assert {item["stage"] for item in (*found["changes"], *found["samples_per_second"])} == {"train"}
    assert compare(run, other, "--json", "--stage", "sanity_check") == 0
    assert {change["stage"] for change in shown(capsys)["changes"]} == {"sanity_check"}


def test_an_end_of_an_interval_that_is_absurd_is_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = write_run(tmp_path / "a", [1.0] * 20)
    assert compare(before, write_run(tmp_path / "b", [50.0] * 20), "--measurement", "forward") == 0
    assert "  > +1,000 %  slower" in capsys.readouterr().out


def test_what_is_too_uneven_has_no_interval_and_the_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = write_run(tmp_path / "a", [1.0] * 20), write_run(tmp_path / "b", [0.5, 50.0] * 10)
    assert compare(before, after, "--measurement", "forward") == 0
    lines = capsys.readouterr().out.splitlines()
    reason = "(the ends of the interval are a factor of 10 or more apart)"
    assert f"too uneven to compare: forward {reason}" in lines
    (forward,) = (line.split() for line in lines if line.startswith("forward"))
    assert forward[5:] == ["+2,425", "%", "-", "too", "uneven", "to", "compare", "20"]
    assert compare(before, after, "--measurement", "forward", "--json") == 0
    (forward,) = shown(capsys)["changes"]
    assert (forward["verdict"], forward["low"]) == ("too uneven to compare", pytest.approx(-0.5))
