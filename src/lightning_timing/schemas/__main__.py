"""Writes the schemas beside this file."""

from __future__ import annotations

from pathlib import Path

from lightning_timing.schemas import schemas

for name, text in schemas().items():
    Path(__file__).with_name(name).write_bytes(text)
