"""HTML and SVG from values (pure). All text is escaped where an element is made of it, so that no
screen can forget to: only what is :class:`Markup` already is left as it is.
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Any

_VOID = frozenset({"input", "link", "meta"})


class Markup(str):
    """Text that is HTML; what is not of this class is escaped."""

    __slots__ = ()


def joined(*parts: Any) -> Markup:
    """One part after the other: markup, texts, numbers, lists of these; ``None`` is nothing."""
    return Markup("".join(map(_escaped, parts)))


def tag(name: str, /, *children: Any, **attributes: Any) -> Markup:
    """One element. ``class_`` stands for ``class``, ``data_x`` for ``data-x``; an attribute that is
    ``None`` or ``False`` is left out, ``True`` is one without a value.
    """
    said = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _VOID:
        return Markup(f"<{name}{said}>")
    return Markup(f"<{name}{said}>{joined(*children)}</{name}>")


def _attribute(key: str, value: Any) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{html.escape(_clean(str(value)))}"'


def _escaped(part: Any) -> str:
    if part is None:
        return ""
    if isinstance(part, Markup):
        return part
    if isinstance(part, Iterable) and not isinstance(part, str):
        return "".join(map(_escaped, part))
    return html.escape(_clean(str(part)))


def _clean(text: str) -> str:
    """Without what no page can hold, and without letters that turn the direction of others."""
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "�" for letter in text)
