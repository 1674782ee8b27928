"""`lightning-timing report` of a run: where its figures are from, its ranks, its forms, and hostile files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from records import MS, SEGMENT, end, header, phases, rows, summary_of, write_lines, write_summary

from lightning_timing.cli.main import main
from lightning_timing.errors import BadInputError
from lightning_timing.figures import CpuUsage
from lightning_timing.record import SegmentEnd, SegmentSummary, TimingOverhead
from lightning_timing.run_report import read_report

if TYPE_CHECKING:
    from pathlib import Path

TWENTY = [phases(data_wait=2 * MS, forward=6 * MS, other=2 * MS)] * 20
LINES = [header(), *rows(TWENTY), end()]
REBUILT = "rebuilt from the rows"

pytestmark = pytest.mark.usefixtures("_wide_terminal")


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A completed run with its summary."""
    return write_summary(write_lines(tmp_path / "run", LINES), summary_of(LINES, one_time={"setup": 1.5}))


def report(*arguments: Path | str) -> int:
    return main(["report", *map(str, arguments)])


def test_the_figures_are_those_of_the_summary(run_dir: Path) -> None:
    found = read_report(run_dir)

    assert found.source == "summary.json"
    assert found.stages == summary_of(LINES).stages
    assert found.one_time == {"setup": 1.5}
    assert found.status == "completed"
    assert found.verdict is not None
    assert found.verdict.name == "input-bound"
    assert found.problems == ()


def test_a_killed_run_is_rebuilt_from_its_rows(tmp_path: Path) -> None:
    found = read_report(write_lines(tmp_path, LINES[:-1]))

    assert found.source == "rows"
    assert found.status is None
    assert found.stages["train"].iterations == 20
    assert found.stages["train"].warmup_iterations == 10
    assert found.verdict is not None
    assert len(found.problems) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"segments": (SegmentSummary("other-0", "fit", "completed", {"train": 20}),)},
        {"segments": ()},
        {"rank": 1},
    ],
)
def test_a_summary_of_another_run_is_not_used(tmp_path: Path, changes: dict[str, Any]) -> None:
    write_summary(write_lines(tmp_path, LINES), summary_of(LINES, **changes))

    assert read_report(tmp_path).source == "rows"


def test_a_summary_from_before_the_last_rows_is_not_used(tmp_path: Path) -> None:
    write_summary(write_lines(tmp_path, LINES), summary_of(LINES[:-3]))

    assert read_report(tmp_path).source == "rows"


def test_a_summary_of_more_than_could_be_recorded_is_used(tmp_path: Path) -> None:
    """The disk was full: the rows end early, the figures were kept in memory."""
    write_summary(write_lines(tmp_path, LINES[:5]), summary_of(LINES))

    assert read_report(tmp_path).source == "summary.json"


def test_a_summary_of_several_segments_covers_them_all(tmp_path: Path) -> None:
    second = [header(segment="run-1"), *rows([phases(forward=MS)], segment="run-1", stage="test"), end(segment="run-1")]
    segments = (
        SegmentSummary(SEGMENT, "fit", "completed", {"train": 20}),
        SegmentSummary("run-1", "test", "completed", {"test": 1}),
    )
    write_summary(write_lines(tmp_path, [*LINES, *second]), summary_of([*LINES, *second], segments=segments))

    assert read_report(tmp_path).source == "summary.json"


@pytest.mark.parametrize(
    ("lines", "status"), [([], None), ([end(segment="run-1", status="failed")], "failed"), ([end()], None)]
)
def test_a_call_that_was_killed_before_its_first_row_is_not_completed(
    lines: list[SegmentEnd], status: str | None, tmp_path: Path
) -> None:
    later = header(segment="run-1", entry_point="test")
    write_summary(write_lines(tmp_path, [*LINES, later, *lines]), summary_of(LINES))

    found = read_report(tmp_path)
    assert (found.source, found.status) == ("summary.json", status)


def test_the_settings_are_those_of_all_calls(tmp_path: Path) -> None:
    workers = {"num_warmup_iters": 10, "train_loader": {"num_workers": 4}}
    waiting = [phases(data_wait=8 * MS, forward=2 * MS)] * 20
    later = header(segment="run-1", entry_point="test", settings={"num_warmup_iters": 5})
    found = read_report(write_lines(tmp_path, [header(settings=workers), *rows(waiting), end(), later]))

    assert found.settings == {**workers, "num_warmup_iters": 5}
    assert found.verdict is not None
    assert "num_workers, which is 4," in found.verdict.advice


def test_a_call_that_did_not_validate_left_none_of_it_out(tmp_path: Path) -> None:
    validated = rows(TWENTY, stage="validate", segment="run-1")
    lines = [*LINES, header(segment="run-1", entry_point="validate"), *validated]

    assert read_report(write_lines(tmp_path, lines)).stages["validate"].warmup_iterations == 1


def test_the_cpu_usage_of_training_is_none_of_another_stage(tmp_path: Path) -> None:
    waiting = [phases(data_wait=8 * MS, forward=2 * MS)] * 20
    tested = rows(waiting, stage="test", segment="run-1")
    lines = [header(), *rows(TWENTY[:5]), end(), header(segment="run-1", entry_point="test"), *tested]
    busy = CpuUsage("iteration", 190.0, 95.0, 0.95)
    write_summary(write_lines(tmp_path, lines), summary_of(lines, cpu_usage=busy))

    whole, alone = read_report(tmp_path), read_report(tmp_path).of_stage("test")
    assert whole.verdict is not None
    assert alone.verdict is not None
    assert whole.verdict.advice == alone.verdict.advice
    assert whole.verdict.advice.startswith("set the DataLoader's num_workers above 0")


def test_a_summary_alone_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(write_summary(tmp_path, summary_of(LINES))) == 0
    assert "train: 20 iterations" in capsys.readouterr().out


def test_text(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(run_dir) == 0
    text = capsys.readouterr().out

    assert text.startswith(
        f"{run_dir}/timing\nstatus: completed; figures of rank 0 of 1\n"
        "verdict: input-bound: data_wait takes 20 % of the iterations' time, the model's own work "
    )
    assert "train: 20 iterations (10 of warm-up not counted), 100.0 iterations/s, 3,200 samples/s\n" in text
    assert REBUILT not in text


def test_text_of_a_killed_run_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(write_lines(tmp_path, LINES[:-1])) == 0
    text = capsys.readouterr().out

    assert "status: killed, or still running" in text
    assert f"note: {REBUILT}" in text
    assert "no end line" not in text  # which would say it twice


def test_a_killed_run_left_out_as_many_iterations_of_each_stage_as_a_recorder_does(tmp_path: Path) -> None:
    stages = ("train", "validate", "sanity_check")
    lines = [r for stage in stages for r in rows([phases(forward=MS)] * 20, stage=stage)]

    found = read_report(write_lines(tmp_path / "ten", [header(), *lines])).stages
    none = read_report(write_lines(tmp_path / "none", [header(settings={"num_warmup_iters": 0}), *lines])).stages

    assert [found[stage].warmup_iterations for stage in stages] == [10, 1, 1]
    assert [none[stage].warmup_iterations for stage in stages] == [0, 0, 0]


@pytest.mark.parametrize("warmup", [-1, True, "10", None])
def test_a_warm_up_that_is_none_is_taken_for_none(warmup: Any, tmp_path: Path) -> None:
    found = read_report(write_lines(tmp_path, [header(settings={"num_warmup_iters": warmup}), *LINES[1:-1]]))

    assert found.stages["train"].warmup_iterations == 0


def test_markdown(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(run_dir, "--markdown") == 0
    text = capsys.readouterr().out

    assert "### train: 20 iterations (10 of warm-up not counted), 100.0 iterations/s, 3,200 samples/s\n" in text
    assert "| &emsp;data\\_wait | 20.0 % | 2.00 ms |" in text


def test_json(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(run_dir, "--json") == 0
    found = json.loads(capsys.readouterr().out)

    assert found["source"] == "summary.json"
    assert found["stages"] == msgspec.to_builtins(summary_of(LINES).stages)
    assert found["verdict"]["name"] == "input-bound"
    assert found["ranks"] == {}


def test_html(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = run_dir / "page.html"

    assert report(run_dir, "--html", page) == 0
    assert capsys.readouterr().out == f"{page}\n"
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_a_page_that_cannot_be_written(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(run_dir, "--html", run_dir / "nothing" / "page.html") == 2
    assert "cannot be written" in capsys.readouterr().err


def test_one_stage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its verdict too, and no CPU usage, which is training's."""
    test = rows([phases(forward=MS, data_wait=MS)] * 20, stage="test")
    for rank in (0, 1):
        lines = [header(rank=rank, world_size=2), *LINES[1:-1], *test, end()]
        write_lines(tmp_path, lines, rank=rank)

    assert report(tmp_path, "--stage", "test") == 0
    text = capsys.readouterr().out
    assert "verdict: input-bound: data_wait takes 50 % of the iterations' time" in text
    assert "test: 20 iterations" in text
    assert "test: 2 ranks, 20 iterations each" in text
    assert "train:" not in text

    assert report(tmp_path, "--stage", "predict") == 2
    assert "no stage 'predict'; there is train, test" in capsys.readouterr().err


def test_each_call_of_a_killed_run_left_out_its_warm_up(tmp_path: Path) -> None:
    """A `test` between two `fit`s has none of training."""
    calls = [(f"{SEGMENT[:-1]}{place}", call) for place, call in enumerate(("fit", "test", "fit"))]
    written = []
    for segment, call in calls:
        stage = "train" if call == "fit" else call
        written += [header(segment=segment, entry_point=call), *rows(TWENTY, stage=stage, segment=segment)]
    found = read_report(write_lines(tmp_path, written))

    warmup = {name: stage.warmup_iterations for name, stage in found.stages.items()}
    assert warmup == {"train": 20, "test": 1}


def test_what_the_timing_of_several_stages_cost_is_not_said_of_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [*LINES[:-1], *rows([phases(forward=MS)] * 20, stage="test"), end()]
    for name, lines_of_run in (("both", lines), ("one", LINES)):
        figures = summary_of(lines_of_run, timing_overhead=TimingOverhead(seconds=0.01, share=0.05))
        write_summary(write_lines(tmp_path / name, lines_of_run), figures)

    said = "timing itself: 10.0 ms, 5.0 % of the time of the iterations"
    for run, options, is_said in (
        ("both", (), True),
        ("both", ("--stage", "test"), False),
        ("one", ("--stage", "train"), True),
    ):
        assert report(tmp_path / run, *options) == 0
        assert (said in capsys.readouterr().out) == is_said


def test_ranks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in range(3):
        own = phases(data_wait=(9 if rank == 1 else 1) * MS, forward=10 * MS, backward=(20 if rank == 1 else 28) * MS)
        write_lines(tmp_path, [header(rank=rank, world_size=4), *rows([own] * 20), end()], rank=rank)

    assert report(tmp_path) == 0
    text = capsys.readouterr().out
    assert "note: rank 3: no record of this run\n" in text
    assert "train: 3 ranks, 20 iterations each; mean time an iteration\n" in text
    (data_wait,) = (line.split() for line in text.splitlines() if line.startswith("data_wait"))
    assert data_wait == ["data_wait", "1.00", "ms", "1.00", "ms", "9.00", "ms", "1", "8.00", "ms"]
    assert (
        "Rank 1 holds the others up: work of its own takes it 8.00 ms an iteration longer (data_wait 8.00 ms) than "
        "the median of the others, who spend 8.00 ms more in backward."
    ) in text.replace("\n", " ")


def test_a_rank_that_holds_the_others_up_is_the_verdict(tmp_path: Path) -> None:
    """Of rank 0 alone it is its own work, in which it waits for rank 1."""
    settings = {"num_warmup_iters": 10, "ranks": "all"}
    own = ({"data_wait": 1, "backward": 19}, {"data_wait": 11, "backward": 9})
    for rank, ms in enumerate(own):
        ns = phases(forward=5 * MS, **{phase: time * MS for phase, time in ms.items()})
        write_lines(tmp_path, [header(rank=rank, world_size=2, settings=settings), *rows([ns] * 40), end()], rank=rank)

    verdict = read_report(tmp_path).verdict
    assert verdict is not None
    assert verdict.name == "rank-bound"
    assert verdict.evidence == (
        "rank 1 holds the others up: data_wait, in which it works by itself, takes it longer by 40 % of an iteration, "
        "for which the others wait in backward"
    )
    assert verdict.advice.startswith("see why rank 1 takes longer in data_wait: ")


def test_a_rank_that_is_not_slow_is_told_of_no_wait(tmp_path: Path) -> None:
    for rank in (0, 1):
        lines = [header(rank=rank, world_size=2), *rows([phases(forward=5 * MS, backward=5 * MS)] * 40), end()]
        write_lines(tmp_path, lines, rank=rank)
    (tmp_path / "alone").mkdir()
    alone = write_lines(tmp_path / "alone", [header(world_size=2, settings={"ranks": [0]}), *LINES[1:]])

    verdict, of_one = read_report(tmp_path).verdict, read_report(alone).verdict
    assert verdict is not None
    assert "slower rank" not in verdict.advice
    assert of_one is not None
    assert "slower rank" not in of_one.advice  # it waits for data


def test_ranks_of_which_none_is_slow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank, batches in ((0, 20), (1, 19)):
        lines = [header(rank=rank, world_size=2), *LINES[1 : 1 + batches], end()]
        write_lines(tmp_path, lines, rank=rank)

    assert report(tmp_path) == 0
    text = capsys.readouterr().out
    assert "train: 2 ranks, 19 to 20 iterations each" in text
    assert "No rank holds the others up.\n" in text


def test_many_ranks_fit_a_screen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in range(0, 128, 2):
        lines = [header(rank=rank, world_size=128), *rows([phases(data_wait=MS, forward=MS)] * 3)]
        write_lines(tmp_path, lines, rank=rank)

    assert report(tmp_path) == 0
    assert len(capsys.readouterr().out.splitlines()) < 40


def test_a_run_of_which_nothing_was_recorded(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="nothing was recorded"):
        read_report(write_lines(tmp_path, []))


NAMES = [
    "../../etc/passwd",
    "a/b",
    "\x1b]0;x\x07",
    "\u202eevil",
    "<script>alert(1)</script>",
    "[red]x[/]",
    "😀 日本",
    "|",
]


def test_names_of_every_kind_are_shown_on_their_own_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    named = dict.fromkeys(NAMES, MS)
    lines = [header(), *rows([{**phases(forward=9 * MS), **named}] * 10), end()]
    write_lines(tmp_path, lines)

    assert report(tmp_path) == 0
    text = capsys.readouterr().out
    assert text.isprintable() is False  # newlines
    assert all(line.isprintable() for line in text.splitlines())
    assert len([line for line in text.splitlines() if line.endswith(" 10")]) == 3 + len(NAMES)
    assert sorted(found.name for found in tmp_path.rglob("*")) == ["rank0.jsonl", "timing"]

    assert report(tmp_path, "--json") == 0
    assert set(NAMES) < set(json.loads(capsys.readouterr().out)["stages"]["train"]["measurements"])


@pytest.mark.parametrize("form", [[], ["--markdown"]])
@pytest.mark.parametrize("name", [*NAMES, "\x1b[31m\nnext: do nothing", "x" * 512])
def test_names_in_a_verdict_are_shown_on_its_line(
    name: str, form: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spent = phases(forward=10 * MS) | {name: 9 * MS}
    intervals = [("forward", 0, 10 * MS), (name, 0, 9 * MS)]
    write_lines(tmp_path / "span", [header(), *rows([spent] * 10, intervals=intervals), end()])
    spent = phases(forward=MS, callbacks=9 * MS) | {f"callbacks/{name}": 9 * MS}
    write_lines(tmp_path / "hook", [header(), *rows([spent] * 10), end()])

    for run, said in (("span", "in forward: put spans into it"), ("hook", "above all those of")):
        assert report(tmp_path / run, *form) == 0
        lines = capsys.readouterr().out.splitlines()
        assert all(line.isprintable() for line in lines)
        assert any(said in line for line in lines)
        assert sum(line.lstrip("- ").startswith("next: ") for line in lines) == 1


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=6,
)


def places_in(found: Any) -> list[tuple[Any, Any]]:
    """Every place in nested mappings and lists, as the container and the key."""
    keys = list(found) if isinstance(found, dict) else range(len(found)) if isinstance(found, list) else []
    return [place for key in keys for place in ((found, key), *places_in(found[key]))]


@st.composite
def mangled_summaries(draw: st.DrawFn) -> bytes:
    """A summary with values replaced or taken out, or bytes of it changed."""
    found = json.loads(msgspec.json.encode(summary_of(LINES, one_time={"setup": 1.5})))
    for _ in range(draw(st.integers(0, 3))):
        container, key = draw(st.sampled_from(places_in(found)))
        if isinstance(container, dict) and draw(st.booleans()):
            container.pop(key, None)
        elif isinstance(container, dict) or key < len(container):
            container[key] = draw(json_values)
    data = json.dumps(found).encode()
    if draw(st.booleans()):
        at = draw(st.integers(0, len(data)))
        data = data[:at] + draw(st.binary(max_size=4)) + data[at + draw(st.integers(0, 4)) :]
    return data


@pytest.mark.parametrize("form", ["text", "--markdown", "--json"])
@given(summary=mangled_summaries(), with_rows=st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_mangled_summary_is_reported_or_refused(
    form: str, summary: bytes, with_rows: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    run_dir = tmp_path_factory.mktemp("mangled")
    write_lines(run_dir, LINES) if with_rows else (run_dir / "timing").mkdir()
    (run_dir / "timing" / "summary.json").write_bytes(summary)

    assert report(run_dir, *([] if form == "text" else [form])) in (0, 2)
