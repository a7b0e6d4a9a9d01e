"""A ZooKeeper address as people write it: ``host:port,host:port/chroot``.

kazoo accepts ``a,,b``, ``a:99999`` and ``a:port`` and fails later, elsewhere, or for ever; everything is checked here,
and all that is wrong is reported at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from leaderq.errors import ConfigurationError
from leaderq.zookeeper.paths import validated_path

DEFAULT_PORT = 2181
_REMEDY = "write it as 'host:port,host:port/chroot', for example 'zk1:2181,zk2:2181,[::1]:2181/app'"


@dataclass(frozen=True, slots=True)
class Address:
    """Where the servers are. ``chroot`` is the znode that all paths are below: ``""`` or ``/some/path``."""

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
