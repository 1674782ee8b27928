"""What is called where there is nothing to do."""

from __future__ import annotations


def nothing(*_: object) -> None:
    """Takes any arguments and does nothing. C code would be quicker, but torch.compile cannot trace it."""
