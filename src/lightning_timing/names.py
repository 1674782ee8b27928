"""Which names a measurement or a range may have, and how messages show names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

MAX_NAME_LENGTH: Final = 512
"""Longer names are refused: they are labels in tables, charts and profilers, not data."""

MAX_MEASUREMENTS: Final = 1000
"""Different names in one stage; further ones are refused, since names generated without end would be a leak."""


def why_refused(name: object) -> str | None:
    """Says what is wrong with a name, or None if it may be used. What may be used is kept exactly as it is."""
    if not isinstance(name, str):
        return f"a name is a str, not {type(name).__name__}"
    if not name:
        return "a name may not be empty"
    if len(name) > MAX_NAME_LENGTH:
        return f"a name has at most {MAX_NAME_LENGTH} characters, not {len(name)}"
    try:
        name.encode()
    except UnicodeEncodeError:
        return "a name must be valid Unicode: lone surrogates cannot be written"
    return None


def shown(name: object) -> str:
    """A name, or whatever was given as one, as it is quoted in a message."""
    return f"{name!r:.80}"


def listed(first: Iterable[object], count: int) -> str:
    """The first of `count` things, and how many more there are: `a, b and 3 more`."""
    named = [str(thing) for thing in first]
    return ", ".join(named) + (f" and {count - len(named):,} more" if count > len(named) else "")
