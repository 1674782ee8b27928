"""Fixtures for every test."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _no_preset_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A developer's own LIGHTNING_TIMING would add callbacks to the Trainers of the tests."""
    monkeypatch.delenv("LIGHTNING_TIMING", raising=False)
