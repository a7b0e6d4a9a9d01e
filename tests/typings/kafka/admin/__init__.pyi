from collections.abc import Sequence

class ConfigResource:
    def __init__(self, resource_type: str, name: str, configs: Sequence[str] | None = ...) -> None: ...

class MemberToRemove:
    def __init__(self, member_id: str | None = ..., group_instance_id: str | None = ...) -> None: ...
