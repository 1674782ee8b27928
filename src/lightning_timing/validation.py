"""Checks of settings."""

from __future__ import annotations

from lightning_timing.errors import TimingError


def is_whole_number(value: object, least: int) -> bool:
    """Whether a setting is an int of at least `least`, and not a bool."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def check_whole_number(name: str, value: object, least: int, *, or_none: bool = False) -> None:
    """Checks a setting that takes a whole number.

    Args:
        name: What it is called.
        value: What was given.
        least: The least that it takes.
        or_none: Whether it takes None as well.

    Raises:
        TimingError: The value is no such number.
    """
    if not is_whole_number(value, least) and not (or_none and value is None):
        raise TimingError(
            f"{name} takes a whole number from {least} on{' or None (null in YAML)' if or_none else ''}, got {value!r}"
        )
