"""Local servers that answer as in an outage, or refuse a record: for errors that only a library
itself can make.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


def closed_port() -> int:
    """A local port on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextmanager
def answering(answer: bytes) -> Iterator[int]:
    """A port where each request gets ``answer``; then the connection is closed."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = server.accept()
                with connection, suppress(OSError):
                    connection.settimeout(5)
                    connection.recv(65536)
                    connection.sendall(answer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield int(server.getsockname()[1])
    finally:
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join(5)


def http(status: int, body: bytes = b"{}", kind: bytes = b"application/json") -> bytes:
    head = f"HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"Content-Type: " + kind + b"\r\n\r\n" + body


CUT_OFF = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 100\r\n\r\nshort"
NONSENSE = b"\x00\x01\x02 this is not HTTP\r\n\r\n"
ROUND_AND_ROUND = (
    b"HTTP/1.1 302 Found\r\nConnection: close\r\nLocation: /\r\nContent-Length: 0\r\n\r\n"
)
