"""The JSON Schemas of the record, made from its dataclasses: `rank.schema.json` (a line) and `summary.schema.json`.

After a change of `record.py`: `python -m lightning_timing.schemas` writes them anew.
"""

from __future__ import annotations

from typing import Any, Final, get_args

import msgspec

from lightning_timing.record import Line, RunSummary

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
RANK_SCHEMA_NAME: Final = "rank.schema.json"
SUMMARY_SCHEMA_NAME: Final = "summary.schema.json"

_LINES: Final = get_args(Line)


def rank_schema() -> dict[str, Any]:
    """The schema of any one line of `rank<N>.jsonl`."""
    references, definitions = msgspec.json.schema_components(_LINES)
    for line in _LINES:  # `kind` has a default in the code, and is always there in the file
        definitions[line.__name__]["required"].insert(0, "kind")
    return {"$schema": DIALECT, "title": "A line of rank<N>.jsonl", "oneOf": list(references), "$defs": definitions}


def summary_schema() -> dict[str, Any]:
    """The schema of `summary.json`."""
    return {"$schema": DIALECT, **msgspec.json.schema(RunSummary)}


def schemas() -> dict[str, bytes]:
    """The text of each schema, by its file's name."""
    found = {RANK_SCHEMA_NAME: rank_schema(), SUMMARY_SCHEMA_NAME: summary_schema()}
    return {name: msgspec.json.format(msgspec.json.encode(schema), indent=2) + b"\n" for name, schema in found.items()}
