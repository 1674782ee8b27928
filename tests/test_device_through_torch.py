"""The accelerator as torch has it, in a real Trainer: on a device that is registered with torch and runs on the host.

`test_device_time_in_trainer.py` puts a simulated device in the place of `TorchDevice`; here it is that which is tested,
with torch's own events, streams and autograd threads.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from programs import output_of, run_program
from queued_device.building import HERE, built_library

pytestmark = pytest.mark.skipif(
    # PyTorch 2.5 knows of no accelerator but CUDA's.
    not hasattr(torch, "accelerator"),
    reason="needs torch.accelerator",
)

FORWARD_S, SIDE_S, BACKWARD_S = 0.020, 0.035, 0.050
"""What `training.py` enqueues in each step."""


def run(code: str, folder: Path, *arguments: str) -> str:
    paths = os.pathsep.join(filter(None, [str(HERE.parent), os.environ.get("PYTHONPATH")]))
    return output_of(
        run_program(code, folder, *arguments, PYTHONPATH=paths, QUEUED_DEVICE_LIBRARY=str(built_library()))
    )


def summary(folder: Path, *arguments: str) -> dict[str, Any]:
    """Trains, and returns what it came to."""
    run((HERE / "training.py").read_text(encoding="utf-8"), folder, str(folder), *arguments)
    found: dict[str, Any] = json.loads((folder / "timing" / "summary.json").read_text(encoding="utf-8"))
    return found


def measured(folder: Path, device_time: str) -> dict[str, Any]:
    stage: dict[str, Any] = summary(folder, device_time)["stages"]["train"]
    return stage


@pytest.fixture(scope="module")
def with_events(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return measured(tmp_path_factory.mktemp("events"), "events")


def test_events_count_each_kernel_in_its_phase_on_its_stream_and_nothing_waits(with_events: dict[str, Any]) -> None:
    measurements = with_events["measurements"]
    kernels = {"forward": FORWARD_S, "side": SIDE_S, "backward": BACKWARD_S, "iteration": FORWARD_S + BACKWARD_S}
    for name, seconds in kernels.items():
        device = measurements[name]["device"]
        assert (device["count"], device["untimed"]) == (18, 0)
        assert device["p50_s"] == pytest.approx(seconds, abs=1e-6)
    # The device gets to each step's work when the host has long enqueued it.
    assert measurements["iteration"]["p50_s"] < FORWARD_S
    assert with_events["host_ahead_s"] > BACKWARD_S


def test_what_begins_while_a_stream_is_captured_is_untimed_and_spoils_nothing(with_events: dict[str, Any]) -> None:
    captured = with_events["measurements"]["captured"]

    assert captured["count"] == 1
    assert (captured["device"]["count"], captured["device"]["untimed"]) == (0, 1)


def test_a_callback_that_waits_for_the_device_does_not_set_the_pace(tmp_path: Path) -> None:
    found = summary(tmp_path, "events", "reading")

    measurements = found["stages"]["train"]["measurements"]
    waiting = measurements["callbacks/ReadsLoss"]
    assert waiting["p50_s"] > 0.9 * BACKWARD_S
    assert waiting["device"]["overlapped_s"] > 0.95 * waiting["total_s"]
    assert found["verdict"] == "compute-bound"


def test_synchronizing_makes_each_phase_wait_for_its_kernel_on_the_device_in_use(tmp_path: Path) -> None:
    measurements = measured(tmp_path, "sync")["measurements"]

    for name, seconds in {"forward": SIDE_S + FORWARD_S, "side": SIDE_S, "backward": BACKWARD_S}.items():
        assert measurements[name]["min_s"] >= seconds
        assert measurements[name]["device"] is None
    assert measurements["optimizer_step"]["p50_s"] < FORWARD_S


def test_without_device_time_the_host_is_all_that_is_measured(tmp_path: Path) -> None:
    measurements = measured(tmp_path, "off")["measurements"]

    assert measurements["iteration"]["p50_s"] < FORWARD_S
    assert measurements["iteration"]["device"] is None


def test_a_stopwatch_without_a_trainer_waits_for_the_device_that_is_current(tmp_path: Path) -> None:
    loop = """
        import torch
        from lightning_timing import Stopwatch
        from queued_device.loading import kernel

        torch.ones(1, device="queued")
        stopwatch = Stopwatch()
        stopwatch.enable(num_warmup_iters=0, do_cuda_sync=True)
        stopwatch.start_meas("kernel")
        kernel(0, 30.0)
        stopwatch.end_meas("kernel")
        stopwatch.finish_iter()
        (stage,) = stopwatch.summary().stages.values()
        print(stage.measurements["kernel"].mean_s)
    """
    assert float(run(loop, tmp_path)) >= 0.030
