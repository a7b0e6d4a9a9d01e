from typing import Any

class ConfigResource:
    def __init__(self, *what: Any) -> None: ...

class MemberToRemove:
    def __init__(self, **member: str | None) -> None: ...
