"""Numbers and names in the form in which a reader sees them."""

from __future__ import annotations

import unicodedata
from typing import Final

UNKNOWN: Final = "-"
"""Stands for what is not known."""

_SECONDS: Final = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_ROUNDS_UP: Final = 0.99995
"""From so much of a unit on, the four digits that are shown are one of it."""
_MAX_NAME_LENGTH: Final = 60


def seconds(value: float | None) -> str:
    """A time in the unit that suits it, with three or four digits: `1.23 ms`."""
    if value is None:
        return UNKNOWN
    if value == 0:
        return "0 s"
    scale, unit = next(((scale, unit) for scale, unit in _SECONDS if abs(value) >= _ROUNDS_UP * scale), _SECONDS[-1])
    return f"{_digits(value / scale)} {unit}"


def percent(share: float | None) -> str:
    """A share of 1 as `12.3 %`."""
    return UNKNOWN if share is None else f"{100 * share:.1f} %"


def rate(count: float, total_s: float | None, unit: str) -> str:
    """`count` things in `total_s` seconds as `34.9 things/s`."""
    return f"{_digits(count / total_s)} {unit}/s" if total_s else f"{UNKNOWN} {unit}/s"


def plural(count: int, noun: str) -> str:
    """`1 iteration`, `1,000 iterations`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def printable(name: str, max_length: int = _MAX_NAME_LENGTH) -> str:
    """A name that is safe to print: on one line, without control or direction characters, and not over-long."""
    if name.isascii() and name.isprintable() and len(name) <= max_length:
        return name
    shown = "".join(_escaped(char) for char in name[: max_length + 1])
    return shown if len(shown) <= max_length else f"{shown[: max_length - 3]}..."


def _escaped(char: str) -> str:
    if char == " " or unicodedata.category(char)[0] not in "CZ":
        return char
    return char.encode("unicode_escape").decode("ascii")


def _digits(value: float) -> str:
    if 0 < abs(value) < 0.1:
        return f"{value:.3g}"  # what occurs less than once in 10 s, such as a very long iteration
    decimals = 2 if round(abs(value), 2) < 10 else 1 if round(abs(value), 1) < 1000 else 0
    return f"{value:,.{decimals}f}"
