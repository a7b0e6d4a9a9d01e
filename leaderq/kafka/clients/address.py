"""Kafka's address as the user writes it: ``host:port``, several separated by commas."""

from __future__ import annotations

import re

from leaderq.errors import ConfigurationError

DEFAULT_PORT = 9092

_ONE = re.compile(r"^(?P<host>\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9_.-]+)(?::(?P<port>\d{1,5}))?$")


def bootstrap_servers(address: str) -> list[str]:
    """``address`` as a list of ``host:port``; a port left out is 9092.

    :raises ConfigurationError: it is empty or malformed; names the part that is.
    """
    parts = [part.strip() for part in address.split(",")] if address.strip() else []
    if not parts:
        raise ConfigurationError("no Kafka address is given; set --kafka or LEADERQ_KAFKA to host:port[,host:port...]")
    problems = [problem for part in parts if (problem := _problem(part, address))]
    if problems:
        raise ConfigurationError(*problems)
    return [part if _port(part) else f"{part}:{DEFAULT_PORT}" for part in parts]


def _port(part: str) -> str | None:
    found = _ONE.match(part)
    return found.group("port") if found else None


def _problem(part: str, address: str) -> str | None:
    found = _ONE.match(part)
    port = found.group("port") if found else None
    if found and (port is None or 0 < int(port) < 65536):
        return None
    return (
        f"Kafka address {address!r} (--kafka, LEADERQ_KAFKA) cannot be used: {part!r} is not host:port; "
        "write for example kafka-1:9092,kafka-2:9092, without a scheme"
    )
