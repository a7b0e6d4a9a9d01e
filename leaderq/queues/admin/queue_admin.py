"""One queue in an operator's hands, and its dead letters: look, send back, drop."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from leaderq.errors import (
    BadVersion,
    CorruptItem,
    LeaderqError,
    NoNode,
    NotEmpty,
    RequestRefused,
)
from leaderq.queues.admin.bulk import BulkOutcome, delete_each, delete_tree, removal
from leaderq.queues.admin.contents import (
    Browsed,
    QueueContents,
    browse,
    contents_of,
    names_at,
    refuse_sharder,
)
from leaderq.queues.admin.draining import QueueDrain
from leaderq.queues.pausing import wants_pause
from leaderq.queues.wire.names import (
    ITEM_PREFIX,
    SIMPLE_PREFIX,
    QueueKind,
    next_number,
    prefix_of,
    sequence_of,
)
from leaderq.queues.wire.payload import Note, compressed, decode, encode, is_compressed
from leaderq.queues.wire.znodes import QueuePaths
from leaderq.retrying import retry_until_connected
from leaderq.writing import SequencedWriter, await_outcomes
from leaderq.writing.groups import batched
from leaderq.zookeeper import Create, Delete, GetData, Operation, Session, Stat
from leaderq.zookeeper.paths import join, parent_of

T = TypeVar("T")
_CLOSE_S = 2.0
_UNDER_WAY = 250


@dataclass(frozen=True, slots=True)
class Overview:
    """A queue at one moment.

    ``depth``: items, those being worked on included; ``held``: how many these are, ``None`` without
    a lock path; ``consumers``: those of leaderq; ``oldest_ms``: when the oldest item's znode was
    made; ``next_sequence``: the number the next item gets, 0 too if the path is not there
    (``exists``), as a container that the servers took away when it was empty; ``aside``: what a
    drain that goes on, or died, has in hand.
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
    """``deleted`` by us; ``held``: left alone, for somebody works on them; ``gone``: taken by
    somebody else meanwhile; ``stuck``: left alone, for they have children.
    """

    deleted: int
    held: int = 0
    gone: int = 0
    stuck: int = 0


@dataclass(frozen=True, slots=True)
class DeadItem:
    """A dead letter; ``found`` is its znode. What only its note could say may be ``None``."""

    found: Browsed

    @property
    def name(self) -> str:
        return self.found.name

    @property
    def note(self) -> Note:
        return self.found.note or Note()

    @property
    def data(self) -> bytes:
        """What the item's znode would hold if it were sent back."""
        return restored_data(self.name, self.found.data)

    @property
    def died_ms(self) -> int:
        """When it was set aside, in ms since the epoch."""
        return self.note.died_ms if self.note.died_ms is not None else self.found.ctime_ms

    def says(self, text: str) -> bool:
        """Whether its reason or error holds ``text``, in capitals or not."""
        return text.casefold() in f"{self.note.reason or ''} {self.note.error or ''}".casefold()


@dataclass(frozen=True, slots=True)
class Moved:
    """``moved`` by us; ``gone``: somebody else moved, changed or dropped them meanwhile."""

    moved: int
    gone: int = 0


class DeadLetters:
    """The letters of one queue.

    A letter is a znode below ``<path>-dead``, named as the item was but for the server's number,
    framed as an item, with a note behind the frame that says why it died. Anything else that lies
    there with an item's name is treated as a letter without a note.

    *Guarantees:* a letter is sent back exactly once, or not at all: it vanishes and the item
    appears in one transaction, whoever tries, however often, and whatever happens to the answers.
    """

    def __init__(self, session: Session, paths: QueuePaths) -> None:
        self._session = session
        self._paths = paths

    def count(self) -> int:
        session, dead = self._session, self._paths.dead
        stat = retry_until_connected(session, lambda: session.exists(dead))
        return stat.num_children if stat else 0

    def names(self) -> list[str]:
        """Their names, the one that died first in front."""
        found = names_at(self._session, self._paths.dead)
        letters = (name for name in found if name.startswith((ITEM_PREFIX, SIMPLE_PREFIX)))
        return sorted(letters, key=lambda name: (sequence_of(name), name))

    def browse(self, names: Iterable[str] | None = None) -> Iterator[DeadItem]:
        """Read these letters, or all, in this order; one that is not there is left out."""
        wanted = self.names() if names is None else list(names)
        for batch in browse(self._session, self._paths.dead, wanted):
            yield from map(DeadItem, batch)

    def requeue(
        self, dead_items: Iterable[DeadItem], *, on_progress: Callable[[int], None] | None = None
    ) -> Moved:
        """Send them back to the queue, at the tail of their kind: with their id, priority or due
        time, their first time of putting, and no failures counted. What could not be read is again
        what it was, byte for byte.
        """
        item = self._paths.item
        groups = (
            (Create(item(prefix_of(one.name)), one.data, sequential=True), self._gone(one))
            for one in dead_items
        )
        return self._each(groups, on_progress)

    def drop(
        self, dead_items: Iterable[DeadItem], *, on_progress: Callable[[int], None] | None = None
    ) -> Moved:
        return self._each(([self._gone(one)] for one in dead_items), on_progress)

    def _gone(self, dead_item: DeadItem) -> Delete:
        return Delete(join(self._paths.dead, dead_item.name), dead_item.found.version)

    def _each(
        self, groups: Iterable[Sequence[Operation]], on_progress: Callable[[int], None] | None
    ) -> Moved:
        guard = join(self._paths.tallies, f"dead-{uuid.uuid4().hex}")
        writer = SequencedWriter(self._session, guard)
        retry_until_connected(self._session, writer.open)
        moved = gone = 0
        try:
            for some in batched(groups, _UNDER_WAY):
                for error in await_outcomes(writer.submit_all(some)):
                    if error is not None and not isinstance(error, BadVersion | NoNode | NotEmpty):
                        raise error
                    moved += error is None
                    gone += isinstance(error, BadVersion | NoNode)
                    if on_progress is not None:
                        on_progress(1)
        finally:
            writer.close(_CLOSE_S)
        return Moved(moved, gone)


def restored_data(name: str, data: bytes) -> bytes:
    """What a letter is sent back as (pure): as it is, if it cannot be read or is not ours."""
    try:
        payload = decode(data)
    except CorruptItem:
        return data
    note = payload.note
    if (note and note.raw) or name.startswith(SIMPLE_PREFIX):
        return payload.items[0] if len(payload.items) == 1 else data
    if note is None:
        return data
    kept = None if note.enqueued_ms is None else Note(enqueued_ms=note.enqueued_ms)
    back = encode(payload.items, kept)
    return compressed(back) if is_compressed(data) else back


class QueueAdmin:
    """See the package. Without ``kind`` the names of the items tell it, each time again. May be
    used from any thread.

    *Guarantees:* looking changes nothing; no call waits for longer than ``PATIENCE_S`` without an
    answer. *Not guaranteed:* that a queue in use is still as it was seen.
    """

    def __init__(self, session: Session, paths: QueuePaths, kind: QueueKind | None = None) -> None:
        self.paths = paths
        self.dead_letters = DeadLetters(session, paths)
        self._session = session
        self._kind = kind

    def depth(self) -> int:
        """How many children the queue has, without listing them: items, those being worked on
        included, and foreign ones if any. 0 if the path is not there.
        """
        stat = self._stat(self.paths.path)
        return stat.num_children if stat else 0

    def is_there(self) -> bool:
        """Whether there is anything of the queue: itself, dead letters, a wish, members."""
        return bool(self._znodes())

    def overview(self) -> Overview | None:
        """All about it; ``None`` if there is nothing at its path nor beside it.

        :raises ConfigurationError: no kind was told, and the names are those of several.
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
        """List the children, and tell kind, items and foreign ones.

        :raises ConfigurationError: the names are those of several kinds, and none was told.
        """
        return contents_of(self.names(), self._kind)

    def names(self) -> list[str]:
        """The names of all children, in no order; none if the path is not there."""
        return names_at(self._session, self.paths.path)

    def browse(
        self, limit: int | None = None, *, seen: QueueContents | None = None
    ) -> Iterator[Browsed]:
        """The items that lie there now, in the order in which they go, ``limit`` of them at most;
        nothing is taken.

        ``seen``: what :meth:`detect` returned, so as not to list again. Items that vanish before
        they are read are left out. Memory: the names of all, the data of a batch.

        :raises ConfigurationError: as :meth:`detect`; or the path is that of a sharder, whose
            queues are below it.
        """
        seen = self._own(seen)
        is_framed = seen.kind is not QueueKind.SIMPLE
        lock_path = self.paths.lock_path if is_framed else None
        path = self.paths.path
        batches = browse(self._session, path, seen.items, framed=is_framed, lock_path=lock_path)
        return islice((one for batch in batches for one in batch), limit)

    def purge(
        self, *, held_too: bool = False, on_progress: Callable[[int], None] | None = None
    ) -> Purged:
        """Delete the items that lie there now; with a lock path those being worked on stay, unless
        ``held_too``: then the acknowledgement of these will fail.

        The last ones go first: so consumers, who begin at the other end, get in the way as late as
        can be. Foreign children stay, and what is put meanwhile. Interrupted, it is begun again.
        ``on_progress`` is told how many more have been dealt with.

        :raises ConfigurationError: as :meth:`browse`.
        """
        seen, paths = self._own(), self.paths
        if held_too or seen.kind is QueueKind.SIMPLE:
            paths = QueuePaths(paths.path, None, paths.meta_path)
        elif (lock_path := paths.lock_path) is not None:
            self._ask(lambda: self._session.ensure_path(lock_path))
        counts: Counter[BulkOutcome] = Counter()
        groups = (removal(paths, name) for name in reversed(seen.items))
        for outcome in delete_each(self._session, groups):
            counts[outcome] += 1
            if on_progress is not None:
                on_progress(1)
        order = (BulkOutcome.DONE, BulkOutcome.HELD, BulkOutcome.GONE, BulkOutcome.STUCK)
        return Purged(*(counts[outcome] for outcome in order))

    def delete(self, *, force: bool = False) -> int:
        """Delete the queue with everything beside it: side data, dead letters, empty locks; returns
        how many znodes that were. A path that is gone already is not an error.

        :raises RequestRefused: it holds items or dead letters, or consumers are there; with
            ``force`` these go as well, items that are being worked on too.
        :raises ConfigurationError: the path is that of a sharder, whose queues are below it.
        """
        seen = self._own()
        if not force:
            self._refuse_loss(seen)
        wanted = (self.paths.path, self.paths.meta, self.paths.dead, self.paths.lock_path)
        deleted = sum(delete_tree(self._session, path) for path in wanted if path)
        side = parent_of(self.paths.meta)
        if self.paths.meta_path is None and side != parent_of(self.paths.path):
            # Of a shard: the place of all shards' side data goes with the last.
            (outcome,) = delete_each(self._session, [[Delete(side)]])
            deleted += outcome is BulkOutcome.DONE
        return deleted

    def _refuse_loss(self, seen: QueueContents) -> None:
        now = self.overview() or Overview(self.paths.path, exists=False)
        counts = {
            "items": len(seen.items),
            "foreign znodes": len(seen.foreign),
            "dead letters": now.dead,
            "items set aside by a drain": now.aside,
            "consumers": now.consumers,
        }
        held = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        if held:
            raise RequestRefused(
                f"{self.paths.path} is in use: {held}; purge it first, or force its deletion"
            )

    def drain(self) -> QueueDrain:
        """Empty it with care; see :class:`~leaderq.queues.admin.draining.QueueDrain`."""
        return QueueDrain(self._session, self.paths, self._kind)

    def pause(self) -> bool:
        """Ask consumers of leaderq, later ones too, to begin no new item; whether that is news."""
        return self._set_paused(True)

    def resume(self) -> bool:
        """End a pause; whether there was one."""
        return self._set_paused(False)

    def is_paused(self) -> bool:
        try:
            return wants_pause(self._ask(lambda: self._session.get(self.paths.control))[0])
        except NoNode:
            return False

    def _set_paused(self, paused: bool) -> bool:
        if self.is_paused() is paused:
            return False
        data = json.dumps({"paused": paused}).encode()

        def write() -> None:
            try:
                self._session.set(self.paths.control, data)
            except NoNode:
                self._session.ensure_path(self.paths.meta)
                self._session.create(self.paths.control, data)

        self._ask(write)
        return True

    def _own(self, seen: QueueContents | None = None) -> QueueContents:
        seen = seen or self.detect()
        refuse_sharder(seen, self.paths)
        return seen

    def _ask(self, ask: Callable[[], T]) -> T:
        return retry_until_connected(self._session, ask)

    def _stat(self, path: str) -> Stat | None:
        return self._ask(lambda: self._session.exists(path))

    def _znodes(self) -> dict[str, tuple[bytes, Stat]]:
        """What there is of path, dead letters, control, members, and what a drain set aside."""
        paths = self.paths
        wanted = (paths.path, paths.dead, paths.control, paths.members, paths.drained)
        answers = self._ask(lambda: self._session.multi_read(list(map(GetData, wanted))))
        for answer in answers:
            if isinstance(answer, LeaderqError) and not isinstance(answer, NoNode):
                raise answer
        found = zip(wanted, answers, strict=True)
        return {path: answer for path, answer in found if isinstance(answer, tuple)}
