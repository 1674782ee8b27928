"""The presets: where their files are, which there are, and reading one without a Hydra app.

The files are a Hydra config group. `load_preset` composes them with OmegaConf alone, because Hydra's own compose needs
its process-wide state, which belongs to the application that may be running.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, cast

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from lightning_timing.errors import PresetError

GROUP: Final = "timing"
"""The Hydra config group of the presets."""

BASE_PRESET: Final = "training"
"""The preset that the others start from: every node, with every argument."""


def conf_dir() -> Path:
    """The folder on Hydra's search path: package data, or the checkout's where the install is editable."""
    package = Path(__file__).parent
    shipped = package / "conf"
    return shipped if shipped.is_dir() else package.parents[1] / "conf"


def preset_names() -> list[str]:
    """The names of the presets, sorted."""
    return sorted(file.stem for file in (conf_dir() / GROUP).glob("*.yaml"))


def load_preset(name: str, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Reads a preset, for programs that do not use Hydra.

    Args:
        name: The preset: `training`, `evaluation`, `profiling` or `debug`.
        overrides: Changes to it, such as `stopwatch.num_warmup_iters=20`.

    Returns:
        The preset's nodes by name, for `build_callbacks`.

    Raises:
        PresetError: If there is no such preset, or an override names nothing in it.
    """
    names = preset_names()
    if name not in names:
        raise PresetError(f"there is no preset {name!r}: the presets are {', '.join(names)}")
    preset = _compose(name)
    for override in overrides:
        _apply(override, preset)
    return cast("dict[str, Any]", OmegaConf.to_container(preset, resolve=True))


def _apply(override: str, preset: DictConfig) -> None:
    """Changes one value that is in the preset."""
    if "=" not in override:
        raise PresetError(f"{override!r} is no override: expected one like stopwatch.num_warmup_iters=20")
    _check_key(override, preset)
    try:
        preset.merge_with_dotlist([override])
    except (OmegaConfBaseException, YAMLError) as error:
        reason = str(error).splitlines()[0]
        raise PresetError(f"cannot apply {override!r} to the preset: {reason}") from error


def _check_key(override: str, preset: DictConfig) -> None:
    key = override.partition("=")[0]
    nodes = cast("dict[str, DictConfig]", preset)
    known = [f"{node}.{option!s}" for node, options in nodes.items() for option in options if option != "_target_"]
    if key not in known:
        same_node = [name for name in known if name.startswith(f"{key.partition('.')[0]}.")]
        near = get_close_matches(key, known) or same_node or known
        raise PresetError(f"cannot apply {override!r} to the preset: it has no {key}, but {', '.join(near)}")


def _compose(name: str) -> DictConfig:
    """The preset on top of the ones that its defaults list names, all of them in the same group."""
    config = cast("DictConfig", OmegaConf.load(conf_dir() / GROUP / f"{name}.yaml"))
    defaults = config.pop("defaults", ["_self_"])
    parts = [config if entry == "_self_" else _compose(entry) for entry in defaults]
    return cast("DictConfig", OmegaConf.merge(*parts))
