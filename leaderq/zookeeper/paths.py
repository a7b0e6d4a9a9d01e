"""Znode paths: what is allowed, and how they are put together.

ZooKeeper would refuse a bad path itself, with a message that names nothing; here the error names the value and the rule. The
characters refused are those of ZooKeeper's own ``PathUtils``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from leaderq.errors import ConfigurationError

_SEGMENT = "[^/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]+"
_PATH = re.compile(f"(?:/{_SEGMENT})+")
_NAME = re.compile(_SEGMENT)
_RELATIVE = re.compile(r"/\.\.?(?:/|$)")
NAME_LIMIT = 200
"""Longest name of a career or a candidate, in characters; ZooKeeper has no limit, its operators' eyes do."""


def validated_path(path: str, *, open_ended: bool = False) -> str:
    """``path`` itself, if ZooKeeper can use it.

    ``open_ended`` allows a trailing slash, for sequential znodes named by their number only.

    :raises ConfigurationError: naming the path and what is wrong with it.
    """
    body = path[:-1] if open_ended and len(path) > 1 and path.endswith("/") else path
    if body == "/" or (_PATH.fullmatch(body) and "/." not in body):
        return path
    if not body.startswith("/"):
        raise ConfigurationError(f"znode path {path!r} must be absolute: begin it with '/'")
    if _RELATIVE.search(body):
        raise ConfigurationError(f"znode path {path!r} has a '.' or '..' part, which ZooKeeper does not resolve")
    if not _PATH.fullmatch(body):
        raise ConfigurationError(
            f"znode path {path!r} has an empty part, a trailing '/', or a character ZooKeeper refuses (control, surrogate, private)"
        )
    return path


def validated_name(name: str, what: str = "name") -> str:
    """``name`` itself, if it can be one part of a znode path (a career, a candidate, a queue).

    :raises ConfigurationError: naming ``what`` and what is wrong with it.
    """
    if not name:
        raise ConfigurationError(f"{what} is empty; give it at least one character")
    if len(name) > NAME_LIMIT:
        raise ConfigurationError(f"{what} {name[:40]!r}... has {len(name)} characters; {NAME_LIMIT} are allowed")
    if name in (".", ".."):
        raise ConfigurationError(f"{what} {name!r} means a directory to ZooKeeper; choose another")
    if "/" in name:
        raise ConfigurationError(f"{what} {name!r} contains '/', which separates znodes; use '-' or '.' instead")
    if name != name.strip() or not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"{what} {name!r} has spaces at an end, or a control, surrogate or private character; remove it"
        )
    return name


def join(parent: str, *names: str) -> str:
    """The path of ``names`` below ``parent``; ``join("/", "a", "b")`` is ``/a/b``."""
    return "/".join(("" if parent == "/" else parent, *names))


def is_at_or_below(path: str, other: str) -> bool:
    """Whether ``path`` is ``other`` or a znode below it."""
    return path == other or path.startswith(other.rstrip("/") + "/")


def parent_of(path: str) -> str:
    """The path one level up; that of ``/`` is ``/``."""
    return path.rpartition("/")[0] or "/"


def name_of(path: str) -> str:
    """The last part of a path."""
    return path.rpartition("/")[2]


DEFAULT_PORT = 2181
_REMEDY = "write it as 'host:port,host:port/chroot', for example 'zk1:2181,zk2:2181,[::1]:2181/app'"


@dataclass(frozen=True, slots=True)
class Address:
    """An address as people write it: ``host:port,host:port/chroot``.

    ``chroot`` is the znode that all paths are below: ``""`` or ``/some/path``.
    """

    servers: tuple[tuple[str, int], ...]
    chroot: str = ""

    @property
    def hosts(self) -> str:
        """The servers alone, as one string."""
        return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.servers)

    def __str__(self) -> str:
        return self.hosts + self.chroot


def parsed_address(text: str, *, source: str = "the ZooKeeper address") -> Address:
    """The address that ``text`` means.

    ``source`` says in errors where the text came from.

    :raises ConfigurationError: with one sentence per problem: value, place and remedy.
    """
    hosts, slash, chroot = text.strip().partition("/")
    problems: list[str] = []
    servers = tuple(_server(part, problems) for part in hosts.split(","))
    path = slash + chroot.rstrip("/")
    if path not in ("", "/"):
        try:
            validated_path(path)
        except ConfigurationError as exc:
            problems.extend(exc.problems)
    if problems:
        raise ConfigurationError(*(f"{source} {text!r}: {problem}; {_REMEDY}" for problem in problems))
    return Address(servers, "" if path == "/" else path)


def _server(part: str, problems: list[str]) -> tuple[str, int]:
    host, port = _split(part.strip())
    if not host:
        problems.append("it has an empty host")
    elif any(char.isspace() or char in "@?#\\[]" for char in host):
        problems.append(f"host {host!r} has a character no host has")
    if not port:
        return host, DEFAULT_PORT
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        problems.append(f"port {port!r} is not a number from 1 to 65535")
        return host, 0
    return host, int(port)


def _split(part: str) -> tuple[str, str]:
    if part.startswith("["):  # an IPv6 address, whose own colons are not the port's
        host, closed, rest = part[1:].partition("]")
        return (host, rest.removeprefix(":")) if closed and rest[:1] in ("", ":") else ("", "")
    if part.count(":") > 1:
        return part, ""
    host, colon, port = part.partition(":")
    return host, port or ("?" if colon else "")
