"""One znode to be stored, and whoever waits for that.

Who hears of puts: listeners, on a thread of their own, so that one that is slow or puts something
itself stops nobody.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from leaderq.errors import LeaderqError, PutsFailed
from leaderq.threads import Service
from leaderq.writing.groups import OperationGroup
from leaderq.zookeeper import Create, Operation

log = logging.getLogger(__name__)
_OP_BYTES = 96
_TOLD_AT_A_TIME = 100
KEPT_FAILURES = 100
"""Failures of which the item is kept; the others are counted."""


_Over = Callable[["Put", list[Any] | None, LeaderqError | None], None]


class Put(OperationGroup):
    """``values`` in one znode, under the name that begins so. ``is_multi``: put by ``put_multi``.

    Thousands of these wait at a time, and whatever the garbage collector must look at costs more
    than all else: so there is one object to an item, its operation is made only when it is sent,
    and a lone value stands for itself.
    """

    __slots__ = ("content", "is_multi", "made", "over", "path", "value", "waiter")

    def __init__(
        self, path: str, content: bytes, extra_bytes: int, over: _Over, value: Any
    ) -> None:
        path_bytes = len(path) * (1 if path.isascii() else 4)
        super().__init__((), _OP_BYTES + path_bytes + len(content) + extra_bytes)
        self.count = 1
        self.path = path
        self.content = content
        self.over = over
        self.value = value
        self.is_multi = False
        self.waiter: PutResults | None = None
        self.made: str | None = None
        """The path of the znode, once it is stored, unless the answer was lost."""

    @property
    def values(self) -> Sequence[Any]:
        return self.value if self.is_multi else (self.value,)

    @property
    def operations(self) -> Sequence[Operation]:
        return (Create(self.path, self.content, False, True),)

    def settle(self, results: list[Any] | None = None, error: LeaderqError | None = None) -> None:
        self.over(self, results, error)


class PutResults:
    """Waits for puts; keeps the first failures and counts the others."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._open = 0
        self.stored = 0
        self.failed = 0
        self.failures: list[tuple[Any, BaseException]] = []

    def expect(self, count: int) -> None:
        with self._changed:
            self._open += count

    def on_outcome(self, put: Put, error: LeaderqError | None) -> None:
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
        with self._changed:
            self._open -= count
            self._changed.notify_all()

    def wait(self, timeout_s: float | None) -> int:
        """Until none is on its way any more; returns how many still are after ``timeout_s``."""
        with self._changed:
            self._changed.wait_for(lambda: not self._open, timeout_s)
            return self._open

    def take_failures(self) -> PutsFailed | None:
        """What has failed since the last time; ``None`` if nothing has."""
        with self._changed:
            stored, failed, failures = self.stored, self.failed, self.failures
            self.stored, self.failed, self.failures = 0, 0, []
        return PutsFailed(stored=stored, failed=failed, failures=failures) if failed else None

    def _fail(self, value: Any, error: BaseException) -> None:
        self.failed += 1
        if len(self.failures) < KEPT_FAILURES:
            self.failures.append((value, error))


class PutListener:
    """Hears what became of each put; override what is of interest. Called on one thread of the
    queue, in the order of the outcomes.

    An exception in here is logged, and changes nothing.
    """

    def put_completed(self, item: Any) -> None:
        """``item`` is stored."""

    def put_multi_completed(self, items: Sequence[Any]) -> None:
        """``items`` are stored, in one znode."""

    def put_failed(self, items: Sequence[Any], error: LeaderqError) -> None:
        """``items`` of one znode were not stored; if ``error`` is ``ConnectionLost``, perhaps."""


class PutListeners:
    """Calls the listeners, on a thread that exists from the first listener on. ``on_told(count,
    size)`` is called after all of them were told of that many puts of that many bytes in all.
    """

    def __init__(self, name: str, on_told: Callable[[int, int], object]) -> None:
        self._on_told = on_told
        self._lock = threading.Lock()
        self._news: deque[tuple[tuple[PutListener, ...], Put, LeaderqError | None]] = deque()
        self._service = Service(f"leaderq-{name}-listeners", self._run)
        self.listeners: tuple[PutListener, ...] = ()

    def add(self, listener: PutListener) -> None:
        """Tell it what is settled from now on; nothing, once this was stopped."""
        with self._lock:
            self.listeners = (*self.listeners, listener)
        self._service.start()

    def remove(self, listener: PutListener) -> None:
        """Tell it nothing more, except for a call under way."""
        with self._lock:
            self.listeners = tuple(one for one in self.listeners if one is not listener)

    @property
    def is_current(self) -> bool:
        """Whether the caller is the listeners' own thread."""
        return self._service.is_current

    def tell(self, put: Put, error: LeaderqError | None) -> None:
        self._news.append((self.listeners, put, error))
        self._service.wake()

    def stop(self, timeout_s: float) -> None:
        """End the thread, after what it was told to deliver."""
        self._service.stop(timeout_s)

    def _run(self, service: Service) -> None:
        while service.wait():
            self._deliver()
        self._deliver()

    def _deliver(self) -> None:
        while self._news:
            count = size = 0
            while self._news and count < _TOLD_AT_A_TIME:
                listeners, put, error = self._news.popleft()
                for listener in listeners:
                    try:
                        _tell(listener, put, error)
                    except Exception:
                        log.exception("put listener failed listener=%r", listener)
                count += 1
                size += put.size
            self._on_told(count, size)


def _tell(listener: PutListener, put: Put, error: LeaderqError | None) -> None:
    if error is not None:
        listener.put_failed(put.values, error)
    elif put.is_multi:
        listener.put_multi_completed(put.values)
    else:
        listener.put_completed(put.value)
