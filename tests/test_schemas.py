"""The JSON Schemas: as the code has them, and true of what is written."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Any

import jsonschema
import msgspec
import pytest
from records import MS, end, header, outside, phases, row, rows, summary_of

from lightning_timing import schemas
from lightning_timing.figures import CpuUsage
from lightning_timing.phases import FORWARD
from lightning_timing.record_writer import RecordWriter, write_summary

if TYPE_CHECKING:
    from pathlib import Path

LINES = [
    header(),
    outside("first_data_wait", MS, start_ns=0),
    *rows([phases(forward=MS), phases(forward=2 * MS)]),
    row(2, phases(forward=MS), start_ns=0, device_ns={FORWARD: 5}, samples=None, intervals=[(FORWARD, 0, MS)]),
    end(),
]


def shipped(name: str) -> jsonschema.Draft202012Validator:
    schema = msgspec.json.decode(files("lightning_timing.schemas").joinpath(name).read_bytes())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("name", [schemas.RANK_SCHEMA_NAME, schemas.SUMMARY_SCHEMA_NAME])
def test_what_is_shipped_is_what_the_code_says(name: str) -> None:
    assert files("lightning_timing.schemas").joinpath(name).read_bytes() == schemas.schemas()[name]


def test_every_line_that_is_written_is_valid(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path / "rank0.jsonl", LINES[0], pytest.fail)
    for line in LINES[1:-1]:
        writer.append(line)
    writer.close("interrupted")
    written = (tmp_path / "rank0.jsonl").read_bytes().splitlines()

    assert len(written) == len(LINES)
    for line in written:
        shipped(schemas.RANK_SCHEMA_NAME).validate(msgspec.json.decode(line))


def test_a_summary_that_is_written_is_valid(tmp_path: Path) -> None:
    cpu_usage = CpuUsage("iteration", 180.0, None, 0.9)
    write_summary(tmp_path / "summary.json", summary_of(LINES, cpu_usage=cpu_usage, one_time={"setup": None}))

    shipped(schemas.SUMMARY_SCHEMA_NAME).validate(msgspec.json.decode((tmp_path / "summary.json").read_bytes()))


@pytest.mark.parametrize(
    "changes", [{"kind": "footer"}, {"kind": None}, {"start_ns": "5"}, {"ns": {"iteration": 0.5}}, {"stage": None}]
)
def test_a_line_of_the_wrong_form_is_not_valid(changes: dict[str, Any]) -> None:
    line = {**msgspec.to_builtins(LINES[2]), **changes}

    assert not shipped(schemas.RANK_SCHEMA_NAME).is_valid(line)


def test_a_summary_without_a_known_key_is_not_valid() -> None:
    summary = msgspec.to_builtins(summary_of(LINES))
    del summary["stages"]

    assert not shipped(schemas.SUMMARY_SCHEMA_NAME).is_valid(summary)
