"""Makes HTML and SVG from values (pure). Text is escaped when an element is made of it, so no
screen can forget to; only :class:`Markup` is left as it is.
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Any

_VOID = frozenset({"input", "link", "meta"})


class Markup(str):
    """Text that is HTML. All other text is escaped."""

    __slots__ = ()


def joined(*parts: Any) -> Markup:
    """The parts, one after the other: markup, texts, numbers, lists of these; ``None`` adds
    nothing.
    """
    return Markup("".join(map(_escaped, parts)))


def tag(name: str, /, *children: Any, **attributes: Any) -> Markup:
    """One element. The argument ``class_`` is the attribute ``class``, ``data_x`` is ``data-x``. An
    attribute that is ``None`` or ``False`` is left out; ``True`` makes an attribute without a
    value.
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
    """Replace characters that a page cannot hold, and those that turn the direction of the text."""
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "�" for letter in text)
