"""The ranges of whole training runs, as an NVTX tool sees them, held against what the loop says it did."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from nvtx_recording import DOMAIN, Recording, attached, read_recording, record
from programs import output_of, run_program

if TYPE_CHECKING:
    from pathlib import Path

TRAINING = """
import json, os, sys, warnings
import torch
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader, TensorDataset
from lightning_timing import NVTXRangeWrapper, build_callbacks, span
from lightning_timing.nvtx_ranges import start_process_range
from lightning_timing.presets import load_preset

warnings.simplefilter("ignore")

class Model(LightningModule):
    def __init__(self, ending):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
        self.ending = ending
        self.seen = []

    def training_step(self, batch, batch_idx):
        self.seen.append(["train", batch_idx])
        NVTXRangeWrapper().range_push("checked")
        NVTXRangeWrapper().range_pop("checked")
        with span("mine"):
            loss = self.layer(batch[0]).sum()
            if batch_idx == 2:
                self.end()
        if batch_idx == 2 and self.ending == "left open":
            NVTXRangeWrapper().range_push("forgotten")
        return None if batch_idx == 1 and self.ending == "skip" else loss

    def end(self):
        if self.ending == "exception":
            raise RuntimeError("the user's own")
        if self.ending == "interrupt":
            raise KeyboardInterrupt
        if self.ending == "exit":
            sys.exit(3)
        if self.ending == "kill":
            os.kill(os.getpid(), 9)
        self.trainer.should_stop = self.ending == "stop"

    def validation_step(self, batch, batch_idx):
        self.seen.append(["validate", batch_idx])
        self.layer(batch[0])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

def train(preset, ending):
    model = Model(ending)
    loader = DataLoader(TensorDataset(torch.ones(4, 2)), batch_size=1)
    trainer = Trainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, num_sanity_val_steps=0, limit_val_batches=2, gradient_clip_val=1.0,
        callbacks=build_callbacks(load_preset(preset)),
    )
    raised = None
    try:
        trainer.fit(model, loader, loader)
    except BaseException as error:
        raised = type(error).__name__
    assert not NVTXRangeWrapper().is_enabled
    return {"steps": model.seen, "raised": raised}

preset, *endings = sys.argv[1:]
seen = {}
for ending in endings:
    end_run = start_process_range(f"run {ending}")
    seen[ending] = train(preset, ending)
    end_run()
print("SEEN", json.dumps(seen))
"""

ENDINGS = ("normal", "exception", "interrupt", "exit", "stop", "skip", "left open")


class Seen(NamedTuple):
    """A range, or what is expected of one."""

    path: str
    category: str | None
    payload: int | None


STEP = (
    "batch_transfer",
    "forward",
    "forward/checked",
    "forward/mine",
    "zero_grad",
    "backward",
    "grad_clip",
    "optimizer_step",
)
VALIDATION_STEP = ("batch_transfer", "forward")


class Fit(NamedTuple):
    """One call of `fit`.

    Attributes:
        recording: What the tool saw of it.
        steps: The steps that the module saw: stage and batch index.
        raised: The name of the exception that it ended with, if it did.
    """

    recording: Recording
    steps: list[tuple[str, int]]
    raised: str | None


def fits(folder: Path, preset: str, *endings: str) -> dict[str, Fit]:
    """Trains once for each ending, all in one process, and tells the fits apart by a range around each."""
    recording = record(TRAINING, folder, preset, *endings)
    seen = _seen_by_module(recording.output)
    return {
        ending: Fit(recording.during(f"run {ending}"), [(s, i) for s, i in told["steps"]], told["raised"])
        for ending, told in seen.items()
    }


def _seen_by_module(output: str) -> dict[str, dict[str, Any]]:
    (line,) = [line for line in output.splitlines() if line.startswith("SEEN ")]
    seen: dict[str, dict[str, Any]] = json.loads(line.removeprefix("SEEN "))
    return seen


@pytest.fixture(scope="module", params=["profiling", "debug"])
def with_ranges(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Fit]:
    """A fit for each ending, in a preset that makes ranges."""
    return fits(tmp_path_factory.mktemp("training"), request.param, *ENDINGS)


def expected_of(steps: list[tuple[str, int]]) -> list[Seen]:
    """The ranges that belong to steps in this order."""
    expected: list[Seen] = []
    for stage, batch_idx in steps:
        if batch_idx == 0:
            # Later epochs of training start the loader's workers where they ask for the first batch.
            parts = 1 if stage == "train" and expected else 2
            expected += [Seen("first_data_wait", stage, 0)] * parts
        inside = STEP if stage == "train" else VALIDATION_STEP
        fetched = ("data_wait", *inside) if batch_idx else inside
        paths = ("iteration", *(f"iteration/{path}" for path in fetched))
        expected += [Seen(path, stage, batch_idx) for path in paths]
    return expected


def pushed(recording: Recording) -> list[Seen]:
    return [Seen("/".join(r.path), r.category, r.payload) for r in recording.ranges if r.kind == "push"]


def test_every_range_of_a_training_follows_the_loop(with_ranges: dict[str, Fit]) -> None:
    recording, steps, raised = with_ranges["normal"]

    assert raised is None
    assert [step for step in steps if step[0] == "train"] == [("train", batch_idx) for batch_idx in range(4)] * 2
    assert [step for step in steps if step[0] == "validate"] == [("validate", 0), ("validate", 1)] * 2
    assert pushed(recording) == expected_of(steps)
    assert recording.is_balanced
    assert {r.domain for r in recording.ranges} == {DOMAIN}
    assert len({r.tid for r in recording.ranges}) == 1


@pytest.mark.parametrize(
    ("ending", "errors"),
    [
        ("exception", {"RuntimeError"}),
        ("interrupt", {"SystemExit", "KeyboardInterrupt"}),  # it depends on Lightning's version
        ("exit", {"SystemExit"}),
    ],
)
def test_whatever_ends_a_training_every_range_is_closed_innermost_first(
    with_ranges: dict[str, Fit], ending: str, errors: set[str]
) -> None:
    recording, steps, raised = with_ranges[ending]

    assert raised in errors
    assert steps == [("train", 0), ("train", 1), ("train", 2)]
    done = expected_of(steps[:2])
    cut_off = expected_of(steps)[len(done) :]
    until_mine = [entry.path for entry in cut_off].index("iteration/forward/mine") + 1
    assert pushed(recording) == done + cut_off[:until_mine]
    assert recording.is_balanced
    assert recording.closing_order[-4:] == ["mine", "forward", "iteration", "capture"]


def test_an_early_stop_leaves_nothing_open(with_ranges: dict[str, Fit]) -> None:
    recording, steps, _ = with_ranges["stop"]

    assert steps == [("train", 0), ("train", 1), ("train", 2), ("validate", 0), ("validate", 1)]
    assert pushed(recording) == expected_of(steps)
    assert recording.is_balanced


def test_a_skipped_batch_has_no_backward_and_closes_its_ranges(with_ranges: dict[str, Fit]) -> None:
    recording, steps, _ = with_ranges["skip"]

    backward = Seen("iteration/backward", "train", 1)
    assert pushed(recording) == [entry for entry in expected_of(steps) if entry != backward]
    assert recording.is_balanced


def test_a_range_that_the_user_left_open_is_closed_with_its_phase(with_ranges: dict[str, Fit]) -> None:
    recording, steps, raised = with_ranges["left open"]

    assert raised is None
    forgotten = Seen("iteration/forward/forgotten", "train", 2)
    assert [entry for entry in pushed(recording) if entry != forgotten] == expected_of(steps)
    assert pushed(recording).count(forgotten) == 2
    assert recording.is_balanced


@pytest.mark.parametrize("preset", ["training", "evaluation"])
def test_a_preset_without_ranges_makes_none(preset: str, tmp_path: Path) -> None:
    fit = fits(tmp_path, preset, "normal")["normal"]

    assert len(fit.steps) == 12
    assert fit.recording.ranges == []


def test_without_a_tool_the_same_training_runs(tmp_path: Path) -> None:
    output = output_of(run_program(TRAINING, tmp_path, "debug", "normal", "left open"))

    assert [(len(told["steps"]), told["raised"]) for told in _seen_by_module(output).values()] == [(12, None)] * 2


def test_without_the_package_nvtx_and_without_cuda_it_runs_with_one_warning_for_each(tmp_path: Path) -> None:
    code = TRAINING.replace('warnings.simplefilter("ignore")', 'sys.modules["nvtx"] = None')
    program = run_program(code, tmp_path, "profiling", "normal", "skip", CUDA_VISIBLE_DEVICES="")

    assert [(len(told["steps"]), told["raised"]) for told in _seen_by_module(output_of(program)).values()] == [
        (12, None),
        (12, None),
    ]
    said = [line for line in program.stderr.splitlines() if "lightning_timing: " in line]
    assert sum("the package nvtx is not installed" in line for line in said) == 1
    assert sum("no CUDA here" in line for line in said) == 1


def test_a_killed_training_is_recorded_up_to_there(tmp_path: Path) -> None:
    program = run_program(TRAINING, tmp_path, "profiling", "kill", **attached(tmp_path / "nvtx.jsonl"))
    recording = read_recording(tmp_path / "nvtx.jsonl")

    assert program.returncode == -9
    assert [r.name for r in recording.ranges if r.end is None] == [
        "run kill",
        "capture",
        "iteration",
        "forward",
        "mine",
    ]
    assert recording.unmatched == []
