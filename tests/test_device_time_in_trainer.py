"""Device time through the callback in a real Trainer, on a simulated accelerator: cases A2 and A18."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import lightning.pytorch as pl
import pytest
import torch
from simulated_device import SimulatedClock, SimulatedDevice
from torch import Tensor, nn

from lightning_timing import Stopwatch, StopwatchCallback, span
from lightning_timing.figures import MeasurementSummary

FORWARD_MS = 50.0
BACKWARD_MS = 20.0
HOST_MS = 1.0
"""What forward and backward take on the host each: they only enqueue."""


class EnqueueingModule(pl.LightningModule):
    """Its forward and backward enqueue a long kernel each and go on."""

    def __init__(self, device: SimulatedDevice) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 1)
        self.simulated = device

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        with span("kernel"):
            self.launch(batch_idx)
        self.simulated.clock.work(HOST_MS)
        loss: Tensor = self.linear(batch).mean()
        return loss

    def launch(self, batch_idx: int) -> None:
        self.simulated.launch(FORWARD_MS)

    def backward(self, loss: Tensor) -> None:
        self.simulated.launch(BACKWARD_MS)
        self.simulated.clock.work(HOST_MS)
        loss.backward()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class CapturingModule(EnqueueingModule):
    """Captures the kernel of its fourth batch into a graph, and replays it from then on."""

    def launch(self, batch_idx: int) -> None:
        if batch_idx < 3:
            super().launch(batch_idx)
        elif batch_idx == 3:
            with self.simulated.capture() as self.graph, span("captured"):
                super().launch(batch_idx)
        else:
            with span("replayed"):
                self.simulated.replay(self.graph)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> SimulatedDevice:
    device = SimulatedDevice(SimulatedClock())
    monkeypatch.setattr("lightning_timing.callbacks.stopwatch.torch_device", lambda root_device: device)
    return device


def fit(
    module: EnqueueingModule,
    folder: Path,
    batches: int,
    device_time: Literal["events", "sync", "off"] | None,
    max_epochs: int = 1,
) -> dict[str, MeasurementSummary]:
    """Trains, and returns the measurements of the train stage, which has no warm-up."""
    callback = StopwatchCallback(num_warmup_iters=0, device_time=device_time, clock=module.simulated.clock)
    trainer = pl.Trainer(
        max_epochs=max_epochs,
        accelerator="cpu",
        callbacks=[callback],
        default_root_dir=folder,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, torch.utils.data.DataLoader(torch.ones(batches, 2), batch_size=1))
    return dict(Stopwatch().summary().stages["train"].measurements)


def rows(folder: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "timing" / "rank0.jsonl").read_text().splitlines()]
    assert lines[-1]["kind"] == "end"
    return [line for line in lines if line["kind"] == "iteration"]


def ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e3, 3)


@pytest.mark.parametrize("device_time", ["events", None])
def test_events_put_each_kernel_into_its_phase_and_never_wait_in_the_loop(
    device: SimulatedDevice, tmp_path: Path, device_time: Literal["events"] | None
) -> None:
    measurements = fit(EnqueueingModule(device), tmp_path, 6, device_time)
    for name, kernel_ms in {"forward": FORWARD_MS, "kernel": FORWARD_MS, "backward": BACKWARD_MS}.items():
        figures = measurements[name].device
        assert figures is not None
        assert (figures.count, figures.untimed) == (6, 0)
        assert (ms(figures.mean_s), ms(figures.p95_s)) == (kernel_ms, kernel_ms)
    assert ms(measurements["forward"].mean_s) == HOST_MS
    assert device.synchronizations == 1, "once, at the end"


def test_the_record_has_the_device_times_of_every_iteration(device: SimulatedDevice, tmp_path: Path) -> None:
    fit(EnqueueingModule(device), tmp_path, 6, "events")
    written = rows(tmp_path)
    assert [row["batch_idx"] for row in written] == list(range(6))
    for row in written:
        assert row["device_ns"]["forward"] == FORWARD_MS * 1e6
        assert row["device_ns"]["backward"] == BACKWARD_MS * 1e6
        assert row["device_ns"]["iteration"] == (FORWARD_MS + BACKWARD_MS) * 1e6


def test_the_summary_says_how_far_the_host_ran_ahead(device: SimulatedDevice, tmp_path: Path) -> None:
    fit(EnqueueingModule(device), tmp_path, 7, "events")
    (stage,) = json.loads((tmp_path / "timing" / "summary.json").read_text())["stages"].values()
    lead_an_iteration_ms = FORWARD_MS + BACKWARD_MS - 2 * HOST_MS
    assert ms(stage["host_ahead_s"]) == pytest.approx(4 * lead_an_iteration_ms, abs=0.5)  # the median of seven


def test_synchronizing_puts_each_kernel_into_its_phases_host_time(device: SimulatedDevice, tmp_path: Path) -> None:
    measurements = fit(EnqueueingModule(device), tmp_path, 3, "sync")
    assert ms(measurements["kernel"].mean_s) == FORWARD_MS
    assert ms(measurements["forward"].mean_s) == FORWARD_MS + HOST_MS, "the span inside it waited, then came the rest"
    assert ms(measurements["backward"].mean_s) == BACKWARD_MS, "its host time hides behind its kernel"
    assert measurements["forward"].device is None
    assert device.events_made == 0


def test_with_device_time_off_the_device_is_left_alone(device: SimulatedDevice, tmp_path: Path) -> None:
    measurements = fit(EnqueueingModule(device), tmp_path, 3, "off")
    assert ms(measurements["forward"].mean_s) == HOST_MS
    assert measurements["forward"].device is None
    assert (device.events_made, device.queries, device.synchronizations) == (0, 0, 0)


@pytest.mark.parametrize("device_time", ["events", "sync"])
def test_a_capture_in_the_loop_succeeds(
    device: SimulatedDevice, tmp_path: Path, device_time: Literal["events", "sync"]
) -> None:
    measurements = fit(CapturingModule(device), tmp_path, 14, device_time)
    assert measurements["replayed"].count == 10
    if device_time == "sync":
        assert ms(measurements["replayed"].mean_s) == FORWARD_MS
        return
    captured, replayed = measurements["captured"].device, measurements["replayed"].device
    assert captured is not None
    assert replayed is not None
    assert (captured.count, captured.untimed, captured.mean_s) == (0, 1, None)
    assert (replayed.count, replayed.untimed, ms(replayed.mean_s)) == (10, 0, FORWARD_MS)


def test_a_device_that_fails_in_the_loop_costs_its_device_times_and_one_warning(
    device: SimulatedDevice, tmp_path: Path
) -> None:
    class FailingModule(EnqueueingModule):
        def launch(self, batch_idx: int) -> None:
            if batch_idx == 3:
                self.simulated.failure = RuntimeError("an illegal memory access was encountered")
            super().launch(batch_idx)

    with pytest.warns(UserWarning, match="illegal memory access") as warned:
        measurements = fit(FailingModule(device), tmp_path, 6, "events")
    assert len([warning for warning in warned if "illegal memory access" in str(warning.message)]) == 1
    assert measurements["forward"].count == 6
    assert len(rows(tmp_path)) == 6


class WaitingModule(EnqueueingModule):
    """Waits for the device in a span: in each step, and much longer at the end of each validation."""

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        self.wait(6.0)
        loss: Tensor = self.linear(batch).mean()
        return loss

    def validation_step(self, batch: Tensor, batch_idx: int) -> None:
        """Nothing."""

    def on_validation_epoch_end(self) -> None:
        self.wait(500.0)

    def wait(self, milliseconds: float) -> None:
        with span("wait"):
            self.simulated.launch(milliseconds)
            self.simulated.clock.work(milliseconds)

    def val_dataloader(self) -> Any:
        return torch.utils.data.DataLoader(torch.ones(2, 2))


def test_device_time_between_iterations_is_of_no_iteration(device: SimulatedDevice, tmp_path: Path) -> None:
    fit(WaitingModule(device), tmp_path, batches=4, device_time="events", max_epochs=2)

    stages = json.loads((tmp_path / "timing" / "summary.json").read_text())["stages"]
    for stage, milliseconds in (("train", 6.0), ("validate", 500.0)):
        wait = stages[stage]["measurements"]["wait"]
        assert (wait["device"]["count"], wait["device"]["untimed"]) == (wait["count"], 0)
        assert ms(wait["device"]["mean_s"]) == milliseconds
    assert {ms(row["device_ns"]["wait"] / 1e9) for row in rows(tmp_path) if row["stage"] == "train"} == {6.0}
