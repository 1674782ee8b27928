"""Uses the public names as users do. Nothing runs it: the type checker reads it."""

from __future__ import annotations

from lightning.pytorch import Callback, Trainer

from lightning_timing import (
    CUDAProfilerCallback,
    NVTXCallback,
    NVTXRangeWrapper,
    Stopwatch,
    StopwatchCallback,
    TimingError,
    build_callbacks,
    span,
)


@span("square")
def square(x: int) -> int:
    return x * x


@span("fetch")
async def fetch(url: str) -> bytes:
    return url.encode()


async def awaited() -> bytes:
    return await fetch("https://example.org")


def measured() -> int:
    Stopwatch().enable(num_warmup_iters=10, print_every_n_iters=None, do_cuda_sync=False)
    Stopwatch(10, 100, False)
    Stopwatch().set_cpu_usage_meas_name("step")
    Stopwatch().start_one_time_measurement("load")
    Stopwatch().end_one_time_measurement("load")
    Stopwatch().start_meas("step")
    with span("inner"):
        result = square(3)
    Stopwatch().end_meas("step")
    Stopwatch().finish_iter()
    Stopwatch().print_eval_times()
    count: int = Stopwatch().get_num_nonwarmup_iters_measured()
    mean_s: float | None = Stopwatch().summary().stages["train"].measurements["step"].mean_s
    Stopwatch().disable()
    Stopwatch().reset()
    return result + count + int(mean_s or 0)


def marked() -> bool:
    NVTXRangeWrapper().enable(sync_on_push=False, sync_on_pop=False, keep_track_of_range_order=True)
    NVTXRangeWrapper().range_push("a")
    try:
        NVTXRangeWrapper().range_pop("a")
        NVTXRangeWrapper().range_pop()
    except TimingError:
        NVTXRangeWrapper().disable()
    return NVTXRangeWrapper().is_enabled


def trained() -> Trainer:
    callbacks: list[Callback] = [
        StopwatchCallback(num_warmup_iters=5, print_every_n_iters=50, ranks="all", device_time="events"),
        NVTXCallback(keep_track_of_range_order=True),
        CUDAProfilerCallback(start_step=20, num_steps=10, ranks=[0, 1], sync=True),
        *build_callbacks({"stopwatch": {"_target_": "lightning_timing.StopwatchCallback", "enable": True}}),
    ]
    return Trainer(callbacks=callbacks)
