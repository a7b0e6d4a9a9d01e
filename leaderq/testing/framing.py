"""Reading whole answers off a socket, for the readiness questions asked by hand."""

from __future__ import annotations

import socket


def read_exactly(connection: socket.socket, size: int) -> bytes:
    """The next ``size`` bytes.

    :raises OSError: the peer closed before, or fell silent for longer than the socket's time-out.
    """
    content = b""
    while len(content) < size:
        piece = connection.recv(size - len(content))
        if not piece:
            raise ConnectionResetError("closed before the answer was complete")
        content += piece
    return content
