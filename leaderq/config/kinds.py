"""What a setting's value may be: reading it from text, and checking it, each with a remedy in the refusal.

A kind never looks at files or at the network. ``from_text`` turns what a variable or a flag can say into a value; ``check``
takes such a value, or what a TOML file or a Python caller gives, and returns its normal form. Both raise :class:`Unfit`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ON = frozenset({"1", "true", "yes", "on"})
_OFF = frozenset({"0", "false", "no", "off"})
_LONGEST_NAME = 200
_EXAMPLE = "write host:port, like 127.0.0.1:{port}, several separated by commas"
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?")
_IPV6 = re.compile(r"\[[0-9A-Fa-f:.]+(%[A-Za-z0-9_.-]+)?\]")
_HIGHEST_PORT = 65535


class Unfit(ValueError):
    """``why`` completes "'value' ..."; ``remedy`` says what to write instead."""

    def __init__(self, why: str, remedy: str) -> None:
        self.why = why
        self.remedy = remedy
        super().__init__(f"{why}; {remedy}")


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


def normal_addresses(text: str, default_port: int, *, chroot: bool) -> str:
    """``text`` without blanks and with every port spelled out.

    Raises :class:`Unfit` naming the part that is wrong.
    """
    example = _EXAMPLE.format(port=default_port)
    if "://" in text:
        raise Unfit("is a URL", example)
    hosts, slash, path = text.partition("/")
    if slash and not chroot:
        raise Unfit("has a path behind the address", example)
    _check_chroot(slash + path)
    parts = [part.strip() for part in hosts.split(",")]
    if not all(parts):
        raise Unfit("has an empty address in it", example)
    return ",".join(_one(part, default_port, example) for part in parts) + (slash + path if path else "")


def _one(part: str, default_port: int, example: str) -> str:
    if part.startswith("["):
        host, bracket, rest = part.partition("]")
        host += bracket
        well_formed = bool(_IPV6.fullmatch(host)) and rest[:1] in {"", ":"}
        port = rest[1:] if rest else str(default_port)
    else:
        if part.count(":") > 1:
            raise Unfit(f"has more than one ':' in {part!r}", f"put an IPv6 address in brackets, like [::1]:{default_port}")
        host, colon, port = part.partition(":")
        well_formed = bool(_HOST.fullmatch(host))
        port = port if colon else str(default_port)
    if not well_formed:
        raise Unfit(f"has no usable host name in {part!r}", example)
    if not (port.isascii() and port.isdigit() and 0 < int(port) <= _HIGHEST_PORT):
        raise Unfit(f"has no usable port in {part!r}", f"a port is a number from 1 to {_HIGHEST_PORT}; {example}")
    return f"{host}:{int(port)}"


def _check_chroot(path: str) -> None:
    if "," in path:
        raise Unfit(
            "has a path before the last address",
            "write the chroot once, behind the last address: host1:2181,host2:2181/path",
        )
    if path not in {"", "/"} and any(element in {"", ".", ".."} for element in path[1:].split("/")):
        raise Unfit(f"has no usable chroot in {path!r}", "write names separated by single '/', like /production")
