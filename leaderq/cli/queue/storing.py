"""Entries on their way into a queue, and what became of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from leaderq.clock import now_s
from leaderq.errors import ConfigurationError, ConnectionLost, LeaderqError, TooLarge
from leaderq.queues import BYTES, PutListener, SimpleDistributedQueue
from leaderq.queues.putting import Putter
from leaderq.queues.wire.names import ITEM_PREFIX, QueueKind, prefix_for
from leaderq.queues.wire.znodes import QueuePaths

if TYPE_CHECKING:
    from leaderq.cli.queue.entries import Entry, Keys
    from leaderq.zookeeper import Session

PATIENCE_S = 30.0
_SLICE_S = 0.2
_SHOWN = 10


class Store(Protocol):
    """``stored`` counts the znodes that are certainly there. Entries are stored in their order."""

    stored: int

    def put(self, entry: Entry) -> None:
        """Take this on its way. Raises ``TooLarge`` and ``ConfigurationError`` if it cannot be put."""

    def pause(self) -> None:
        """Nothing more has come for now: what was taken on goes out."""

    def finish(self) -> None:
        """Wait until all are stored; raises what prevents it."""

    def close(self) -> None:
        """Let go. What was not sent is not sent any more."""


class FramedStore(PutListener):
    """Into all recipes but the simple one."""

    def __init__(self, session: Session, places: QueuePaths, kind: QueueKind) -> None:
        self.stored = 0
        self._kind = kind
        self._failure: LeaderqError | None = None
        self._putter: Putter[bytes] = Putter(session, places, BYTES, put_in_background=True, final_flush_s=1.0)
        self._putter.start()
        self._putter.add_listener(self)

    def put(self, entry: Entry) -> None:
        if not self._putter.put_multi(entry.values, _prefix(self._kind, entry.keys), timeout_s=PATIENCE_S):
            raise ConnectionLost(f"nothing was stored for {PATIENCE_S:.0f} s, and no more can be kept")
        self._raise()

    def pause(self) -> None:
        """It sends at once."""

    def finish(self) -> None:
        seen, deadline = self.stored, now_s() + PATIENCE_S
        while not self._putter.flush(_SLICE_S):
            if self.stored > seen:
                seen, deadline = self.stored, now_s() + PATIENCE_S
            if now_s() >= deadline:
                raise ConnectionLost(f"{self._putter.unsettled} items were not answered for {PATIENCE_S:.0f} s")
        self._raise()

    def close(self) -> None:
        self._putter.close()

    # On the thread of the listeners.
    def put_completed(self, item: Any) -> None:
        self.stored += 1

    def put_multi_completed(self, items: Sequence[Any]) -> None:
        self.put_completed(items)

    def put_failed(self, items: Sequence[Any], error: LeaderqError) -> None:
        self._failure = self._failure or error

    def _raise(self) -> None:
        if self._failure is not None:
            raise self._failure


class SimpleStore:
    """Into a simple queue: no frame, one value a znode."""

    def __init__(self, session: Session, places: QueuePaths) -> None:
        self.stored = 0
        self._queue = SimpleDistributedQueue(session, places.path, meta_path=places.meta_path)
        self._gathered: list[bytes] = []

    def put(self, entry: Entry) -> None:
        if len(entry.values) != 1:
            raise ConfigurationError(f"it has {len(entry.values)} values, and a znode of a simple queue holds one")
        if entry.keys.kind is not None:
            raise ConfigurationError(f"it is an item of a queue of the kind {entry.keys.kind}, and this one is simple")
        self._gathered += entry.values
        if len(self._gathered) >= 1000:
            self.pause()

    def pause(self) -> None:
        gathered, self._gathered = self._gathered, []
        if gathered:
            self._queue.offer_many(gathered, PATIENCE_S)
            self.stored += len(gathered)

    def finish(self) -> None:
        self.pause()

    def close(self) -> None:
        self._queue.close()


class Refusals:
    """Entries that cannot be put: the first ones are told, all are counted."""

    def __init__(self, tell: Callable[[str], object]) -> None:
        self.count = 0
        self._tell = tell

    def note(self, number: int, why: object) -> None:
        """This one stays out."""
        self.count += 1
        if self.count <= _SHOWN:
            self._tell(f"item {number}: {why}")
        elif self.count == _SHOWN + 1:
            self._tell("and more")


REFUSED = (TooLarge, ConfigurationError)
"""What is wrong with an entry, and not with the queue."""


def _prefix(kind: QueueKind, keys: Keys) -> str:
    if keys.is_bare:
        return ITEM_PREFIX
    if keys.kind not in (None, kind.value):
        raise ConfigurationError(f"it is an item of a queue of the kind {keys.kind}, and this one is {kind.value}")
    return prefix_for(kind, id=keys.id, priority=keys.priority, due_ms=keys.due_ms)


def store_for(session: Session, places: QueuePaths, kind: QueueKind) -> Store:
    """The way into a queue of this kind."""
    return SimpleStore(session, places) if kind is QueueKind.SIMPLE else FramedStore(session, places, kind)
