from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from simulated_device import MS, SimulatedClock, SimulatedDevice, SimulatedEvent, Stream

from lightning_timing.device import TorchDevice, synchronize, torch_device
from lightning_timing.device_timer import DeviceTimer

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


class TorchEvent:
    """torch's side of an event, on a simulated device."""

    def __init__(self, device: SimulatedDevice) -> None:
        self._device = device
        self.event = SimulatedEvent()

    def record(self, stream: Stream) -> None:
        with self._device.on(stream):
            self._device.record(self.event)

    def query(self) -> bool:
        return self._device.is_ready(self.event)

    def elapsed_time(self, end: TorchEvent) -> float:
        return self._device.elapsed_ns(self.event, end.event) / MS


class TorchApi:
    """torch's side of several devices, as `torch.accelerator` and `torch.cuda` have it. The first one is current."""

    def __init__(self, *devices: SimulatedDevice) -> None:
        self._devices = devices
        self.initialized = True

    def _device(self, device: torch.device | int | None = None) -> SimulatedDevice:
        index = device.index if isinstance(device, torch.device) else device
        return self._devices[index or 0]

    def current_stream(self, device: torch.device | int | None = None) -> Stream:
        return self._device(device).current

    def synchronize(self, device: torch.device | int | None = None) -> None:
        self._device(device).synchronize()

    def is_initialized(self) -> bool:
        return self.initialized

    def is_current_stream_capturing(self) -> bool:
        return self._device().is_capturing()


@pytest.fixture
def two_devices() -> tuple[SimulatedDevice, SimulatedDevice]:
    clock = SimulatedClock()
    return SimulatedDevice(clock), SimulatedDevice(clock)


def test_events_and_waits_are_the_root_devices_though_another_is_current(
    two_devices: tuple[SimulatedDevice, SimulatedDevice],
) -> None:
    current, root = two_devices
    api = TorchApi(current, root)
    device = TorchDevice(torch.device("cuda", 1), api, lambda: TorchEvent(root), api.is_current_stream_capturing)
    timer: DeviceTimer[None] = DeviceTimer(device, clock=root.clock)
    current.launch(90.0)
    begin = timer.mark()
    root.launch(40.0)
    end = timer.mark()
    timer.add("forward", (begin, end))
    timer.end_iteration(None, end)
    (times,) = timer.drain()
    assert times.samples_ns == {"forward": [40 * MS]}
    assert (current.synchronizations, root.synchronizations) == (0, 1)


# ---- which device ----


@pytest.mark.parametrize("root_device", [None, torch.device("cpu"), torch.device("meta"), torch.device("xla")])
def test_where_there_is_no_accelerator_there_is_no_device(root_device: torch.device | None) -> None:
    assert torch_device(root_device) is None


@pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without CUDA")
def test_a_cuda_device_on_a_machine_without_one_is_none() -> None:
    assert torch_device(torch.device("cuda", 0)) is None


def accelerators(device_type: str, **api: Any) -> SimpleNamespace:
    """torch.accelerator of a machine with devices of one type."""
    return SimpleNamespace(is_available=lambda: True, current_accelerator=lambda: torch.device(device_type), **api)


def test_torchs_device_agnostic_events_are_used_where_they_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr(torch, "accelerator", accelerators("xpu"), raising=False)
    monkeypatch.setattr(torch, "Event", lambda device, enable_timing: made.append((device, enable_timing)))
    device = torch_device(torch.device("xpu", 1))
    assert device is not None
    device.new_event()
    assert made == [(torch.device("xpu", 1), True)]
    assert torch_device(torch.device("cuda", 0)) is None


def test_a_type_without_graphs_is_never_capturing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "accelerator", accelerators("mps"), raising=False)
    device = torch_device(torch.device("mps"))
    assert device is not None
    assert device.is_capturing() is False


def test_older_torch_has_cuda_events(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.delattr(torch, "accelerator", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "Event", lambda **options: made.append(options))
    device = torch_device(torch.device("cuda", 0))
    assert device is not None
    device.new_event()
    assert made == [{"enable_timing": True}]
    assert torch_device(torch.device("xpu", 0)) is None


# ---- synchronizing the current device ----


@pytest.fixture
def cuda(two_devices: tuple[SimulatedDevice, SimulatedDevice], monkeypatch: pytest.MonkeyPatch) -> TorchApi:
    api = TorchApi(*two_devices)
    monkeypatch.setattr(torch, "accelerator", accelerators("cuda"), raising=False)
    monkeypatch.setattr(torch, "cuda", api)
    return api


@pytest.mark.usefixtures("cuda")
def test_it_waits_for_the_current_device(two_devices: tuple[SimulatedDevice, SimulatedDevice]) -> None:
    synchronize()
    assert [device.synchronizations for device in two_devices] == [1, 0]


@pytest.mark.usefixtures("cuda")
def test_older_torch_is_asked_for_cuda(
    two_devices: tuple[SimulatedDevice, SimulatedDevice], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(torch, "accelerator", raising=False)
    synchronize()
    assert two_devices[0].synchronizations == 1


@pytest.mark.usefixtures("cuda")
def test_it_does_not_wait_while_capturing(two_devices: tuple[SimulatedDevice, SimulatedDevice]) -> None:
    with two_devices[0].capture():
        synchronize()
    assert two_devices[0].synchronizations == 0


def test_a_device_that_nobody_used_is_not_set_up(
    cuda: TorchApi, two_devices: tuple[SimulatedDevice, SimulatedDevice]
) -> None:
    cuda.initialized = False
    synchronize()
    assert two_devices[0].synchronizations == 0


def test_without_an_accelerator_it_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    none = SimpleNamespace(current_accelerator=lambda: asked.append("which"))  # it returns None, as `append` does
    monkeypatch.setattr(torch, "accelerator", none, raising=False)
    monkeypatch.delattr(torch, "cuda")
    synchronize()

    assert asked == ["which"]


def test_it_does_not_load_torch() -> None:
    script = """
import sys
from lightning_timing.device import synchronize
synchronize()
print("torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout == "False\n"


# ---- a real one ----


@pytest.mark.gpu
@needs_gpu
def test_a_real_kernel_counts_where_it_was_enqueued() -> None:
    root = torch.device("cuda", torch.cuda.device_count() - 1)
    device = torch_device(root)
    assert device is not None
    matrix = torch.ones(8192, 8192, device=root)
    device.synchronize()
    timer: DeviceTimer[None] = DeviceTimer(device)
    begin = timer.mark()
    for _ in range(20):
        matrix @ matrix
    middle = timer.mark()
    end = timer.mark()
    timer.add("forward", (begin, middle))
    timer.add("backward", (middle, end))
    timer.end_iteration(None, end)
    assert timer.collect() == []
    (times,) = timer.drain()
    assert times.samples_ns["forward"][0] > 20 * times.samples_ns["backward"][0]


@pytest.mark.gpu
@needs_gpu
def test_a_real_capture_succeeds_and_its_replays_are_timed() -> None:
    root = torch.device("cuda", torch.cuda.current_device())
    device = torch_device(root)
    assert device is not None
    timer: DeviceTimer[int] = DeviceTimer(device)
    matrix = torch.ones(2048, 2048, device=root)
    matrix @ matrix
    device.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        begin = timer.mark()
        matrix @ matrix
        synchronize(device)
        synchronize()
        timer.add("forward", (begin, timer.mark()))
        assert timer.collect() == []
    timer.end_iteration(0, timer.mark())
    for replay in range(1, 11):
        begin = timer.mark()
        graph.replay()
        timer.add("forward", (begin, timer.mark()))
        timer.end_iteration(replay, timer.mark())
    captured, *replays = timer.drain()
    assert captured.untimed["forward"] == 1
    assert all(times.samples_ns["forward"][0] > 0 for times in replays)
    assert timer.reason is None
