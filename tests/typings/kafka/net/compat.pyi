from typing import Any

from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector

class KafkaNetClient:
    def __init__(
        self,
        net: NetworkSelector | None = ...,
        manager: KafkaConnectionManager | None = ...,
        **configs: Any,
    ) -> None: ...
    def close(self) -> None: ...
