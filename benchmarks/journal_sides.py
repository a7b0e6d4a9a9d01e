"""The other sides of ``journal.py``: each with the same durability as ours, and its own best way of
doing the same.
"""

from __future__ import annotations

import os
import sqlite3
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

BATCH = 100
_ZEROED = 64 << 20


class Side(Protocol):
    """A queue on disk. ``put`` returns when the record is as durable as was asked for; ``take``
    reads and acknowledges one batch.
    """

    def put(self, payload: bytes) -> None: ...
    def put_batch(self, payload: bytes, count: int) -> None: ...
    def take(self) -> int: ...
    def close(self) -> None: ...


class RawFile:
    """The floor: a write at the end of a file, and fdatasync. No checksum, no ids, nothing to read
    by.
    """

    def __init__(self, place: Path, *, durable: bool) -> None:
        self._fd = os.open(place / "raw", os.O_RDWR | os.O_CREAT)
        self._end, self._durable = 0, durable

    def put(self, payload: bytes) -> None:
        self._end += os.pwrite(self._fd, payload, self._end)
        if self._durable:
            os.fdatasync(self._fd)

    def put_batch(self, payload: bytes, count: int) -> None:
        self.put(payload * count)

    def close(self) -> None:
        os.close(self._fd)


class ZeroedFile(RawFile):
    """The same, in a file of zeros that is there already: a sync need not note a new size."""

    def __init__(self, place: Path, *, durable: bool) -> None:
        super().__init__(place, durable=durable)
        for at in range(0, _ZEROED, 1 << 20):
            os.pwrite(self._fd, bytes(1 << 20), at)
        os.fsync(self._fd)


class PersistFile:
    """persist-queue's file queue: pickles, synced when a chunk is full, so never durable item by
    item.
    """

    def __init__(self, place: Path, *, durable: bool) -> None:
        from persistqueue import Queue

        self._queue = Queue(str(place), autosave=False)

    def put(self, payload: bytes) -> None:
        self._queue.put(payload)

    def take(self) -> int:
        for _ in range(BATCH):
            self._queue.get()
        self._queue.task_done()
        return BATCH

    def close(self) -> None:
        """It has none of its own."""


class PersistSqlite:
    """persist-queue's SQLiteAckQueue."""

    def __init__(self, place: Path, *, durable: bool) -> None:
        from persistqueue import SQLiteAckQueue

        warnings.simplefilter("ignore")
        self._queue: Any = SQLiteAckQueue(str(place), auto_commit=True)
        synchronous(self._queue._putter, durable)

    def put(self, payload: bytes) -> None:
        self._queue.put(payload)

    def take(self) -> int:
        for _ in range(BATCH):
            self._queue.ack(self._queue.get())
        return BATCH

    def close(self) -> None:
        self._queue.close()


class LiteQueue:
    """litequeue; it takes text."""

    def __init__(self, place: Path, *, durable: bool) -> None:
        from litequeue import LiteQueue as Queue

        self._queue = Queue(str(place / "queue.db"))
        synchronous(self._queue.conn, durable)

    def put(self, payload: bytes) -> None:
        self._queue.put(payload.decode("latin-1"))

    def put_batch(self, payload: bytes, count: int) -> None:
        text = payload.decode("latin-1")
        with self._queue.transaction():
            for _ in range(count):
                self._queue.put(text)

    def take(self) -> int:
        for _ in range(BATCH):  # a pop is a transaction of its own, within which none can begin
            self._queue.done(self._queue.pop().message_id)
        return BATCH

    def close(self) -> None:
        self._queue.close()


class DiskCache:
    """diskcache's Deque: no acknowledgement, what is taken is gone."""

    def __init__(self, place: Path, *, durable: bool) -> None:
        from diskcache import Cache, Deque

        cache = Cache(
            str(place),
            eviction_policy="none",
            size_limit=1 << 40,
            sqlite_synchronous=2 if durable else 1,
        )
        self._deque = Deque.fromcache(cache)

    def put(self, payload: bytes) -> None:
        self._deque.append(payload)

    def put_batch(self, payload: bytes, count: int) -> None:
        with self._deque.transact():
            for _ in range(count):
                self._deque.append(payload)

    def take(self) -> int:
        with self._deque.transact():
            for _ in range(BATCH):
                self._deque.popleft()
        return BATCH

    def close(self) -> None:
        self._deque.cache.close()


def synchronous(connection: sqlite3.Connection, durable: bool) -> None:
    """In SQLite's write-ahead log, FULL syncs each commit and NORMAL the checkpoints only."""
    connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")


OTHERS: dict[str, tuple[str, Callable[..., Any]]] = {
    # row: (module it needs, how it is made)
    "persist-queue, file": ("persistqueue", PersistFile),
    "persist-queue, SQLiteAck": ("persistqueue", PersistSqlite),
    "litequeue": ("litequeue", LiteQueue),
    "diskcache.Deque": ("diskcache", DiskCache),
}
