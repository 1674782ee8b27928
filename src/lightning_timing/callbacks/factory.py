"""Builds the callbacks for a Trainer from a preset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lightning_timing.errors import PresetError
from lightning_timing.presets import BASE_PRESET, GROUP, load_preset

if TYPE_CHECKING:
    from lightning_timing.callbacks.lightning_base import Callback


def build_callbacks(preset: Mapping[str, Any] | None) -> list[Callback]:
    """Builds the callbacks that a preset switches on.

    Args:
        preset: A preset's nodes by name: `cfg.timing` in a Hydra app, or what `lightning_timing.presets.load_preset`
            returns. Each node has `_target_` (the callback's class), `enable` (default true) and the callback's
            arguments.

    Returns:
        The callbacks for `Trainer(callbacks=...)`, without those that are off. Empty for None.

    Raises:
        PresetError: If a node is unknown, or one that is on cannot be built.
    """
    if preset is None:
        return []
    known = load_preset(BASE_PRESET)
    if not isinstance(preset, Mapping):
        raise PresetError(
            f"a preset must be a mapping of nodes ({', '.join(known)}), not {preset!r}: pass cfg.{GROUP} or what "
            "lightning_timing.presets.load_preset returns"
        )
    if unknown := [str(name) for name in preset if name not in known]:
        if GROUP in unknown:
            raise PresetError(
                f"build_callbacks got the whole config instead of its {GROUP!r}: call build_callbacks(cfg.{GROUP})"
            )
        raise PresetError(
            f"a preset has no node {', '.join(unknown)}, only {', '.join(known)}: correct the name, or pass "
            f"cfg.{GROUP} if this is the whole config"
        )
    nodes = _resolved(preset)
    return [_build(name, node, known[name]) for name, node in nodes.items() if _is_on(name, node)]


def _resolved(preset: Mapping[str, Any]) -> Mapping[str, Any]:
    if not OmegaConf.is_config(preset):
        return preset
    try:
        return cast("Mapping[str, Any]", OmegaConf.to_container(preset, resolve=True))
    except OmegaConfBaseException as error:
        raise PresetError(_without_value("the preset's ", error)) from error


def _without_value(where: str, error: OmegaConfBaseException) -> str:
    reason = str(error).splitlines()[0]
    return f"{where}{error.full_key} has no value: {reason}: set it, or what it refers to"


def _is_on(name: str, node: Any) -> bool:
    if node is None:
        return False
    if not isinstance(node, Mapping):
        raise PresetError(
            f"{name} must be a mapping with _target_, enable and the callback's arguments, not {node!r}: to switch it "
            f"on or off, set {name}.enable"
        )
    enable = node.get("enable", True)
    if not isinstance(enable, bool):
        raise PresetError(f"{name}.enable is {enable!r}: set it to true or false")
    return enable


def _build(name: str, node: Mapping[str, Any], known: Mapping[str, Any]) -> Callback:
    if "_target_" not in node:
        raise PresetError(f"{name} has no _target_, the class of its callback: set it to {known['_target_']}")
    try:
        return cast("Callback", instantiate(dict(node), _convert_="all"))
    except OmegaConfBaseException as error:
        raise PresetError(_without_value(f"{name}.", error)) from error
    except InstantiationException as error:
        raise PresetError(_why_not_built(name, node, known, error.__cause__ or error)) from error


def _why_not_built(name: str, node: Mapping[str, Any], known: Mapping[str, Any], cause: BaseException) -> str:
    target, ours = node["_target_"], known["_target_"]
    if target != ours and isinstance(cause, (ImportError, InstantiationException)):
        return f"{name}._target_ is {target!r}, which is no class that can be imported: set it to {ours}"
    unknown = [str(argument) for argument in node if argument not in known]
    if target == ours and unknown:
        arguments = ", ".join(argument for argument in known if argument != "_target_")
        return f"{name} has no argument {', '.join(unknown)}: correct the name or remove it, there are {arguments}"
    return f"cannot build {name}: {' '.join(str(cause).split())}"
