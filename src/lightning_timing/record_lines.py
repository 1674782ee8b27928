"""The lines of a `rank<N>.jsonl` as they lie on disk: found, bounded and decoded. Nothing about them is trusted."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from lightning_timing.errors import BadInputError
from lightning_timing.record import SCHEMA_VERSION, IterationRow, Line, OutsideRow, SegmentEnd, SegmentHeader
from lightning_timing.regular_file import open_to_read

MAX_LINE_BYTES: Final = 16 * 2**20
"""A longer line is refused before it is read whole: a row of 10,000 measurements takes well below 1 MiB."""

_CHUNK_BYTES: Final = 2**20
_HEADER_START: Final = b'{"kind":"header"'
_ITERATION_START: Final = b'{"kind":"iteration",'

_header_decoder: Final = msgspec.json.Decoder(SegmentHeader)
_iteration_decoder: Final = msgspec.json.Decoder(IterationRow)
_decoders: Final[Mapping[str, msgspec.json.Decoder[Any]]] = {
    "header": _header_decoder,
    "iteration": _iteration_decoder,
    "outside": msgspec.json.Decoder(OutsideRow),
    "end": msgspec.json.Decoder(SegmentEnd),
}


class _Kind(msgspec.Struct):
    kind: str


class _Version(msgspec.Struct):
    schema_version: int


_kind_decoder: Final = msgspec.json.Decoder(_Kind)
_version_decoder: Final = msgspec.json.Decoder(_Version)


class CutLine:
    """Stands for a line that is not whole: what a kill or a full disk leaves behind."""


def open_regular(path: Path) -> BinaryIO:
    """Opens a file of a record for reading.

    Raises:
        BadInputError: It is not a regular file, or a link that leads out of its folder.
    """
    try:
        if not path.resolve().is_relative_to(path.parent.resolve()):
            raise BadInputError(f"{path}: a link that leads out of its folder")
        return os.fdopen(open_to_read(path), "rb")
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle, before Python 3.13
        raise BadInputError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error


def bounded_lines(file: BinaryIO, path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file with their numbers from 1, empty ones left out, in bounded memory.

    Raises:
        BadInputError: A line is longer than `MAX_LINE_BYTES`.
    """
    number = 0
    rest = b""
    while chunk := file.read(_CHUNK_BYTES):
        lines = (rest + chunk).split(b"\n")
        rest = lines.pop()
        if len(lines[0] if lines else rest) > MAX_LINE_BYTES:  # any other is shorter than a chunk
            raise BadInputError(f"{path}, line {number + 1}: longer than {MAX_LINE_BYTES >> 20} MiB")
        for line in lines:
            number += 1
            if line:
                yield number, line
    if rest:
        yield number + 1, rest


def read_lines(path: Path) -> Iterator[tuple[int, Line | CutLine]]:
    """The decoded lines of a rank's file, with their numbers from 1.

    A line that is not whole is a `CutLine` where a killed run leaves one: at the end of the file or before a header.

    Raises:
        BadInputError: A line is not one of a record, or is of another version of the schema.
    """
    cut: tuple[int, str] | None = None
    with open_regular(path) as file:
        for number, data in bounded_lines(file, path):
            if cut is not None:
                if not data.startswith(_HEADER_START):
                    raise BadInputError(f"{path}, line {cut[0]}: {cut[1]}")
                yield cut[0], CutLine()
                cut = None
            try:
                line = _decode(data)
            except msgspec.ValidationError as error:
                raise BadInputError(f"{path}, line {number}: {error}") from error
            except (msgspec.DecodeError, RecursionError) as error:
                cut = number, str(error)
            else:
                yield number, line
    if cut is not None:
        if cut[0] == 1 and not _HEADER_START.startswith(data[: len(_HEADER_START)]):
            raise BadInputError(f"{path}: not a record: {cut[1]}")
        yield cut[0], CutLine()


def read_headers(path: Path) -> Iterator[SegmentHeader]:
    """The headers in a rank's file. Those that are not valid are left out, which `read_lines` refuses.

    Raises:
        BadInputError: The file cannot be read.
    """
    with open_regular(path) as file:
        for _, data in bounded_lines(file, path):
            if data.startswith(_HEADER_START):
                with suppress(msgspec.DecodeError, RecursionError):
                    yield _header_decoder.decode(data)


def _decode(data: bytes) -> Line:
    if data.startswith(_ITERATION_START):  # nearly all of them
        return _iteration_decoder.decode(data)
    kind = _kind_decoder.decode(data).kind
    if kind not in _decoders:
        raise msgspec.ValidationError(f"unknown kind of line {kind!r:.60}")
    if kind == "header":
        check_version(data)
    line: Line = _decoders[kind].decode(data)
    check_numbers(line)
    return line


def check_version(data: bytes) -> None:
    """Checks the `schema_version` of a header or a summary.

    Raises:
        msgspec.ValidationError: It is not the one that this package reads, or absent.
    """
    version = _version_decoder.decode(data).schema_version
    if version != SCHEMA_VERSION:
        raise msgspec.ValidationError(
            f"schema version {version}; this version of lightning-timing reads version {SCHEMA_VERSION}; "
            "use the lightning-timing that wrote it"
        )


def check_numbers(found: object) -> None:
    """Checks that every whole number in a line or a summary has at most 64 bits, with which the readers calculate.

    Raises:
        msgspec.ValidationError: One has more.
    """
    try:
        msgspec.msgpack.encode(found)  # MessagePack knows no longer ones
    except OverflowError as error:
        raise msgspec.ValidationError("a number of more than 64 bits") from error
