import socket
from typing import Any

class KafkaNetSocket:
    async def sock_connect(
        self, net: Any, sock: socket.socket, sockaddr: Any, timeout_at: float | None = ...
    ) -> socket.socket: ...
