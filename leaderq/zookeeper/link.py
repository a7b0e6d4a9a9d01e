"""What a session needs of whatever carries it: a client of its own, or a kazoo client it has been lent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from kazoo.security import ACL

from leaderq.zookeeper.state import Credentials
from leaderq.zookeeper.wire import Request


class Link(Protocol):
    """See the module. All of it may be used from any thread, and none of it blocks but ``finish``."""

    @property
    def timeout_s(self) -> float: ...

    @property
    def acl(self) -> list[ACL]: ...

    @property
    def attempts(self) -> int: ...

    @property
    def credentials(self) -> Credentials | None: ...

    def is_connection_thread(self) -> bool: ...

    def complete(self, job: Callable[[], object]) -> None: ...

    def watch(self, job: Callable[[], object]) -> None: ...

    def submit(self, request: Request, reply: Any) -> None: ...

    def drop(self) -> None: ...

    def open(self) -> None: ...

    def finish(self, *, timeout_s: float) -> bool: ...
