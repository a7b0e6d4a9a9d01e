"""The kinds of values that settings have. An error says why a value is refused, and what to write
instead.

A kind never looks at files or at the network. ``from_text`` turns the text of a variable or a flag
into a value. ``check`` takes that value, or one from TOML or Python, and returns its normal form.
Both raise :class:`InvalidValue`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_ON = frozenset({"1", "true", "yes", "on"})
_OFF = frozenset({"0", "false", "no", "off"})
_LONGEST_NAME = 200
_SECONDS = "write seconds as a plain number, like 10 or 0.5"
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?")
_IPV6 = re.compile(r"\[[0-9A-Fa-f:.]+(%[A-Za-z0-9_.-]+)?\]")
_PORT = re.compile(r"0*[0-9]{1,5}")
_HIGHEST_PORT = 65535
LOOPBACK = "127.0.0.1"


class InvalidValue(ValueError):
    """A value cannot be used. It is raised where the value's source is not known, and never leaves
    this package.

    ``why`` completes "'value' ..."; ``remedy`` says what to write instead.
    """

    def __init__(self, why: str, remedy: str) -> None:
        self.why = why
        self.remedy = remedy
        super().__init__(f"{why}; {remedy}")


@dataclass(frozen=True)
class ValueKind:
    """One kind of values. ``metavar`` stands for the value in help; it is empty for a switch.
    ``schema`` is a JSON Schema for editors: it accepts all that ``check`` accepts, and more where
    JSON Schema cannot express the rule.
    """

    metavar: str
    check: Callable[[Any], Any]
    from_text: Callable[[str], Any] = str
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "string", "minLength": 1})


def seconds(least: float, most: float) -> ValueKind:
    return _number(least, most, "SECONDS", " seconds", _SECONDS)


def number(least: float, most: float) -> ValueKind:
    return _number(least, most, "NUMBER", "", "write a plain number, like 10 or 0.5")


def _number(least: float, most: float, metavar: str, unit: str, remedy: str) -> ValueKind:
    def check(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidValue("is not a number", remedy)
        if value != value or value in (math.inf, -math.inf):  # isfinite fails on a huge int
            raise InvalidValue("is not a finite number", remedy)
        return float(_within(value, least, most, unit))

    schema = {"type": "number", "minimum": least, "maximum": most}
    return ValueKind(metavar, check, lambda text: _converted(text, float), schema)


def count(least: int, most: int) -> ValueKind:
    def check(value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidValue("is not a whole number", "write digits only, like 3")
        return _within(value, least, most)

    schema = {"type": "integer", "minimum": least, "maximum": most}
    return ValueKind("N", check, lambda text: _converted(text, int), schema)


def choice(*words: str) -> ValueKind:
    """The kind whose values are ``words``; upper and lower case are the same."""
    by_lower_case = {word.lower(): word for word in words}

    def check(value: Any) -> str:
        known = by_lower_case.get(_text(value).lower())
        if known is None:
            raise InvalidValue("is not a choice", f"write one of {', '.join(words)}")
        return known

    any_case = "|".join(_in_any_case(word) for word in words)
    schema = {"anyOf": [{"enum": list(words)}, {"type": "string", "pattern": f"^({any_case})$"}]}
    return ValueKind("|".join(words), check, schema=schema)


def _in_any_case(word: str) -> str:
    """A regular expression that matches ``word`` in upper and lower case, because JSON Schema has
    no flag for that. The words need no escapes; JSON Schema forbids needless ones.
    """
    return "".join(f"[{c.lower()}{c.upper()}]" if c.isalpha() else c for c in word)


def addresses(default_port: int, *, chroot: bool = False) -> ValueKind:
    """The kind for addresses ``host:port``: a text with commas between them, or a list. An address
    without a port gets ``default_port``.

    ``chroot``: a znode path may follow the last address.
    """
    remedy = f"write host:port, like 127.0.0.1:{default_port}, several separated by commas"

    def check(value: Any) -> str:
        if isinstance(value, list | tuple):
            value = ",".join(_text(each) for each in value)
        text = _text(value)
        if "://" in text:
            raise InvalidValue("is a URL", remedy)
        hosts, slash, path = text.partition("/")
        if slash and not chroot:
            raise InvalidValue("has a path behind the address", remedy)
        path = slash + path
        if "," in path:
            behind = "write the chroot once, behind the last address: host1:2181,host2:2181/path"
            raise InvalidValue("has a path before the last address", behind)
        if path not in {"", "/"} and {"", ".", ".."} & set(path[1:].split("/")):
            elements = "write names separated by single '/', like /production"
            raise InvalidValue(f"has no usable chroot in {path!r}", elements)
        parts = [part.strip() for part in hosts.split(",")]
        if not all(parts):
            raise InvalidValue("has an empty address in it", remedy)
        normal = ",".join(_normal_address(part, default_port, remedy) for part in parts)
        return normal if path == "/" else normal + path

    texts = {"type": "array", "items": {"type": "string"}, "minItems": 1}
    schema = {"anyOf": [{"type": "string", "minLength": 1}, texts]}
    return ValueKind("HOST:PORT[,...]", check, schema=schema)


def _listening(value: Any) -> str:
    """Return one address to listen on. A port alone becomes that port of the loopback interface."""
    text = _text(value)
    if text.isascii() and text.isdigit():
        text = f"{LOOPBACK}:{text}"
    remedy = "write a port, for this host only, or host:port, like 0.0.0.0:8080 for everybody"
    if "," in text or "/" in text or not text.rpartition(":")[2].isdigit():
        raise InvalidValue("is not one address with a port", remedy)
    return _normal_address(text, 0, remedy, least=0)  # 0: any free port


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidValue("is not text", "write it in quotes")
    return value


def _not_empty(value: Any) -> str:
    if not _text(value):
        raise InvalidValue("is empty", "leave the setting out to have its default")
    return str(value)


def _secret(value: Any) -> str:
    try:
        _not_empty(value).encode()
    except UnicodeEncodeError:  # its message has a part of the secret
        raise InvalidValue("is not UTF-8 text", "write it in UTF-8") from None
    return str(value)


def _printable(value: Any) -> str:
    if _text(value) != value.strip() or not _not_empty(value).isprintable():
        why = "has a control character, or white space around it"
        raise InvalidValue(why, "write one line of plain text")
    if len(value.encode()) > _LONGEST_NAME:
        raise InvalidValue(f"is longer than {_LONGEST_NAME} bytes", "shorten it")
    return str(value)


def _name(value: Any) -> str:
    if _printable(value) in {".", ".."} or "/" in value:
        remedy = "write a name without '/', like ad-billing"
        raise InvalidValue("cannot be part of a znode path", remedy)
    return str(value)


def _znode_path(value: Any) -> str:
    elements = _text(value).split("/")
    if elements[0] or len(elements) < 2:
        raise InvalidValue("is not an absolute znode path", "begin it with '/', like /leaderq")
    if any(element in {"", ".", ".."} or not element.isprintable() for element in elements[1:]):
        rule = "none of them empty, '.' or '..', like /leaderq"
        raise InvalidValue("is not a znode path", f"write names separated by single '/', {rule}")
    if elements[1] == "zookeeper":
        why = "is in the tree that ZooKeeper keeps for itself"
        raise InvalidValue(why, "choose another, like /leaderq")
    return str(value)


def _path(value: Any) -> Path:
    if not isinstance(value, Path) and "\0" in _not_empty(value):
        raise InvalidValue("is not a file name", "write the path of a file")
    return Path(value)


def expanded(path: str | Path) -> Path:
    """``path`` with the home folder of a user in place of ``~`` or ``~user``."""
    try:
        return Path(path).expanduser()
    except RuntimeError as exc:
        raise InvalidValue("begins with a home that is not known", "write the whole path") from exc


def _switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidValue("is neither on nor off", "write true or false, without quotes")
    return value


def _switch_from_text(text: str) -> bool:
    if (word := text.strip().lower()) not in _ON | _OFF:
        remedy = "write one of 1, true, yes, on, 0, false, no, off"
        raise InvalidValue("is neither on nor off", remedy)
    return word in _ON


def _converted(text: str, convert: Callable[[str], Any]) -> Any:
    try:
        return convert(text)
    except ValueError:
        return text  # ``check`` refuses it


def _within(value: Any, least: float, most: float, unit: str = "") -> Any:
    if not least <= value <= most:
        raise InvalidValue("is out of range", f"choose from {least:.12g} to {most:.12g}{unit}")
    return value


def _normal_address(part: str, default_port: int, remedy: str, *, least: int = 1) -> str:
    if part.startswith("["):
        host, bracket, rest = part.partition("]")
        host += bracket
        well_formed = bool(_IPV6.fullmatch(host)) and rest[:1] in {"", ":"}
        port = rest[1:] if rest else str(default_port)
    else:
        if part.count(":") > 1:
            brackets = f"put an IPv6 address in brackets, like [::1]:{default_port}"
            raise InvalidValue(f"has more than one ':' in {part!r}", brackets)
        host, colon, port = part.partition(":")
        well_formed = bool(_HOST.fullmatch(host))
        port = port if colon else str(default_port)
    if not well_formed:
        raise InvalidValue(f"has no usable host name in {part!r}", remedy)
    if not (_PORT.fullmatch(port) and least <= int(port) <= _HIGHEST_PORT):
        bounds = f"a port is a number from {least} to {_HIGHEST_PORT}"
        raise InvalidValue(f"has no usable port in {part!r}", f"{bounds}; {remedy}")
    return f"{host}:{int(port)}"


SWITCH = ValueKind("", _switch, _switch_from_text, {"type": "boolean"})
ZNODE_PATH = ValueKind("PATH", _znode_path)  # absolute, and not the root
NAME = ValueKind("NAME", _name)  # can be one element of a znode path
TEXT = ValueKind("TEXT", _printable)  # one line of printable text, not empty
SECRET = ValueKind("SECRET", _secret)  # text that is never shown
LISTENING = ValueKind("[HOST:]PORT", _listening)
FILE = ValueKind("FILE", _path)  # loading the settings checks whether it can be read
