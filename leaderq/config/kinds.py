"""What a setting's value may be: reading it from text, and checking it, each with a remedy in the refusal.

A kind never looks at files or at the network. ``from_text`` turns what a variable or a flag can say into a value; ``check``
takes such a value, or what a TOML file or a Python caller gives, and returns its normal form. Both raise :class:`Unfit`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leaderq.config.addresses import normal_addresses
from leaderq.config.unfit import Unfit

_ON = frozenset({"1", "true", "yes", "on"})
_OFF = frozenset({"0", "false", "no", "off"})
_LONGEST_NAME = 200


@dataclass(frozen=True)
class Kind:
    """``metavar`` stands in help for the value; ``unit`` is what a number counts."""

    metavar: str
    check: Callable[[Any], Any]
    from_text: Callable[[str], Any] = str
    unit: str = ""


def seconds(least: float, most: float) -> Kind:
    """A number of seconds from ``least`` to ``most``."""
    return Kind("SECONDS", lambda value: _within(_number(value), least, most, "seconds"), _number_from_text, "s")


def count(least: int, most: int) -> Kind:
    """A whole number from ``least`` to ``most``."""
    return Kind("N", lambda value: _within(_whole(value), least, most, ""), _whole_from_text)


def switch() -> Kind:
    """On or off."""
    return Kind("", _check_switch, _switch_from_text)


def choice(*words: str) -> Kind:
    """One of ``words``, in any case."""
    by_lower_case = {word.lower(): word for word in words}

    def check(value: Any) -> str:
        known = by_lower_case.get(_text(value).lower())
        if known is None:
            raise Unfit("is not a choice", f"write one of {', '.join(words)}")
        return known

    return Kind("|".join(words), check)


def addresses(default_port: int, *, chroot: bool = False) -> Kind:
    """``host:port``, several separated by commas; the port may be left out. ``chroot``: a znode path may follow the last."""
    return Kind("HOST:PORT[,...]", lambda value: normal_addresses(_text(value), default_port, chroot=chroot))


def znode_path() -> Kind:
    """An absolute znode path other than ``/``."""
    return Kind("PATH", lambda value: _znode_path(_text(value)))


def name() -> Kind:
    """A name that can stand as one element of a znode path."""
    return Kind("NAME", lambda value: _name(_text(value)))


def word() -> Kind:
    """One line of printable text, not empty."""
    return Kind("TEXT", lambda value: _printable(_text(value)))


def secret() -> Kind:
    """Text that is never shown."""
    return Kind("SECRET", lambda value: _not_empty(_text(value)))


def file() -> Kind:
    """The path of a file; whether it can be read is asked when the settings are loaded."""
    return Kind("FILE", _path)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise Unfit("is not text", "write it in quotes")
    return value


def _not_empty(value: str) -> str:
    if not value:
        raise Unfit("is empty", "leave the setting out to have its default")
    return value


def _printable(value: str) -> str:
    if value != value.strip() or not _not_empty(value).isprintable():
        raise Unfit("has a control character, or white space around it", "write one line of plain text")
    if len(value.encode()) > _LONGEST_NAME:
        raise Unfit(f"is longer than {_LONGEST_NAME} bytes", "shorten it")
    return value


def _name(value: str) -> str:
    if _printable(value) in {".", ".."} or "/" in value:
        raise Unfit("cannot be part of a znode path", "write a name without '/', like ad-billing")
    return value


def _znode_path(value: str) -> str:
    elements = value.split("/")
    if elements[0] or len(elements) < 2:
        raise Unfit("is not an absolute znode path", "begin it with '/', like /leaderq")
    if any(element in {"", ".", ".."} or not element.isprintable() for element in elements[1:]):
        raise Unfit(
            "is not a znode path", "write names separated by single '/', none of them empty, '.' or '..', like /leaderq"
        )
    if elements[1] == "zookeeper":
        raise Unfit("lies in the tree ZooKeeper keeps for itself", "choose another, like /leaderq")
    return value


def _path(value: Any) -> Path:
    if isinstance(value, Path):
        return value
    if "\0" in _not_empty(_text(value)):
        raise Unfit("is not a file name", "write the path of a file")
    return Path(value)


def _check_switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Unfit("is neither on nor off", "write true or false, without quotes")
    return value


def _switch_from_text(text: str) -> bool:
    word = text.strip().lower()
    if word not in _ON | _OFF:
        raise Unfit("is neither on nor off", "write one of 1, true, yes, on, 0, false, no, off")
    return word in _ON


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unfit("is not a number", "write seconds as a plain number, like 10 or 0.5")
    if not math.isfinite(value):
        raise Unfit("is not a finite number", "write seconds as a plain number, like 10 or 0.5")
    return float(value)


def _number_from_text(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise Unfit("is not a number", "write seconds as a plain number, like 10 or 0.5") from None


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise Unfit("is not a whole number", "write digits only, like 3")
    return value


def _whole_from_text(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise Unfit("is not a whole number", "write digits only, like 3") from None


def _within(value: Any, least: float, most: float, unit: str) -> Any:
    if not least <= value <= most:
        bounds = f"from {least:g} to {most:g} {unit}".rstrip()
        raise Unfit("is out of range", f"choose {bounds}")
    return value
