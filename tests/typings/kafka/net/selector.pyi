from typing import Any

class NetworkSelector:
    def __init__(self, **configs: Any) -> None: ...
