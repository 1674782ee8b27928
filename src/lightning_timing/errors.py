"""The errors of this package: every one of them is a `TimingError`."""

from __future__ import annotations


class TimingError(RuntimeError):
    """Base of every error that this package raises."""


class MisuseError(TimingError):
    """Something was used out of order, or under a name that is refused.

    A measurement, an iteration or a range was ended before it was started, started twice or left open; the Stopwatch or
    the NVTXRangeWrapper was enabled twice.
    """


class RangeMismatchError(TimingError):
    """A range was popped under another name than the one it was pushed with."""


class PresetError(TimingError):
    """A preset, or a node in one, is unknown or cannot be built."""


class BadInputError(TimingError):
    """A file handed to the command line is missing, cut, foreign or of another version: one line, exit code 2."""
