"""The errors of this package: every one of them is a `TimingError`."""

from __future__ import annotations


class TimingError(RuntimeError):
    """Base of every error that this package raises."""


class MisuseError(TimingError):
    """A measurement or an iteration was used out of order: ended before it was started, started twice, left open."""


class RangeMismatchError(TimingError):
    """A range was popped under another name than the one it was pushed with."""


class PresetError(TimingError):
    """A preset, or a node in one, is unknown or cannot be built."""


class BadInputError(TimingError):
    """A file handed to the command line is missing, cut, foreign or of a newer schema: one line, and exit code 2."""
