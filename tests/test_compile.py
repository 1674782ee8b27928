"""Timing inside regions that torch.compile traces (case A7): it leaves no trace in the graph, and breaks none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from torch import Tensor, nn

from lightning_timing import NVTXCallback, NVTXRangeWrapper, Stopwatch, StopwatchCallback, span

Region = Callable[[Tensor], Tensor]


@pytest.fixture(autouse=True)
def everything_off() -> Iterator[None]:
    torch.compiler.reset()
    yield
    NVTXRangeWrapper().disable()
    Stopwatch().reset()
    torch.compiler.reset()


def switch_nothing_on() -> None:
    """As in a training without this package's callbacks."""


def switch_stopwatch_on() -> None:
    Stopwatch().enable(num_warmup_iters=0)


def switch_ranges_on() -> None:
    NVTXRangeWrapper().enable(keep_track_of_range_order=True)


def switch_all_on() -> None:
    switch_stopwatch_on()
    NVTXRangeWrapper().enable(sync_on_push=True, sync_on_pop=True, keep_track_of_range_order=True)


SWITCHES = [switch_nothing_on, switch_stopwatch_on, switch_ranges_on, switch_all_on]


def helper(x: Tensor) -> Tensor:
    return x.sin() * 2


timed_helper = span("helper")(helper)


class Layer(nn.Module):
    @span("layer")
    def forward(self, x: Tensor) -> Tensor:
        return helper(x)


def plain(x: Tensor) -> Tensor:
    return helper(x)


def with_measurement(x: Tensor) -> Tensor:
    Stopwatch().start_meas("helper")
    y = helper(x)
    Stopwatch().end_meas("helper")
    return y


def with_one_time_measurement_and_iteration(x: Tensor) -> Tensor:
    Stopwatch().start_one_time_measurement("first helper")
    y = helper(x)
    Stopwatch().end_one_time_measurement("first helper")
    Stopwatch().finish_iter()
    return y


def with_number_of_iterations(x: Tensor) -> Tensor:
    return helper(x) if Stopwatch().get_num_nonwarmup_iters_measured() == 0 else x


def with_range(x: Tensor) -> Tensor:
    NVTXRangeWrapper().range_push("helper")
    y = helper(x)
    NVTXRangeWrapper().range_pop("helper")
    return y


def with_span(x: Tensor) -> Tensor:
    with span("helper"), span("inside"):
        return helper(x)


def with_decorated_function(x: Tensor) -> Tensor:
    return timed_helper(x)


layer = Layer()


def with_decorated_submodule(x: Tensor) -> Tensor:
    result: Tensor = layer(x)
    return result


def measured() -> dict[str, int]:
    """How often each measurement was taken."""
    stages = Stopwatch().summary().stages
    return {name: figures.count for stage in stages.values() for name, figures in stage.measurements.items()}


@pytest.mark.parametrize("switch_on", SWITCHES)
@pytest.mark.parametrize(
    "region",
    [
        with_measurement,
        with_one_time_measurement_and_iteration,
        with_number_of_iterations,
        with_range,
        with_span,
        with_decorated_function,
        with_decorated_submodule,
    ],
)
def test_a_compiled_region_is_one_whole_graph_in_which_nothing_is_timed(
    region: Region, switch_on: Callable[[], None]
) -> None:
    switch_on()
    compiled = torch.compile(region, backend="eager", fullgraph=True)
    x = torch.ones(3)
    assert torch.equal(compiled(x), helper(x))
    assert torch.equal(compiled(x), helper(x))
    Stopwatch().finish_iter()
    assert measured() == {}
    assert Stopwatch().summary().one_time == {}
    assert NVTXRangeWrapper()._close_open_ranges() == []


@pytest.mark.parametrize("region", [with_measurement, with_span, with_decorated_function, with_decorated_submodule])
def test_switching_on_and_off_again_and_again_recompiles_once(region: Region) -> None:
    graphs = GraphCounter()
    compiled = torch.compile(region, backend=graphs, fullgraph=True)
    for _ in range(4):
        compiled(torch.ones(3))
        switch_all_on()
        compiled(torch.ones(3))
        region(torch.ones(3))
        compiled(torch.ones(3))
        NVTXRangeWrapper().disable()
        Stopwatch().disable()
    assert graphs.count <= 2


class GraphCounter:
    """A backend that counts the graphs it is given."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, graph: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., Any]:
        self.count += 1
        return graph.forward


def breaking(x: Tensor) -> Tensor:
    y = x.sin()
    torch._dynamo.graph_break()
    return y * 2


def breaking_in_span(x: Tensor) -> Tensor:
    with span("breaking"):
        y = x.sin()
        torch._dynamo.graph_break()
        return y * 2


def breaking_in_measurement(x: Tensor) -> Tensor:
    Stopwatch().start_meas("breaking")
    NVTXRangeWrapper().range_push("breaking")
    y = x.sin()
    torch._dynamo.graph_break()
    NVTXRangeWrapper().range_pop("breaking")
    Stopwatch().end_meas("breaking")
    return y * 2


@pytest.mark.parametrize("switch_on", SWITCHES)
@pytest.mark.parametrize("region", [breaking_in_span, breaking_in_measurement, span("breaking")(breaking)])
def test_a_break_of_the_users_own_leaves_as_many_graphs_as_without_timing(
    region: Region, switch_on: Callable[[], None]
) -> None:
    switch_on()
    expected = torch._dynamo.explain(breaking)(torch.ones(3))
    explained = torch._dynamo.explain(region)(torch.ones(3))
    assert expected.graph_count == 2
    assert (explained.graph_count, explained.graph_break_count) == (expected.graph_count, expected.graph_break_count)


def test_what_is_not_compiled_is_timed_beside_what_is() -> None:
    switch_stopwatch_on()
    compiled = torch.compile(with_span, backend="eager", fullgraph=True)
    compiled(torch.ones(3))
    Stopwatch().finish_iter()
    for _ in range(3):
        with span("step"):
            compiled(torch.ones(3))
        with_measurement(torch.ones(3))
        Stopwatch().finish_iter()
    assert measured() == {"step": 3, "helper": 3}


@pytest.mark.parametrize("switch_between", [switch_stopwatch_on, switch_nothing_on])
def test_hooks_that_enter_and_leave_a_held_span_may_be_compiled_before_it_is_switched_on(
    switch_between: Callable[[], None],
) -> None:
    timed, layer = span("layer"), nn.Linear(3, 3)
    layer.register_forward_pre_hook(lambda *_: timed.__enter__())
    layer.register_forward_hook(lambda *_: timed.__exit__(None, None, None))
    compiled = torch.compile(layer, backend="eager")
    batch = torch.ones(3)
    expected = nn.functional.linear(batch, layer.weight, layer.bias)
    for _ in range(2):
        assert torch.equal(compiled(batch), expected)
        switch_between()
        assert torch.equal(compiled(batch), expected)
        assert torch.equal(layer(batch), expected)  # not compiled, so its span counts where anything is enabled
        Stopwatch().finish_iter()
        counted = Stopwatch().summary().stages.get("train")
        assert (counted is not None and counted.measurements["layer"].count == 1) == Stopwatch().is_enabled
        Stopwatch().reset()


class CompiledModule(pl.LightningModule):
    """Its whole training step is compiled, spans and submodule included."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 1)
        self.layer = Layer()

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        Stopwatch().start_meas("prediction")
        with span("linear"):
            prediction = self.linear(batch)
        Stopwatch().end_meas("prediction")
        return self.layer(prediction).mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.filterwarnings("ignore::UserWarning")  # Lightning's advice on loaders and loggers
def test_a_compiled_module_trains_with_all_callbacks_and_its_first_iteration_is_warm_up(tmp_path: Path) -> None:
    graphs = GraphCounter()
    module = torch.compile(CompiledModule(), backend=graphs, fullgraph=True)
    trainer = pl.Trainer(
        max_epochs=1,
        accelerator="cpu",
        callbacks=[StopwatchCallback(num_warmup_iters=0), NVTXCallback(keep_track_of_range_order=True)],
        default_root_dir=tmp_path,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, torch.utils.data.DataLoader(torch.ones(12, 4), batch_size=2))
    train = Stopwatch().summary().stages["train"]
    assert graphs.count == 1
    assert (train.warmup_iterations, train.iterations) == (1, 5)
    assert train.measurements["forward"].count == 5
    assert not {"prediction", "linear", "layer"} & set(train.measurements)
