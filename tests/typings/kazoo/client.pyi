import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any

from kazoo.protocol.connection import ConnectionHandler
from kazoo.retry import KazooRetry
from kazoo.security import ACL

class KazooClient:
    handler: Any
    hosts: list[tuple[str, int]]
    chroot: str
    state: str
    default_acl: Sequence[ACL] | None
    last_zxid: int
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
    def __init__(
        self,
        hosts: str = ...,
        timeout: float = ...,
        client_id: tuple[int, bytes] | None = ...,
        handler: Any = ...,
        default_acl: Sequence[ACL] | None = ...,
        auth_data: Collection[tuple[str, str]] | None = ...,
        sasl_options: dict[str, Any] | None = ...,
        read_only: bool | None = ...,
        randomize_hosts: bool = ...,
        connection_retry: KazooRetry | None = ...,
        command_retry: KazooRetry | None = ...,
        logger: Any = ...,
        keyfile: str | None = ...,
        keyfile_password: str | None = ...,
        certfile: str | None = ...,
        ca: str | None = ...,
        use_ssl: bool = ...,
        verify_certs: bool = ...,
        check_hostname: bool = ...,
    ) -> None: ...
    @property
    def connected(self) -> bool: ...
    @property
    def client_state(self) -> str: ...
    @property
    def client_id(self) -> tuple[int, bytes] | None: ...
    def add_listener(self, listener: Callable[[str], object]) -> None: ...
    def remove_listener(self, listener: Callable[[str], object]) -> None: ...
    def start(self, timeout: float = ...) -> None: ...
    def start_async(self) -> threading.Event: ...
    def stop(self) -> None: ...
    def close(self) -> None: ...
    def create(self, path: str, value: bytes = ..., *, ephemeral: bool = ...) -> str: ...
    def exists(self, path: str) -> Any: ...
    def ensure_path(self, path: str) -> bool: ...
    def get_acls(self, path: str) -> tuple[list[ACL], Any]: ...
    def _call(self, request: Any, async_object: Any) -> bool | None: ...
    def _session_callback(self, state: str) -> None: ...
