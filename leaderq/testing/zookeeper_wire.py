"""The two questions that tell whether a ZooKeeper server serves: open a session, and the four-letter words.

Spoken by hand over a socket: it is a few bytes, and the answer comes from the server itself rather than through a client library
with reconnecting and threads of its own.
"""

from __future__ import annotations

import socket
import struct

from leaderq.testing.framing import read_exactly

_CONNECT = struct.pack(
    ">iqiqi16s?", 0, 0, 2000, 0, 16, bytes(16), False
)  # protocol, zxid, time-out ms, session, password, read-only
_CLOSE = struct.pack(">ii", 1, -11)


def opens_session(host: str, port: int, *, timeout_s: float = 3.0) -> bool:
    """Whether the server opens a session (an ensemble does so only with a quorum); the session is closed again."""
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as connection:
            connection.sendall(struct.pack(">i", len(_CONNECT)) + _CONNECT)
            answer = read_exactly(connection, 4 + 16)
            timeout_ms, session = struct.unpack(">iq", answer[8:20])
            connection.sendall(struct.pack(">i", len(_CLOSE)) + _CLOSE)
            return bool(timeout_ms > 0 and session != 0)
    except OSError:
        return False


def four_letter_word(host: str, port: int, word: str, *, timeout_s: float = 2.0) -> str:
    """The server's answer to ``word`` (``srvr``, ``stat``, ``mntr``, ``cons``...).

    :raises OSError: it could not be asked.
    """
    with socket.create_connection((host, port), timeout=timeout_s) as connection:
        connection.sendall(word.encode())
        pieces = []
        while piece := connection.recv(65536):
            pieces.append(piece)
    return b"".join(pieces).decode(errors="replace")
