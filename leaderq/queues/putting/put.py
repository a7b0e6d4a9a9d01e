"""One znode to be stored, and whoever waits for that."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from leaderq.errors import LeaderqError
from leaderq.queues.tallying.group import Group
from leaderq.zookeeper import Create, Operation

_OP_BYTES = 96
KEPT_FAILURES = 100
"""Failures of which the item is kept; the others are counted."""


class Waiter(Protocol):
    """Whoever put it, and wants to know."""

    def heard(self, put: Put, error: LeaderqError | None) -> None:
        """It was stored, or why not."""


class Put(Group):
    """``values`` in one znode, under the name that begins so. ``is_multi``: put by ``put_multi``.

    Thousands of these wait at a time, and whatever the garbage collector must look at costs more than all else: so there is one object
    to an item, its operation is made only when it is sent, and a lone value stands for itself.
    """

    __slots__ = ("content", "is_multi", "over", "path", "value", "waiter")

    def __init__(
        self,
        path: str,
        content: bytes,
        extra_bytes: int,
        over: Callable[[Put, list[Any] | None, LeaderqError | None], None],
        value: Any,
        *,
        is_multi: bool = False,
        waiter: Waiter | None = None,
    ) -> None:
        super().__init__((), _OP_BYTES + len(path) * (1 if path.isascii() else 4) + len(content) + extra_bytes)
        self.count = 1
        self.path = path
        self.content = content
        self.over = over
        self.value = value
        self.is_multi = is_multi
        self.waiter = waiter

    @property
    def values(self) -> Sequence[Any]:
        """What the znode holds."""
        return self.value if self.is_multi else (self.value,)

    @property
    def operations(self) -> Sequence[Operation]:
        return (Create(self.path, self.content, False, True),)

    def settle(self, results: list[Any] | None = None, error: LeaderqError | None = None) -> None:
        self.over(self, results, error)


class One:
    """Waits for one put."""

    __slots__ = ("error", "event")

    def __init__(self) -> None:
        self.event = threading.Event()
        self.error: LeaderqError | None = None

    def heard(self, put: Put, error: LeaderqError | None) -> None:
        self.error = error
        self.event.set()


class Many:
    """Waits for a stream of puts; keeps the first failures and counts the others."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._open = 0
        self.stored = 0
        self.failed = 0
        self.failures: list[tuple[Any, BaseException]] = []

    def expect(self, count: int) -> None:
        """So many more are on their way."""
        with self._changed:
            self._open += count

    def heard(self, put: Put, error: LeaderqError | None) -> None:
        with self._changed:
            self._open -= 1
            if error is None:
                self.stored += 1
            else:
                self._fail(put.value, error)
            if not self._open:
                self._changed.notify_all()

    def fail(self, value: Any, error: BaseException) -> None:
        """One that did not get so far as to be sent."""
        with self._changed:
            self._fail(value, error)

    def forget(self, count: int) -> None:
        """So many were given up."""
        with self._changed:
            self._open -= count
            self._changed.notify_all()

    def wait(self, timeout_s: float | None) -> int:
        """Until none is on its way any more; gives how many still are after ``timeout_s``."""
        with self._changed:
            self._changed.wait_for(lambda: not self._open, timeout_s)
            return self._open

    def _fail(self, value: Any, error: BaseException) -> None:
        self.failed += 1
        if len(self.failures) < KEPT_FAILURES:
            self.failures.append((value, error))
