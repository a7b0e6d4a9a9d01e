from collections.abc import Sequence

class ConfigResource:
    def __init__(self, resource_type: str, name: str, configs: Sequence[str] | None = ...) -> None: ...
