"""Checks znode paths and the servers' address; its errors name the value and the rule.

ZooKeeper would refuse a bad path with a message that names nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from leaderq.config.kinds import InvalidValue, addresses
from leaderq.errors import ConfigurationError

# The characters refused are those of ZooKeeper's own PathUtils.
_PATH = re.compile("(?:/[^/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]+)+")
_RELATIVE = re.compile(r"/\.\.?(?:/|$)")
_ADDRESS = addresses(2181, chroot=True)


def validated_path(path: str, *, open_ended: bool = False) -> str:
    """Return ``path`` if ZooKeeper accepts it. ``open_ended`` allows a trailing slash, for
    sequential znodes.

    :raises ConfigurationError: the path has a problem; the message names both.
    """
    if not isinstance(path, str):
        raise ConfigurationError(f"znode path {path!r} is a {type(path).__name__}: give a str")
    body = path[:-1] if open_ended and len(path) > 2 and path.endswith("/") else path
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


def own_path(path: str) -> str:
    """Return ``path`` if a user may keep a queue there.

    :raises ConfigurationError: ``path`` is not a znode path, is ``/``, or belongs to the server.
    """
    if validated_path(path) == "/" or is_at_or_below(path, "/zookeeper"):
        whose = "everybody's" if path == "/" else "the server's"
        raise ConfigurationError(f"znode path {path!r} is {whose}: give the queue one of its own")
    return path


def join(parent: str, *names: str) -> str:
    """Return the path of ``names`` below ``parent``; ``join("/", "a", "b")`` is ``/a/b``."""
    return "/".join(("" if parent == "/" else parent, *names))


def is_at_or_below(path: str, other: str) -> bool:
    return path == other or path.startswith(other.rstrip("/") + "/")


def parent_of(path: str) -> str:
    """Return the path one level up; that of ``/`` is ``/``."""
    return path.rpartition("/")[0] or "/"


def name_of(path: str) -> str:
    return path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Address:
    """The address of the servers, as people write it: ``host:port,host:port/chroot``.

    ``chroot`` is the parent of all paths: ``""`` or ``/some/path``.
    """

    servers: tuple[tuple[str, int], ...]
    chroot: str = ""

    @property
    def hosts(self) -> str:
        return ",".join(
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}"  # an IPv6 address
            for host, port in self.servers
        )

    def __str__(self) -> str:
        return self.hosts + self.chroot


def parsed_address(text: str) -> Address:
    """Parse ``host:port,host:port/chroot``.

    :raises ConfigurationError: ``text`` is not an address; the message says what to write instead.
    """
    if not isinstance(text, str):
        raise ConfigurationError(f"the ZooKeeper address {text!r} is no text: give 'host:port'")
    try:
        hosts, slash, chroot = _ADDRESS.check(text.strip().rstrip("/")).partition("/")
    except InvalidValue as exc:
        raise ConfigurationError(f"the ZooKeeper address {text!r} {exc}") from exc
    if chroot:
        validated_path(slash + chroot)
    servers = (one.rpartition(":") for one in hosts.split(","))
    return Address(
        tuple((host.strip("[]"), int(port)) for host, _, port in servers), slash + chroot
    )
