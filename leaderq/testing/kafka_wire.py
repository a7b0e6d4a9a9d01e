"""The two questions that tell whether a Kafka broker serves: which API versions, and which brokers are registered.

Spoken by hand over a socket, since only ``leaderq.kafka`` may import a Kafka client, and readiness needs few bytes of one.
"""

from __future__ import annotations

import socket
import struct
from typing import Final

from leaderq.testing.framing import read_exactly

_API_VERSIONS: Final = 18
_METADATA: Final = 3


def registered_brokers(host: str, port: int, *, timeout_s: float = 3.0) -> int:
    """How many brokers the one at ``host:port`` knows to be serving; 0 if it does not answer."""
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as connection:
            answer = _ask(connection, _API_VERSIONS, version=0, correlation=1, body=b"")
            if struct.unpack(">h", answer[:2]) != (0,):
                return 0
            answer = _ask(
                connection, _METADATA, version=1, correlation=2, body=struct.pack(">i", 0)
            )  # an empty list of topics
            return int(struct.unpack(">i", answer[:4])[0])
    except (OSError, struct.error):
        return 0


def _ask(connection: socket.socket, api: int, *, version: int, correlation: int, body: bytes) -> bytes:
    client = b"leaderq"
    request = struct.pack(">hhih", api, version, correlation, len(client)) + client + body
    connection.sendall(struct.pack(">i", len(request)) + request)
    (size,) = struct.unpack(">i", read_exactly(connection, 4))
    answer = read_exactly(connection, min(size, 1 << 20))
    if struct.unpack(">i", answer[:4]) != (correlation,):
        raise ConnectionResetError("an answer to another question")
    return answer[4:]
