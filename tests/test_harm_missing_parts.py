"""Where a package, a device or a system call is missing: all imports, one warning says what is off, the rest holds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from ledger_records import rows, summary
from programs import output_of, run_program

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import contextlib, gc, io, json, os, signal, sys, warnings
from pathlib import Path
import torch
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader, TensorDataset

class Model(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch, batch_idx):
        if self.trainer.callbacks:
            from lightning_timing import span
            with span("encoder"):
                return self.layer(batch[0]).sum()
        return self.layer(batch[0]).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

def train(callbacks):
    torch.manual_seed(1)
    trainer = Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=callbacks,
    )
    model = Model()
    trainer.fit(model, DataLoader(TensorDataset(torch.ones(6, 2)), batch_size=1))
    return [parameter.tolist() for parameter in model.parameters()]

ONLY_ON_POSIX = ("O_NOFOLLOW", "O_NONBLOCK", "fork", "pread", "pwrite", "register_at_fork", "sched_getaffinity")

def take_away(package):
    if package == "posix":  # as on Windows
        for name in ONLY_ON_POSIX:
            delattr(os, name)
        for name in ("SIGPIPE", "alarm"):
            delattr(signal, name)
        return
    for name in list(sys.modules):
        if name.partition(".")[0] == package:
            sys.modules[name] = None
    sys.modules[package] = None

def run_without(missing):
    for package in missing:
        take_away(package)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        from lightning_timing import Stopwatch, build_callbacks
        from lightning_timing.presets import load_preset
        imported = len(caught)
        overrides = ["stopwatch.num_warmup_iters=0", "stopwatch.print_every_n_iters=2", "stopwatch.device_time=sync"]
        overrides += ["stopwatch.do_cuda_sync=true", "nvtx_range_wrapper.sync_on_push=true"]
        weights = train(build_callbacks(load_preset("profiling", overrides)))
        by_hand = Stopwatch(0, 1, True)
        by_hand.set_cpu_usage_meas_name("mine")
        by_hand.start_meas("mine")
        by_hand.end_meas("mine")
        by_hand.finish_iter()
        by_hand.print_eval_times()
        measured = by_hand.summary().stages["train"].measurements["mine"].count
        from lightning_timing.cli.main import main
        with contextlib.redirect_stdout(io.StringIO()):
            exit_code = 0 if "rich" in missing else main(["report", "."])
    said = [str(each.message) for each in caught if str(each.message).startswith("lightning_timing: ")]
    told = {"imported": imported, "said": said, "weights": weights, "measured": measured, "exit_code": exit_code}
    Path("told.json").write_text(json.dumps(told))

torch.set_num_threads(1)  # a child would wait for threads that it has not
untimed = train([])
gc.freeze()  # else each child takes a second to give back what it shares with this process
for missing in sys.argv[1:]:
    folder = Path(missing).absolute()
    folder.mkdir()
    child = os.fork()
    if not child:
        signal.alarm(60)
        os.chdir(folder)
        os.dup2(os.open("output", os.O_WRONLY | os.O_CREAT), 1)
        run_without([package for package in missing.split("+") if package != "nothing"])
        sys.exit()
    assert os.waitpid(child, 0)[1] == 0, missing
Path("untimed.json").write_text(json.dumps(untimed))
"""

NO_CUDA = "no CUDA here, so the CUDA profiler is not started"
NO_NVTX = "the package nvtx is not installed: NVTX ranges are off (pip install nvtx)"
NO_PSUTIL = "CPU usage is off for the rest of this run"
NO_RICH = "the report cannot be printed"

MISSING = {
    "nothing": [NO_CUDA],
    "nvtx": [NO_NVTX, NO_CUDA],
    "psutil": [NO_PSUTIL, NO_CUDA, NO_PSUTIL],  # asked for twice: by the callback, and by hand
    "rich": [NO_CUDA, NO_RICH],
    "posix": [NO_CUDA],
    "nvtx+psutil+rich": [NO_PSUTIL, NO_NVTX, NO_CUDA, NO_RICH, NO_PSUTIL],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the program has trained without each of the parts, in a process for each."""
    folder = tmp_path_factory.mktemp("missing")
    output_of(run_program(PROGRAM, folder, *MISSING, CUDA_VISIBLE_DEVICES=""))
    return folder


def told(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "told.json").read_text())
    return found


@pytest.mark.parametrize("missing", MISSING)
def test_there_is_one_warning_for_each_part_that_was_asked_for(missing: str, folder: Path) -> None:
    said = told(folder / missing)["said"]

    assert told(folder / missing)["imported"] == 0
    assert len(said) == len(MISSING[missing])
    assert all(expected in found for expected, found in zip(MISSING[missing], said, strict=True)), said


@pytest.mark.parametrize("missing", MISSING)
def test_the_training_and_its_figures_are_as_they_would_be(missing: str, folder: Path) -> None:
    assert told(folder / missing)["weights"] == json.loads((folder / "untimed.json").read_text())
    assert told(folder / missing)["measured"] == 1
    assert told(folder / missing)["exit_code"] == 0
    assert [row["batch_idx"] for row in rows(folder / missing)] == list(range(6))
    assert all(row["device_ns"] is None for row in rows(folder / missing))
    found = summary(folder / missing)
    assert found["status"] == "completed"
    assert found["stages"]["train"]["measurements"]["encoder"]["count"] == 6
    assert (found["cpu_usage"] is None) == ("psutil" in missing)


@pytest.mark.parametrize("missing", MISSING)
def test_what_is_printed(missing: str, folder: Path) -> None:
    printed = (folder / missing / "output").read_text()

    assert printed.count("Written to") == 1
    assert printed.count("\ntrain: ") == (0 if "rich" in missing else 3 + 1 + 2)
