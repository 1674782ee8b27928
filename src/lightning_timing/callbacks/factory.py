"""From a preset to the callbacks for a Trainer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import OmegaConf

from lightning_timing.errors import PresetError
from lightning_timing.presets import BASE_PRESET, load_preset

if TYPE_CHECKING:
    from lightning_timing.callbacks.lightning_base import Callback


def build_callbacks(preset: Mapping[str, Any] | None) -> list[Callback]:
    """Builds the callbacks that a preset switches on.

    Args:
        preset: A preset's nodes by name: `cfg.timing` in a Hydra app, or what `load_preset` returns. Each node has
            `_target_` (the callback's class), `enable` (default true) and the callback's arguments.

    Returns:
        The callbacks for `Trainer(callbacks=...)`, without those that are off. Empty for None.

    Raises:
        PresetError: If a node is unknown, or one that is on cannot be built.
    """
    if preset is None:
        return []
    nodes: Any = OmegaConf.to_container(preset, resolve=True) if OmegaConf.is_config(preset) else preset
    known = load_preset(BASE_PRESET)
    if not isinstance(nodes, Mapping):
        raise PresetError(f"a preset is a mapping of nodes ({', '.join(known)}), not {nodes!r}")
    if unknown := [str(name) for name in nodes if name not in known]:
        raise PresetError(f"a preset has no node {', '.join(unknown)}: its nodes are {', '.join(known)}")
    return [_build(name, node, known[name]) for name, node in nodes.items() if _is_on(name, node)]


def _is_on(name: str, node: Any) -> bool:
    if node is None:
        return False
    if not isinstance(node, Mapping):
        raise PresetError(f"{name} is a mapping with _target_, enable and the callback's arguments, not {node!r}")
    enable = node.get("enable", True)
    if not isinstance(enable, bool):
        raise PresetError(f"{name}.enable is true or false, not {enable!r}")
    return enable


def _build(name: str, node: Mapping[str, Any], known: Mapping[str, Any]) -> Callback:
    if "_target_" not in node:
        raise PresetError(f"{name} has no _target_: the class of its callback, such as {known['_target_']}")
    try:
        return cast("Callback", instantiate(dict(node), _convert_="all"))
    except InstantiationException as error:
        reason = error.__cause__ or error
        raise PresetError(f"cannot build {name}: {reason} (a preset gives it: {', '.join(known)})") from error
