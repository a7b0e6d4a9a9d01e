"""Where things are: znode paths, and the address of the servers; errors name value and rule.

ZooKeeper would refuse a bad path with a message that names nothing. kazoo accepts ``a,,b``,
``a:99999`` and ``a:port``, and fails later, elsewhere, or hangs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from leaderq.errors import ConfigurationError

# The characters refused are those of ZooKeeper's own PathUtils.
_PATH = re.compile("(?:/[^/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]+)+")
_RELATIVE = re.compile(r"/\.\.?(?:/|$)")
DEFAULT_PORT = 2181
_EXAMPLE = "zk1:2181,zk2:2181,[::1]:2181/app"
_REMEDY = f"write it as 'host:port,host:port/chroot', for example '{_EXAMPLE}'"


def validated_path(path: str, *, open_ended: bool = False) -> str:
    """Return ``path`` itself, if ZooKeeper can use it.

    ``open_ended`` allows a trailing slash, for sequential znodes named by their number only.

    :raises ConfigurationError: naming the path and what is wrong with it.
    """
    body = path[:-1] if open_ended and len(path) > 1 and path.endswith("/") else path
    if body == "/" or (_PATH.fullmatch(body) and "/." not in body):
        return path
    if not body.startswith("/"):
        raise ConfigurationError(f"znode path {path!r} must be absolute: begin it with '/'")
    if _RELATIVE.search(body):
        problem = "has a '.' or '..' part, which ZooKeeper does not resolve"
        raise ConfigurationError(f"znode path {path!r} {problem}")
    if not _PATH.fullmatch(body):
        refused = "a character ZooKeeper refuses (control, surrogate, private)"
        problem = f"has an empty part, a trailing '/', or {refused}"
        raise ConfigurationError(f"znode path {path!r} {problem}")
    return path


def join(parent: str, *names: str) -> str:
    """Return the path of ``names`` below ``parent``; ``join("/", "a", "b")`` is ``/a/b``."""
    return "/".join(("" if parent == "/" else parent, *names))


def is_at_or_below(path: str, other: str) -> bool:
    """Return whether ``path`` is ``other`` or a znode below it."""
    return path == other or path.startswith(other.rstrip("/") + "/")


def parent_of(path: str) -> str:
    """Return the path one level up; that of ``/`` is ``/``."""
    return path.rpartition("/")[0] or "/"


def name_of(path: str) -> str:
    """Return the last part of a path."""
    return path.rpartition("/")[2]


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
        return ",".join(
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}"  # an IPv6 address
            for host, port in self.servers
        )

    def __str__(self) -> str:
        return self.hosts + self.chroot


def parsed_address(text: str, *, source: str = "the ZooKeeper address") -> Address:
    """Return the address that ``text`` means; in errors it came from ``source``.

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
        where = f"{source} {text!r}"
        raise ConfigurationError(*(f"{where}: {problem}; {_REMEDY}" for problem in problems))
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
        if not closed or rest[:1] not in ("", ":"):
            return "", ""
        return host, rest.removeprefix(":")
    if part.count(":") > 1:
        return part, ""
    host, colon, port = part.partition(":")
    return host, port or ("?" if colon else "")
