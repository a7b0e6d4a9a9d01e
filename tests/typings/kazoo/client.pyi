import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.protocol.connection import ConnectionHandler
from kazoo.security import ACL

class KazooClient:
    hosts: list[tuple[str, int]]
    chroot: str
    state: str
    default_acl: Sequence[ACL] | None
    auth_data: set[tuple[str, str]]
    use_ssl: bool
    verify_certs: bool
    check_hostname: bool
    certfile: str | None
    keyfile: str | None
    keyfile_password: str | None
    ca: str | None
    _connection: ConnectionHandler
    _pending: deque[tuple[Any, Any, int]]
    _queue: deque[tuple[Any, Any]]
    _session_id: int | None
    _session_passwd: bytes
    _session_timeout: int
    _stopped: threading.Event
    def __init__(self, hosts: str = ..., timeout: float = ..., **options: Any) -> None: ...
    @property
    def connected(self) -> bool: ...
    @property
    def client_state(self) -> str: ...
    def add_listener(self, listener: Callable[[str], object]) -> None: ...
    def start(self, timeout: float = ...) -> None: ...
    def start_async(self) -> threading.Event: ...
    def close(self) -> None: ...
    def _session_callback(self, state: str) -> None: ...
