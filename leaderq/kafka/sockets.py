"""Sockets that are closed when a connection cannot be made.

kafka-python 3.0 forgets the socket of each failed attempt to connect; it stays open until the garbage collector finds it, one
more a second while a broker is away. It lets a program register a way to make connections under the scheme of a proxy's URL,
and that is how this one is chosen: :data:`DIRECT` names no proxy.
"""

from __future__ import annotations

import socket
from typing import Any, ClassVar

from kafka.net.inet import KafkaNetSocket

DIRECT = "leaderq://direct"


class ClosingSocket(KafkaNetSocket):
    """Connects directly, and leaves nothing behind where it fails."""

    SCHEMES: ClassVar[tuple[str, ...]] = ("leaderq",)

    async def sock_connect(
        self, net: Any, sock: socket.socket, sockaddr: Any, timeout_at: float | None = None
    ) -> socket.socket:
        """Connect ``sock``, or close it."""
        try:
            return await super().sock_connect(net, sock, sockaddr, timeout_at=timeout_at)
        except BaseException:
            sock.close()
            raise
