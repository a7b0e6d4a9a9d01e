from typing import Any

from kafka.net.selector import NetworkSelector

class KafkaConnectionManager:
    bootstrapped: bool
    def __init__(self, net: NetworkSelector, **configs: Any) -> None: ...
    def get_connection(self, node_id: Any, *args: Any, **more: Any) -> Any: ...
