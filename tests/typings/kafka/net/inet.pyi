from socket import socket as Socket
from typing import Any

class KafkaNetSocket:
    async def sock_connect(self, net: Any, *where: Any, **more: Any) -> Socket: ...
