"""Server addresses as users write them: ``host:port``, several with commas, for ZooKeeper with a chroot behind the last."""

from __future__ import annotations

import re

from leaderq.config.unfit import Unfit

_EXAMPLE = "write host:port, like 127.0.0.1:{port}, several separated by commas"
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?")
_IPV6 = re.compile(r"\[[0-9A-Fa-f:.]+(%[A-Za-z0-9_.-]+)?\]")
_HIGHEST_PORT = 65535


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
