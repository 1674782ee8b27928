"""Builds HTML in which nothing but what this package writes is markup: all text is escaped when it is put in."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class Markup(str):
    """A piece of HTML, as opposed to text."""

    __slots__ = ()


def tag(name: str, *children: str, **attributes: str) -> Markup:
    """An element.

    Args:
        name: Its name.
        children: What is in it; text is escaped, `Markup` is taken as it is.
        attributes: Its attributes, with `_` for `-`, and `class_` for `class`.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(value)}"' for key, value in attributes.items()
    )
    return Markup(f"<{name}{written}>{join(children)}</{name}>")


def join(children: Iterable[str]) -> Markup:
    """Pieces one after the other; text is escaped, `Markup` is taken as it is."""
    return Markup("".join(child if isinstance(child, Markup) else html.escape(child) for child in children))
