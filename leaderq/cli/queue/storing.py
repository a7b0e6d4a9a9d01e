"""Entries on their way into a queue, and what became of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import click

from leaderq.cli.queue.dyno import DynoAdmin
from leaderq.clock import now_s
from leaderq.dyno import DynoQueue, Message
from leaderq.errors import ConfigurationError, ConnectionLost, LeaderqError, NodeExists, TooLarge
from leaderq.queues import PutListener, SimpleDistributedQueue
from leaderq.queues.admin import QueueAdmin
from leaderq.queues.admin.contents import agreed, contents_of, refuse_sharder
from leaderq.queues.consumers import QueueOptions
from leaderq.queues.putting import Putter
from leaderq.queues.wire.names import ITEM_PREFIX, QueueKind, prefix_for
from leaderq.queues.wire.znodes import QueuePaths

if TYPE_CHECKING:
    from leaderq.cli.queue.entries import Entry, Keys
    from leaderq.cli.queue.options import Operated
    from leaderq.zookeeper import Session

PATIENCE_S = 30.0
_SLICE_S = 0.2
_FLUSH_S = 1.0
_SHOWN = 10
_AT_A_TIME, _LARGE = 250, 16 * 1024


class Store(Protocol):
    """``stored`` counts the znodes that are certainly there. Entries are stored in their order."""

    stored: int

    def put(self, entry: Entry) -> None:
        """Take this on its way. Raises ``TooLarge`` and ``ConfigurationError`` if it cannot be
        put.
        """

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
        options: QueueOptions[bytes] = QueueOptions(put_in_background=True)
        self._putter = Putter(session, places, options)
        self._putter.start()
        self._putter.add_listener(self)

    def put(self, entry: Entry) -> None:
        prefix = _prefix(self._kind, entry.keys)
        if not self._putter.put(entry.values, prefix, PATIENCE_S, is_multi=True):
            raise ConnectionLost(
                f"nothing was stored for {PATIENCE_S:.0f} s, and no more items fit in memory"
            )
        self._raise()

    def pause(self) -> None:
        """It sends at once."""

    def finish(self) -> None:
        seen, deadline = self.stored, now_s() + PATIENCE_S
        while not self._putter.flush(_SLICE_S):
            if self.stored > seen:
                seen, deadline = self.stored, now_s() + PATIENCE_S
            if now_s() >= deadline:
                raise ConnectionLost(
                    f"{self._putter.unsettled} items were not answered for {PATIENCE_S:.0f} s"
                )
        self._raise()

    def close(self) -> None:
        self._putter.close(_FLUSH_S)

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
            raise ConfigurationError(
                f"it has {len(entry.values)} values, and a znode of a simple queue holds one"
            )
        if entry.keys.kind is not None:
            raise ConfigurationError(
                f"it is an item of a queue of the kind {entry.keys.kind}, and this one is simple"
            )
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
        raise ConfigurationError(
            f"it is an item of a queue of the kind {keys.kind}, and this one is {kind.value}"
        )
    return prefix_for(kind, id=keys.id, priority=keys.priority, due_ms=keys.due_ms)


class DynoStore:
    """Into a Dyno queue, a message for each value."""

    def __init__(self, queue: DynoQueue, refusals: Refusals) -> None:
        self.stored = 0
        self._queue = queue
        self._refusals = refusals
        self._gathered: list[tuple[int, Message]] = []

    def put(self, entry: Entry) -> None:
        if len(entry.values) != 1:
            raise ConfigurationError(
                f"it has {len(entry.values)} values, and a message of a Dyno queue holds one"
            )
        keys, payload = entry.keys, entry.values[0]
        delay_s = 0.0 if keys.due_ms is None else max(0.0, keys.due_ms / 1000 - time.time())
        message = Message(
            keys.id or "",
            payload,
            delay_s,
            keys.priority or 0,
            keys.shard,
            keys.headers or {},
            keys.group,
        )
        self._gathered.append((entry.number, message))
        if len(self._gathered) == _AT_A_TIME or len(payload) > _LARGE:
            self.pause()

    def pause(self) -> None:
        gathered, self._gathered = self._gathered, []
        outcomes = self._queue.push_each([message for _, message in gathered])
        for (number, _), outcome in zip(gathered, outcomes, strict=True):
            if isinstance(outcome, (*REFUSED, NodeExists)):
                self._refusals.note(number, outcome)
            elif isinstance(outcome, str):
                self.stored += 1
            else:
                raise outcome

    def finish(self) -> None:
        self.pause()

    def close(self) -> None:
        """The queue is closed with the verb."""


@dataclass(frozen=True, slots=True)
class PutWish:
    """What the options of ``put`` say of a queue. ``keys``: those options that are for some kinds
    only."""

    kind: QueueKind | None
    keys: Sequence[str]
    has_objects: bool


_NEEDED = {QueueKind.ID: "--id", QueueKind.PRIORITY: "--priority", QueueKind.DELAY: "--delay-s"}


def way_into(
    session: Session, keeper: Operated, wish: PutWish, refusals: Refusals
) -> Callable[[Entry | None], Store]:
    """The way into a queue: what makes a store of the first entry.

    :raises ConfigurationError: what lies there does not agree with what was told.
    """
    if isinstance(keeper, DynoAdmin):
        if not keeper.is_there():
            _tell_new(keeper.path, "dyno")
        return lambda _: DynoStore(keeper.queue, refusals)
    known, paths = _kind(keeper, wish), keeper.paths

    def store(first: Entry | None) -> Store:
        kind = known or _kind_of(first, keeper)
        return (
            SimpleStore(session, paths)
            if kind is QueueKind.SIMPLE
            else FramedStore(session, paths, kind)
        )

    return store


def _wanted(wish: PutWish) -> QueueKind | None:
    if not wish.keys:
        return wish.kind
    for_dyno = [key for key in wish.keys if key not in _NEEDED.values()]
    if for_dyno or len(wish.keys) > 1:
        said = (
            "is for Dyno queues"
            if for_dyno
            else "are for different kinds of queue, or together for a Dyno queue"
        )
        raise ConfigurationError(
            f"{' and '.join(for_dyno or wish.keys)} {said}; --kind dyno makes one"
        )
    (implied,) = (kind for kind, key in _NEEDED.items() if key == wish.keys[0])
    if wish.kind not in (None, implied):
        raise ConfigurationError(
            f"{wish.keys[0]} is for {implied.value} queues, and another --kind was given"
        )
    return implied


def _kind(keeper: QueueAdmin, wish: PutWish) -> QueueKind | None:
    """As told, if what lies there agrees; else as what lies there tells; ``None`` if nothing
    does.
    """
    wanted, path, names = _wanted(wish), keeper.paths.path, keeper.names()
    refuse_sharder(contents_of(names, QueueKind.PLAIN), keeper.paths)
    found = contents_of(names).kind
    if wish.keys and wish.kind is None and found is QueueKind.PLAIN:
        raise ConfigurationError(
            f"the items below {path} are those of a plain queue, and {wish.keys[0]} was given; "
            f"if they are what Java has requeued, say so with --kind"
        )
    kind = agreed(wanted, found, path)
    if kind in _NEEDED and _NEEDED[kind] not in wish.keys and not wish.has_objects:
        raise ConfigurationError(f"{path} is of the kind {kind.value}: give {_NEEDED[kind]}")
    return kind


def _kind_of(first: Entry | None, keeper: QueueAdmin) -> QueueKind:
    """The kind of an empty queue, as the keys of its first item tell; said of a new one."""
    said = first.keys.kind if first and first.keys.kind else "plain"
    if said == "dyno":
        raise ConfigurationError(
            "the first item is a message of a Dyno queue; --kind dyno makes one"
        )
    if not keeper.is_there():
        _tell_new(keeper.paths.path, said)
    return QueueKind(said)


def _tell_new(path: str, kind: str) -> None:
    """Say what a queue is taken for that is not there yet."""
    click.echo(f"{path} is new: taken for a {kind} queue (--kind says otherwise)", err=True)
