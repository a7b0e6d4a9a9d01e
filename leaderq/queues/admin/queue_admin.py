"""Lets an operator look at one queue and its dead letters, send these back, or drop them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

from leaderq.base import clock
from leaderq.base.arguments import at_least, require
from leaderq.engine.dead_letters import DeadLetters
from leaderq.errors import (
    CorruptItem,
    LeaderqError,
    NodeExists,
    NoNode,
    NotEmpty,
    RequestRefused,
)
from leaderq.queues.admin.contents import (
    Browsed,
    QueueContents,
    browse,
    contents_of,
    delete_tree,
    names_at,
    refuse_sharder,
    removal,
    written,
)
from leaderq.queues.admin.draining import QueueDrain
from leaderq.queues.wire.names import (
    ITEM_PREFIX,
    SIMPLE_PREFIX,
    QueueKind,
    next_number,
    prefix_of,
    sequence_of,
)
from leaderq.queues.wire.payload import Note, compressed, decode, encode, is_compressed
from leaderq.queues.wire.znodes import QueuePaths, wants_pause
from leaderq.zookeeper import Create, Delete, Session, Stat
from leaderq.zookeeper.paths import is_at_or_below, join, parent_of
from leaderq.zookeeper.reading import existing
from leaderq.zookeeper.retrying import retry_until_connected
from leaderq.zookeeper.writing.groups import Operations


@dataclass(frozen=True, slots=True)
class Overview:
    """The state of a queue at one moment.

    ``depth``: how many items there are, including those being worked on; ``held``: how many are
    being worked on, ``None`` without a lock path; ``dead``: how many dead letters there are;
    ``consumers``: how many consumers of leaderq there are; ``oldest_ms``: when the oldest item's
    znode was made; ``next_sequence``: the number that the next item gets; ``exists``: whether the
    path exists (the servers may have deleted it as an empty container; ``next_sequence`` is 0
    then); ``aside``: how many items a running or dead drain has set aside.
    """

    path: str
    exists: bool
    kind: QueueKind | None = None
    depth: int = 0
    held: int | None = None
    dead: int = 0
    next_sequence: int = 0
    consumers: int = 0
    is_paused: bool = False
    oldest_ms: int | None = None
    aside: int = 0
    foreign: tuple[str, ...] = ()
    shards: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Purged:
    """``deleted``: items that this call deleted; ``held``: items left, because consumers work on
    them; ``gone``: items that others took meanwhile; ``stuck``: items left, because they have
    children.
    """

    deleted: int
    held: int = 0
    gone: int = 0
    stuck: int = 0


@dataclass(frozen=True, slots=True)
class DeadItem:
    """A dead letter; ``found`` is its znode. Values that only its note has may be ``None``."""

    found: Browsed

    @property
    def name(self) -> str:
        return self.found.name

    @property
    def note(self) -> Note:
        return self.found.note or Note()

    @property
    def data(self) -> bytes:
        """What the item's znode would hold if the letter were sent back."""
        return restored_data(self.name, self.found.data)

    @property
    def died_ms(self) -> int:
        """When the item became a dead letter, in ms since the epoch."""
        return self.note.died_ms if self.note.died_ms is not None else self.found.ctime_ms

    def says(self, text: str) -> bool:
        """Return whether its reason or error contains ``text``; case is ignored."""
        return text.casefold() in f"{self.note.reason or ''} {self.note.error or ''}".casefold()


class ItemLetters(DeadLetters[DeadItem]):
    """The letters of one queue: znodes below ``<path>-dead``, named as the item was except for the
    server's number, framed as an item, with a note behind the frame that says why it died. Anything
    else with an item's name is treated as a letter without a note. One that is sent back goes to
    the tail of its kind, with its id, priority or due time; an unreadable one as its former bytes.
    """

    KIND = DeadItem

    def __init__(self, session: Session, paths: QueuePaths) -> None:
        self._session = session
        self._paths = paths

    def count(self) -> int:
        session, dead = self._session, self._paths.dead
        stat = retry_until_connected(partial(session.exists, dead))
        return stat.num_children if stat else 0

    def names(self) -> list[str]:
        """Their names; the one that died first comes first."""
        found = names_at(self._session, self._paths.dead)
        letters = (name for name in found if name.startswith((ITEM_PREFIX, SIMPLE_PREFIX)))
        return sorted(letters, key=lambda name: (sequence_of(name), name))

    def browse(self, names: Iterable[str] | None = None) -> Iterator[DeadItem]:
        """Read these letters, or all, in this order; missing ones are left out."""
        wanted = self.names() if names is None else list(names)
        for batch in browse(self._session, self._paths.dead, wanted):
            yield from map(DeadItem, batch)

    def _back(self, letter: DeadItem) -> Operations:
        item = self._paths.item(prefix_of(letter.name))
        return Create(item, letter.data, sequential=True), *self._gone(letter)

    def _path(self, letter: DeadItem) -> str:
        return join(self._paths.dead, letter.name)

    def _gone(self, letter: DeadItem) -> Operations:
        return (Delete(self._path(letter), letter.found.version),)

    def _written(self, groups: Iterable[Operations]) -> Iterator[LeaderqError | None]:
        return written(self._session, self._paths, groups)


def restored_data(name: str, data: bytes) -> bytes:
    """The data with which a letter is sent back (pure): ``data`` itself if it cannot be read, or if
    leaderq did not write it.
    """
    try:
        payload = decode(data)
    except CorruptItem:
        return data
    note = payload.note
    if (note and note.raw) or name.startswith(SIMPLE_PREFIX):
        return payload.items[0] if len(payload.items) == 1 else data
    if note is None:
        return data
    kept = Note(enqueued_ms=note.enqueued_ms, trace=note.trace)
    back = encode(payload.items, None if kept == Note() else kept)
    return compressed(back) if is_compressed(data) else back


class QueueAdmin:
    """See the package. Without ``kind`` each call tells it from the names of the items. May be used
    from any thread.

    *Guarantees:* reading changes nothing; no call waits longer than ``PATIENCE_S`` for an answer.
    """

    def __init__(self, session: Session, paths: QueuePaths, kind: QueueKind | None = None) -> None:
        self.paths = paths
        self.dead_letters = ItemLetters(session, paths)
        self._session = session
        self._kind = kind

    def depth(self) -> int:
        """How many children the queue has: all items, including those being worked on, and foreign
        children; 0 if the path does not exist. It does not list them.
        """
        stat = self._stat(self.paths.path)
        return stat.num_children if stat else 0

    def is_there(self) -> bool:
        """Whether anything of the queue exists: its path, or what is beside it."""
        return bool(self._znodes())

    def overview(self) -> Overview | None:
        """Return the state of the queue; ``None`` if neither its path nor side data exists.

        :raises ConfigurationError: no kind was told, and the names belong to several kinds.
        """
        paths, found = self.paths, self._znodes()
        if not found:
            return None
        seen = self.detect()
        first = min(seen.items, key=sequence_of, default=None)
        oldest = None if first is None else self._stat(paths.item(first))
        locks = None if paths.lock_path is None else self._stat(paths.lock_path)

        def children(path: str) -> int:
            return found[path][1].num_children if path in found else 0

        queue = found[paths.path][1] if paths.path in found else None
        return Overview(
            path=paths.path,
            exists=queue is not None,
            kind=seen.kind,
            depth=len(seen.items),
            held=None if paths.lock_path is None else locks.num_children if locks else 0,
            dead=children(paths.dead),
            next_sequence=next_number(queue.cversion, queue.num_children) if queue else 0,
            consumers=children(paths.members),
            is_paused=paths.control in found and wants_pause(found[paths.control][0]),
            oldest_ms=oldest.ctime_ms if oldest else None,
            aside=children(paths.drained),
            foreign=tuple(seen.foreign),
            shards=tuple(seen.shards),
        )

    def detect(self) -> QueueContents:
        """List the children; see :func:`~leaderq.queues.admin.contents_of`."""
        return contents_of(self.names(), self._kind)

    def names(self) -> list[str]:
        """Return the names of all children, unsorted; an empty list if the path does not exist."""
        return names_at(self._session, self.paths.path)

    def browse(
        self, limit: int | None = None, *, seen: QueueContents | None = None
    ) -> Iterator[Browsed]:
        """Yield the items that are there now, in queue order, at most ``limit``, without taking
        them. Items that vanish before they are read are left out. ``seen``: what :meth:`detect`
        returned, to save another listing.

        :raises ConfigurationError: as :meth:`detect`; or the path is that of a sharder, whose
            queues are below it.
        """
        require(at_least("limit", limit, 0, or_none="for all"))
        seen = self._own(seen)
        is_framed = seen.kind is not QueueKind.SIMPLE
        lock_path = self.paths.lock_path if is_framed else None
        path = self.paths.path
        batches = browse(self._session, path, seen.items, framed=is_framed, lock_path=lock_path)
        return islice((one for batch in batches for one in batch), limit)

    def purge(
        self,
        *,
        held_too: bool = False,
        older_s: float | None = None,
        on_progress: Callable[[int], None] | None = None,
    ) -> Purged:
        """Delete the items that are there now. With a lock path, items being worked on stay, unless
        ``held_too``: then their acknowledgement will fail. The last items are deleted first,
        because consumers begin at the other end. Foreign children stay, and so do items put
        meanwhile. ``older_s``: delete only items that were first put more than so many seconds ago,
        by the clocks of the servers and of this host; for this all items are read. After an
        interruption, call it again.

        :raises ConfigurationError: as :meth:`browse`.
        """
        seen, paths = self._own(), self.paths
        if older_s is not None:
            before_ms = clock.now_ms() - int(older_s * 1000)
            old = [one.name for one in self.browse(seen=seen) if one.enqueued_ms < before_ms]
            seen = replace(seen, items=old)
        if held_too or seen.kind is QueueKind.SIMPLE:
            paths = QueuePaths(paths.path, None, paths.meta_path)
        locked = set(names_at(self._session, paths.lock_path)) if paths.lock_path else set()
        free = [name for name in reversed(seen.items) if name not in locked]
        held, deleted, stuck = len(seen.items) - len(free), 0, 0
        if on_progress is not None:
            on_progress(held)
        for error in written(self._session, paths, (removal(paths, name) for name in free)):
            deleted += error is None
            held += isinstance(error, NodeExists)
            stuck += isinstance(error, NotEmpty)
            if on_progress is not None:
                on_progress(1)
        return Purged(deleted, held, len(seen.items) - deleted - held - stuck, stuck)

    def delete(self, *, force: bool = False) -> int:
        """Delete the queue and everything beside it: side data, dead letters, and the lock path if
        it is empty. Returns how many znodes were deleted. A missing path is not an error.

        :raises RequestRefused: it holds items or dead letters, or consumers are there, or something
            else is in it or its side data; with ``force`` these are deleted too, even items that
            are being worked on.
        :raises ConfigurationError: the path is that of a sharder, whose queues are below it.
        """
        seen = self._own()
        if not force:
            self._refuse_loss(seen)
        deleted = self.purge(held_too=True).deleted if seen.items else 0
        wanted = (self.paths.path, self.paths.meta, self.paths.dead)
        deleted += sum(delete_tree(self._session, path) for path in wanted)
        shared = [] if self.paths.lock_path is None else [self.paths.lock_path]
        side = parent_of(self.paths.meta)
        if self.paths.meta_path is None and side != parent_of(self.paths.path):
            # Of a shard: the place of all shards' side data is deleted with the last shard's.
            shared.append(side)
        for path in shared:
            with suppress(NoNode, NotEmpty):
                retry_until_connected(partial(self._session.delete, path))
                deleted += 1
        return deleted

    def _refuse_loss(self, seen: QueueContents) -> None:
        now = self.overview() or Overview(self.paths.path, exists=False)
        counts = {
            "items": len(seen.items),
            "foreign znodes": len(seen.foreign),
            "dead letters": now.dead,
            "items set aside by a drain": now.aside,
            "consumers": now.consumers,
            "foreign znodes in the side data": len(self._foreign_beside()),
        }
        held = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        if held:
            why = f"{self.paths.path} is in use: {held}; purge it first, or force its deletion"
            raise RequestRefused(why)

    def _foreign_beside(self) -> list[str]:
        """The names in the side data that are not of this queue: the path may be a wrong one."""
        paths = self.paths
        own = {paths.members, paths.tallies, paths.claims, paths.bound, paths.control}
        own |= {paths.drained, paths.drains, paths.dead}
        found = (join(paths.meta, name) for name in names_at(self._session, paths.meta))
        locks = paths.lock_path or paths.dead
        return [one for one in found if one not in own and not is_at_or_below(locks, one)]

    def drain(self) -> QueueDrain:
        """See :class:`~leaderq.queues.admin.QueueDrain`."""
        return QueueDrain(self._session, self.paths, self._kind)

    def pause(self) -> bool:
        """Ask all consumers, including later ones, to begin no new item; ``False`` if the queue was
        paused before.
        """
        return self._set_paused(True)

    def resume(self) -> bool:
        """End a pause; returns whether there was one."""
        return self._set_paused(False)

    def is_paused(self) -> bool:
        try:
            asked = partial(self._session.get, self.paths.control)
            return wants_pause(retry_until_connected(asked)[0])
        except NoNode:
            return False

    def _set_paused(self, paused: bool) -> bool:
        if self.is_paused() is paused:
            return False
        data = json.dumps({"paused": paused}).encode()

        def write() -> None:
            self._session.ensure_path(self.paths.control)
            self._session.set(self.paths.control, data)

        retry_until_connected(write)
        return True

    def _own(self, seen: QueueContents | None = None) -> QueueContents:
        seen = seen or self.detect()
        refuse_sharder(seen, self.paths)
        return seen

    def _stat(self, path: str) -> Stat | None:
        return retry_until_connected(partial(self._session.exists, path))

    def _znodes(self) -> dict[str, tuple[bytes, Stat]]:
        """The data and stat, by path, of the queue's path and what is beside it."""
        paths = self.paths
        wanted = (paths.path, paths.dead, paths.control, paths.members, paths.drained)
        return retry_until_connected(partial(existing, self._session, wanted))
