"""The sides of ``coalescing.py``: what lets one thread (or task) work on a key, and others wait or
not. ``enter`` returns what ``leave`` takes; ``is_awaited`` says whether somebody waits.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from leaderq.coalescing import AsyncQueueCoordinator, QueueCoordinator


class Ours:
    """The coordinator, with tokens."""

    def __init__(self) -> None:
        self._coordinator: QueueCoordinator[Any] = QueueCoordinator()
        self.enter = self._coordinator.enqueue
        self.leave = self._coordinator.dequeue
        self.do = self._coordinator.run

    def is_awaited(self, key: object) -> bool:
        return self._coordinator.stats().waiting == 1


class Conditioned:
    """The same rule in its shortest form: one runs, one waits, the rest are declined; one Condition
    over all keys. No time-out, no cover, no token that ends.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._lines: dict[Any, list[object]] = {}

    def enter(self, key: Any) -> Any:
        mine = object()
        with self._condition:
            line = self._lines.setdefault(key, [])
            if len(line) == 2:
                return None
            line.append(mine)
            while line[0] is not mine:
                self._condition.wait()
        return key

    def leave(self, key: Any) -> None:
        with self._condition:
            line = self._lines[key]
            line.pop(0)
            if line:
                self._condition.notify_all()
            else:
                del self._lines[key]

    def is_awaited(self, key: Any) -> bool:
        return len(self._lines.get(key, ())) == 2


class Polling(Conditioned):
    """The same by looking every 10 ms, as the coordinator of 2016 did."""

    def enter(self, key: Any) -> Any:
        mine = object()
        with self._condition:
            line = self._lines.setdefault(key, [])
            if len(line) == 2:
                return None
            line.append(mine)
        while line[0] is not mine:
            time.sleep(0.01)
        return key


class PlainLocks:
    """A lock for each key: all wait, none is declined, no key is forgotten."""

    def __init__(self) -> None:
        self._locks: dict[Any, threading.Lock] = {}
        self._waiting = 0

    def enter(self, key: Any) -> Any:
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks.setdefault(key, threading.Lock())
        if not lock.acquire(blocking=False):
            self._waiting += 1
            lock.acquire()
            self._waiting -= 1
        return lock

    def leave(self, lock: Any) -> None:
        lock.release()

    def is_awaited(self, key: Any) -> bool:
        return self._waiting == 1


class LockAndDict:
    """One lock and the keys in work: who comes second is declined, nobody waits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owners: dict[Any, object] = {}

    def enter(self, key: Any) -> Any:
        with self._lock:
            if key in self._owners:
                return None
            self._owners[key] = key
        return key

    def leave(self, key: Any) -> None:
        with self._lock:
            del self._owners[key]


class SingleFlight:
    """Go's singleflight: who comes while a function runs for its key gets that one's result."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: dict[Any, Future[Any]] = {}

    def do(self, key: Any, function: Callable[[], Any]) -> Any:
        with self._lock:
            call = self._calls.get(key)
            if call is None:
                mine = self._calls[key] = Future()
        if call is not None:
            return call.result()
        try:
            mine.set_result(function())
        except Exception as error:
            mine.set_exception(error)
        with self._lock:
            del self._calls[key]
        return mine.result()


class OurTasks:
    """The coordinator, for tasks."""

    def __init__(self) -> None:
        self._coordinator: AsyncQueueCoordinator[Any] = AsyncQueueCoordinator()
        self.enter = self._coordinator.enqueue
        self.leave = self._coordinator.dequeue


class ConditionedTasks:
    """:class:`Conditioned` with asyncio's Condition."""

    def __init__(self) -> None:
        self._condition = asyncio.Condition()
        self._lines: dict[Any, list[object]] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    async def enter(self, key: Any) -> Any:
        mine = object()
        async with self._condition:
            line = self._lines.setdefault(key, [])
            if len(line) == 2:
                return None
            line.append(mine)
            while line[0] is not mine:
                await self._condition.wait()
        return key

    def leave(self, key: Any) -> None:
        """In a loop, what does not wait needs no lock; to notify does."""
        line = self._lines[key]
        line.pop(0)
        if not line:
            del self._lines[key]
            return
        task = asyncio.ensure_future(self._notify())
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _notify(self) -> None:
        async with self._condition:
            self._condition.notify_all()


class TaskLocks:
    """An asyncio.Lock for each key, which is not forgotten."""

    def __init__(self) -> None:
        self._locks: dict[Any, asyncio.Lock] = {}

    async def enter(self, key: Any) -> Any:
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks.setdefault(key, asyncio.Lock())
        await lock.acquire()
        return lock

    def leave(self, lock: Any) -> None:
        lock.release()
