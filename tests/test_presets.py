"""The presets: what they say, how they are overridden and relocated, and the callbacks that they make."""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.utils import instantiate
from omegaconf import OmegaConf
from programs import output_of, run_program

from lightning_timing import CUDAProfilerCallback, NVTXCallback, StopwatchCallback, TimingError, build_callbacks
from lightning_timing.errors import PresetError
from lightning_timing.presets import load_preset, preset_names

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

NAMES = ["debug", "evaluation", "profiling", "training"]
CLASSES = {
    "stopwatch": StopwatchCallback,
    "nvtx_range_wrapper": NVTXCallback,
    "cuda_profiler": CUDAProfilerCallback,
}
FOR_CODE = {"clock", "runtime"}
"""Arguments that no config can give."""


def composed(folder: Path, *overrides: str) -> Any:
    """The config of a Hydra app that has none of its own, after the given command line."""
    with initialize_config_dir(str(folder), version_base="1.3"):
        return compose(overrides=list(overrides))


def switched_on(preset: Any) -> list[str]:
    return [name for name, node in preset.items() if node["enable"]]


def test_the_presets_are_the_files_of_the_group() -> None:
    assert preset_names() == NAMES


@pytest.mark.parametrize(
    ("name", "on", "range_order", "on_misuse"),
    [
        ("training", [], False, "warn"),
        ("evaluation", ["stopwatch"], False, "warn"),
        ("profiling", ["stopwatch", "nvtx_range_wrapper", "cuda_profiler"], False, "warn"),
        ("debug", ["stopwatch", "nvtx_range_wrapper", "cuda_profiler"], True, "raise"),
    ],
)
def test_what_each_preset_switches_on(name: str, on: list[str], range_order: bool, on_misuse: str) -> None:
    preset = load_preset(name)
    assert switched_on(preset) == on
    assert preset["nvtx_range_wrapper"]["keep_track_of_range_order"] is range_order
    assert preset["stopwatch"]["on_misuse"] == on_misuse


@pytest.mark.parametrize("name", NAMES)
def test_hydra_and_load_preset_compose_the_same(name: str, tmp_path: Path) -> None:
    config = composed(tmp_path, f"+timing={name}")
    assert OmegaConf.to_container(config) == {"timing": load_preset(name)}


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_can_be_relocated_to_an_apps_callbacks(name: str, tmp_path: Path) -> None:
    config = composed(tmp_path, f"+timing@callbacks={name}", "callbacks.stopwatch.num_warmup_iters=3")
    assert OmegaConf.to_container(config) == {"callbacks": load_preset(name, ["stopwatch.num_warmup_iters=3"])}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("node", CLASSES)
def test_any_part_can_be_switched_on_in_any_preset(name: str, node: str, tmp_path: Path) -> None:
    preset = composed(tmp_path, f"+timing={name}", f"timing.{node}.enable=true").timing
    assert switched_on(preset) == [part for part in CLASSES if part == node or part in switched_on(load_preset(name))]


def test_an_apps_own_preset_can_start_from_ours(tmp_path: Path) -> None:
    (tmp_path / "timing").mkdir()
    (tmp_path / "timing" / "mine.yaml").write_text("defaults: [evaluation, _self_]\nstopwatch: {ranks: [0, 1]}\n")
    config = composed(tmp_path, "+timing=mine")
    assert OmegaConf.to_container(config) == {"timing": load_preset("evaluation", ["stopwatch.ranks=[0,1]"])}


@pytest.mark.parametrize("node", CLASSES)
def test_the_training_preset_states_every_argument_with_its_default(node: str) -> None:
    """Misspelt it could not be built, missing it could not be overridden, and different it would be no guide."""
    parameters = signature(CLASSES[node]).parameters.values()
    defaults = {argument.name: argument.default for argument in parameters if argument.name not in FOR_CODE}
    stated = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in load_preset("training")[node].items()
    }
    assert stated == {**defaults, "_target_": f"lightning_timing.{CLASSES[node].__name__}", "enable": False}


def test_overrides_are_typed_as_in_yaml() -> None:
    preset = load_preset(
        "evaluation", ["stopwatch.ranks=[0,1]", "stopwatch.print_every_n_iters=null", "cuda_profiler.sync=false"]
    )
    assert preset["stopwatch"]["ranks"] == [0, 1]
    assert preset["stopwatch"]["print_every_n_iters"] is None
    assert preset["cuda_profiler"]["sync"] is False


@pytest.mark.parametrize(
    ("name", "overrides", "said"),
    [
        ("evalution", [], "there is no preset 'evalution': the presets are debug, evaluation, profiling, training"),
        ("", [], "there is no preset ''"),
        ("../timing/debug", [], "there is no preset"),
        (
            "debug",
            ["stopwatch.warmup_iters=1"],
            "cannot apply 'stopwatch.warmup_iters=1' to the preset: it has no stopwatch.warmup_iters, "
            "but stopwatch.num_warmup_iters",
        ),
        ("debug", ["num_warmup_iters=1"], "it has no num_warmup_iters, but stopwatch.num_warmup_iters"),
        ("debug", ["stopwatch.x=1"], "it has no stopwatch.x, but stopwatch[.]"),
        ("debug", ["stopwatch"], "'stopwatch' is no override"),
        ("debug", ["stopwatch.ranks=[0"], r"cannot apply 'stopwatch.ranks=\[0' to the preset"),
    ],
)
def test_what_load_preset_refuses(name: str, overrides: Sequence[str], said: str) -> None:
    with pytest.raises(PresetError, match=said):
        load_preset(name, overrides)


def test_load_preset_leaves_a_running_apps_hydra_alone(tmp_path: Path) -> None:
    with initialize_config_dir(str(tmp_path), version_base="1.3"):
        running = GlobalHydra.instance().hydra
        load_preset("debug", ["stopwatch.enable=false"])
        assert GlobalHydra.instance().hydra is running
        assert compose(overrides=["+timing=training"]).timing.stopwatch.enable is False


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("as_config", [False, True], ids=["mapping", "OmegaConf"])
def test_build_callbacks_builds_what_is_on(name: str, as_config: bool) -> None:
    preset = load_preset(name)
    callbacks = build_callbacks(OmegaConf.create(preset) if as_config else preset)
    assert [type(callback) for callback in callbacks] == [CLASSES[node] for node in switched_on(preset)]


@pytest.mark.parametrize("nothing", [None, {}, OmegaConf.create({}), {"stopwatch": None}])
def test_build_callbacks_of_nothing_is_nothing(nothing: Any) -> None:
    assert build_callbacks(nothing) == []


def test_a_node_without_enable_is_on() -> None:
    callbacks = build_callbacks({"stopwatch": {"_target_": "lightning_timing.StopwatchCallback"}})
    assert [type(callback) for callback in callbacks] == [StopwatchCallback]


def test_values_may_refer_to_the_rest_of_the_apps_config() -> None:
    config = OmegaConf.create({"wanted": True, "timing": load_preset("training")})
    config.timing.stopwatch.enable = "${wanted}"
    assert [type(callback) for callback in build_callbacks(config.timing)] == [StopwatchCallback]


@pytest.mark.parametrize("name", NAMES)
def test_hydras_own_instantiate_builds_every_node(name: str) -> None:
    """As in apps that keep `_target_` nodes in `cfg.callbacks`: one that is off is built too, and does nothing."""
    for node, config in OmegaConf.create(load_preset(name)).items():
        assert type(instantiate(config)) is CLASSES[node]


STOPWATCH = {"_target_": "lightning_timing.StopwatchCallback", "enable": True}


@pytest.mark.parametrize(
    ("preset", "said"),
    [
        (
            "evaluation",
            "a preset must be a mapping of nodes (stopwatch, nvtx_range_wrapper, cuda_profiler), not 'evaluation': "
            "pass cfg.timing or what lightning_timing.presets.load_preset returns",
        ),
        (
            {"stopwach": STOPWATCH},
            "a preset has no node stopwach, only stopwatch, nvtx_range_wrapper, cuda_profiler: correct the name, or "
            "pass cfg.timing if this is the whole config",
        ),
        (
            {"stopwatch": True},
            "stopwatch must be a mapping with _target_, enable and the callback's arguments, not True: to switch it on "
            "or off, set stopwatch.enable",
        ),
        ({"stopwatch": {**STOPWATCH, "enable": "yes"}}, "stopwatch.enable is 'yes': set it to true or false"),
        (
            {"stopwatch": {"enable": True}},
            "stopwatch has no _target_, the class of its callback: set it to lightning_timing.StopwatchCallback",
        ),
        (
            {"nvtx_range_wrapper": {"_target_": "lightning_timing.NVTXCallback", "sync": True}},
            "nvtx_range_wrapper has no argument sync: correct the name or remove it, there are enable, sync_on_push, "
            "sync_on_pop, keep_track_of_range_order",
        ),
        (
            {"stopwatch": {**STOPWATCH, "num_warmup_iters": -1}},
            "cannot build stopwatch: num_warmup_iters takes a whole number from 0 on, got -1",
        ),
        (
            {"stopwatch": {**STOPWATCH, "num_warmup_iters": "???"}},
            "stopwatch.num_warmup_iters has no value: Missing mandatory value: num_warmup_iters: set it, or what it "
            "refers to",
        ),
        (
            OmegaConf.create({"stopwatch": {**STOPWATCH, "num_warmup_iters": "${warmup}"}}),
            "the preset's stopwatch.num_warmup_iters has no value: Interpolation key 'warmup' not found: set it, or "
            "what it refers to",
        ),
        *(
            (
                {"stopwatch": {**STOPWATCH, "_target_": target}},
                f"stopwatch._target_ is {target!r}, which is no class that can be imported: set it to "
                "lightning_timing.StopwatchCallback",
            )
            for target in ("lightning_timing.Missing", "missing.Callback", "lightning_timing", 3)
        ),
    ],
)
def test_what_build_callbacks_refuses(preset: Any, said: str) -> None:
    with pytest.raises(PresetError) as raised:
        build_callbacks(preset)
    assert str(raised.value) == said


@pytest.mark.parametrize("as_config", [False, True], ids=["mapping", "OmegaConf"])
def test_the_whole_config_is_no_preset(as_config: bool) -> None:
    config = {"model": {"width": "${unknown}"}, "timing": load_preset("evaluation")}
    with pytest.raises(PresetError) as raised:
        build_callbacks(OmegaConf.create(config) if as_config else config)
    assert str(raised.value) == (
        "build_callbacks got the whole config instead of its 'timing': call build_callbacks(cfg.timing)"
    )


def test_why_a_class_of_the_apps_own_cannot_be_built_is_said() -> None:
    with pytest.raises(PresetError, match=r"^cannot build stopwatch: .*unexpected keyword argument 'enable'$"):
        build_callbacks({"stopwatch": {"_target_": "fractions.Fraction", "enable": True}})


def test_preset_errors_are_timing_errors() -> None:
    assert issubclass(PresetError, TimingError)


def test_building_the_training_preset_imports_neither_torch_nor_lightning(tmp_path: Path) -> None:
    code = """
        import sys
        from lightning_timing import build_callbacks
        from lightning_timing.presets import load_preset
        print(build_callbacks(load_preset("training")), sorted({"torch", "lightning"}.intersection(sys.modules)))
    """
    assert output_of(run_program(code, tmp_path)) == "[] []\n"
