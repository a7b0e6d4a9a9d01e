from collections.abc import Sequence
from typing import Any

from kazoo.security import ACL

class _Request:
    type: int
    def serialize(self) -> bytes: ...

class Auth(_Request): ...
class Close(_Request): ...

class Connect(_Request):
    time_out: int

class Create(_Request):
    def __init__(self, path: str, data: bytes, acl: Sequence[ACL], flags: int) -> None: ...

class Delete(_Request):
    def __init__(self, path: str, version: int) -> None: ...

class Exists(_Request):
    def __init__(self, path: str, watcher: Any) -> None: ...

class GetData(_Request):
    def __init__(self, path: str, watcher: Any) -> None: ...

class GetChildren(_Request):
    def __init__(self, path: str, watcher: Any) -> None: ...

class SetData(_Request):
    def __init__(self, path: str, data: bytes, version: int) -> None: ...

class Sync(_Request):
    def __init__(self, path: str) -> None: ...

class Watch:
    type: int
    state: int
    path: str
    @classmethod
    def deserialize(cls, bytes: bytes, offset: int) -> tuple[Watch, int]: ...

CloseInstance: Close
PingInstance: Any

def read_buffer(bytes: bytes, offset: int) -> tuple[bytes | None, int]: ...
def read_string(buffer: bytes, offset: int) -> tuple[str, int]: ...
def write_string(bytes: str) -> bytes: ...
