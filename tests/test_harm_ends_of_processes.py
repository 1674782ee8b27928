"""However a process ends: as without timing to whoever waits for it, and with what was measured on disk."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from ledger_records import lines, rows, summary
from programs import output_of, run_program
from records import load_run

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import gc, json, os, signal, sys, time
from pathlib import Path
import torch
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader, TensorDataset
from lightning_timing import build_callbacks
from lightning_timing.presets import load_preset
from lightning_timing.record_writer import RecordWriter

LAST_BATCH = 3
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell is started with it ignored

class Model(LightningModule):
    def __init__(self, ending):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
        self.ending = ending

    def training_step(self, batch, batch_idx):
        if batch_idx == LAST_BATCH:
            self.end()
        return self.layer(batch[0]).sum()

    def end(self):
        if self.ending == "exception":
            raise RuntimeError("the user's own")
        if self.ending == "sys.exit":
            sys.exit(7)
        if self.ending in ("SIGINT", "SIGTERM"):
            os.kill(os.getpid(), getattr(signal, self.ending))
        if self.ending in ("SIGKILL", "os._exit"):
            wait_for_rows()
            os._exit(5) if self.ending == "os._exit" else os.kill(os.getpid(), signal.SIGKILL)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

def wait_for_rows():
    record = Path("timing/rank0.jsonl")
    while PRESET and (not record.exists() or record.read_text().count('"kind":"iteration"') < LAST_BATCH):
        time.sleep(0.05)

def train(ending):
    loader = DataLoader(TensorDataset(torch.ones(6, 2)), batch_size=1)
    overrides = ["stopwatch.num_warmup_iters=0"]
    trainer = Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=build_callbacks(load_preset(PRESET, overrides)) if PRESET else [],
    )
    trainer.fit(Model(ending), loader)

torch.set_num_threads(1)  # a child would wait for threads that it has not
PRESET = None
train("completed")  # what torch imports for its first step, each child would import by itself
gc.freeze()  # else each child takes a second to give back what it shares with this process
RecordWriter.__init__.__kwdefaults__["flush_interval_s"] = 0.05  # for those that are killed without notice
statuses = {}
for PRESET in (None, "profiling", "debug"):
    for ending in sys.argv[1:]:
        folder = Path(f"{PRESET} {ending}").absolute()
        folder.mkdir()
        child = os.fork()
        if not child:
            signal.alarm(60)
            os.chdir(folder)
            for number, name in ((1, "output"), (2, "errors")):
                os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), number)
            train(ending)
            sys.exit()
        statuses[folder.name] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print("STATUSES", json.dumps(statuses))
"""

ENDINGS = ("completed", "exception", "sys.exit", "SIGINT", "SIGTERM", "SIGKILL", "os._exit")
PRESETS = ("profiling", "debug")


class Ended(NamedTuple):
    """A process that ended.

    Attributes:
        folder: Where it ran.
        status: Its exit status; a signal's number if negative.
        tracebacks: How many it printed.
        last_words: The last line of its errors.
    """

    folder: Path
    status: int
    tracebacks: int
    last_words: str


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    """Each ending, in a process of its own that is forked where everything is imported; without timing and with it."""
    folder = tmp_path_factory.mktemp("ends")
    output = output_of(run_program(PROGRAM, folder, *ENDINGS))
    (told,) = [line for line in output.splitlines() if line.startswith("STATUSES ")]
    found = {}
    for name, status in json.loads(told.removeprefix("STATUSES ")).items():
        errors = (folder / name / "errors").read_text()
        last_words = errors.strip().splitlines()[-1] if "Traceback" in errors else ""
        found[name] = Ended(folder / name, status, errors.count("Traceback (most recent call last)"), last_words)
    return found


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("ending", ENDINGS)
def test_the_status_and_the_traceback_are_those_of_the_run_without_timing(
    ended: dict[str, Ended], preset: str, ending: str
) -> None:
    timed, bare = ended[f"{preset} {ending}"], ended[f"None {ending}"]

    assert timed[1:] == bare[1:]
    assert bare.tracebacks == (1 if ending == "exception" else 0)


def test_the_endings_are_what_they_are_called(ended: dict[str, Ended]) -> None:
    statuses = {ending: ended[f"None {ending}"].status for ending in ENDINGS}

    assert statuses["completed"] == 0
    assert (statuses["exception"], statuses["sys.exit"], statuses["os._exit"]) == (1, 7, 5)
    assert statuses["SIGKILL"] == -signal.SIGKILL


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize(
    ("ending", "status", "whole"),
    [
        ("completed", "completed", 6),
        ("exception", "failed", 3),
        ("sys.exit", "interrupted", 3),
        ("SIGINT", "interrupted", 3),
        ("SIGTERM", "interrupted", 4),  # Lightning lets the batch come to its end
    ],
)
def test_what_was_measured_is_on_disk_with_the_true_status(
    ended: dict[str, Ended], preset: str, ending: str, status: str, whole: int
) -> None:
    folder = ended[f"{preset} {ending}"].folder

    assert [row["batch_idx"] for row in rows(folder)] == list(range(whole))
    assert [end["status"] for end in lines(folder, "end")] == [status]
    assert summary(folder)["status"] == status
    assert summary(folder)["stages"]["train"]["iterations"] == whole


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("ending", ["SIGKILL", "os._exit"])
def test_a_process_that_had_no_time_left_is_known_as_one(ended: dict[str, Ended], preset: str, ending: str) -> None:
    folder = ended[f"{preset} {ending}"].folder

    assert [row["batch_idx"] for row in rows(folder)] == [0, 1, 2]
    assert not (folder / "timing" / "summary.json").exists()
    found: Any = load_run(folder).ranks[0]
    assert found.problems == ("no end line: the process was killed, or is still running",)
