"""The dead letters of a queue, as an operator sees them: look, send back, drop.

A letter is a znode below ``<path>-dead``, named as the item was but for the server's number, framed
as an item, with a note behind the frame that says why it died. Anything else that lies there with
an item's name is treated as a letter without a note.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from leaderq.errors import BadVersion, CorruptItem, NoNode, NotEmpty
from leaderq.queues.admin.contents import Browsed, browse, names_at
from leaderq.queues.wire.names import ITEM_PREFIX, SIMPLE_PREFIX, prefix_of, sequence_of
from leaderq.queues.wire.payload import Note, compressed, decode, encode, is_compressed
from leaderq.queues.wire.znodes import QueuePaths
from leaderq.retrying import retry_until_connected
from leaderq.writing import SequencedWriter, await_outcomes
from leaderq.writing.groups import batched
from leaderq.zookeeper import Create, Delete, Operation, Session
from leaderq.zookeeper.paths import join

_CLOSE_S = 2.0
_UNDER_WAY = 250


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
