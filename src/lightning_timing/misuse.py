"""Raises or warns where measurements are used out of order."""

from __future__ import annotations

import warnings
from typing import Final, Literal

from lightning_timing.caller import caller
from lightning_timing.errors import MisuseError

NOT_MEASURED: Final = "it is not measured"
"""What follows where a name is refused."""
SAMPLE_DROPPED: Final = "its sample is dropped"
"""What follows where a measurement is started or ended out of order."""

_MAX_WARNINGS: Final = 1000
_MAX_KEY_LENGTH: Final = 80


class Misuse:
    """Raises at the first misuse, or warns once for each name.

    Args:
        on_misuse: `raise` or `warn`.
    """

    def __init__(self, on_misuse: Literal["raise", "warn"]) -> None:
        self._raises = on_misuse == "raise"
        self._warned: set[str] = set()

    def report(self, name: object, what: str, *, consequence: str, has_place: bool = True) -> None:
        """Raises, or warns once for each name, with what was done wrong and where.

        Args:
            name: The measurement's name, or what was given as one.
            what: What was done, in words.
            consequence: What follows where it is only warned of.
            has_place: Whether the line that called this package is where it was done.

        Raises:
            MisuseError: If misuse is to be raised.
        """
        key = str(name)[:_MAX_KEY_LENGTH]
        if not self._raises and (key in self._warned or len(self._warned) >= _MAX_WARNINGS):
            return
        file, line = caller()
        message = f"{what} (at {file}:{line})" if has_place else what
        if self._raises:
            raise MisuseError(message) from None  # not from the look-up that found no such measurement
        self._warned.add(key)
        warning = f"lightning_timing: {message}; {consequence}, and this is not warned of again"
        warnings.warn_explicit(warning, UserWarning, file, line)
