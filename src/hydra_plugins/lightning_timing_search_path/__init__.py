"""Puts the presets on the search path of every Hydra app. Hydra imports this in each of them: nothing heavy here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hydra.plugins.search_path_plugin import SearchPathPlugin

from lightning_timing.presets import conf_dir

if TYPE_CHECKING:
    from hydra.core.config_search_path import ConfigSearchPath


class LightningTimingSearchPath(SearchPathPlugin):
    """Appends the folder of the `timing` group, behind the app's own, so that an app's files take precedence."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Appends the folder to `search_path`."""
        search_path.append(provider="lightning-timing", path=f"file://{conf_dir()}")
