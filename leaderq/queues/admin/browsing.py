"""Looking at the items of a queue without taking them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from leaderq.errors import CorruptItem, LeaderqError, NoNode
from leaderq.queues.connected import PATIENCE_S, retry_until_connected
from leaderq.queues.wire.names import QueueKind, due_ms_of, id_of, priority_of, sequence_of
from leaderq.queues.wire.payload import Note, decode
from leaderq.zookeeper import GetChildren, GetData, Read, Session, Stat
from leaderq.zookeeper.paths import join

_FIRST, _MOST = 16, 200
_BYTES = 1 << 20
"""What one reply should hold; nobody tells the size of an item before it is read, so the size of
the last ones has to do.
"""


@dataclass(frozen=True, slots=True)
class Browsed:
    """One item, as it was when it was read.

    ``items``: what the znode holds, ``None`` if it is corrupt, and then ``problem`` says why.
    ``is_locked``: somebody works on it; ``None`` where no lock path is known.
    """

    name: str
    data: bytes
    items: Sequence[bytes] | None
    note: Note | None
    problem: str | None
    ctime_ms: int
    version: int
    is_locked: bool | None = None

    @property
    def sequence(self) -> int:
        """The server's number."""
        return sequence_of(self.name)

    @property
    def attempt(self) -> int:
        """How often it has failed."""
        return self.note.attempt if self.note else 0

    @property
    def enqueued_ms(self) -> int:
        """When it was first put, in ms since the epoch; the znode may be younger."""
        return self.note.enqueued_ms if self.note and self.note.enqueued_ms is not None else self.ctime_ms

    def key(self, kind: QueueKind) -> str | int | None:
        """Its id, priority, or due time in ms, as its kind has one."""
        if kind is QueueKind.ID:
            return id_of(self.name)
        if kind is QueueKind.DELAY:
            return due_ms_of(self.name)
        return priority_of(self.name) if kind is QueueKind.PRIORITY else None


def read(name: str, data: bytes, stat: Stat, *, framed: bool = True) -> Browsed:
    """An item out of its znode (pure)."""
    if not framed:
        return Browsed(name, data, [data], None, None, stat.ctime_ms, stat.version)
    try:
        payload = decode(data)
    except CorruptItem as exc:
        return Browsed(name, data, None, None, str(exc), stat.ctime_ms, stat.version)
    return Browsed(name, data, payload.items, payload.note, None, stat.ctime_ms, stat.version)


def browse(
    session: Session,
    path: str,
    names: Sequence[str],
    *,
    framed: bool = True,
    lock_path: str | None = None,
    patience_s: float = PATIENCE_S,
) -> Iterator[list[Browsed]]:
    """Read these children of ``path``, in this order, a batch at a time; those that are gone by
    then are left out.

    Memory: one batch of items beside the names, about 1 MB unless they grow all of a sudden.
    """
    at, size = 0, _FIRST
    while at < len(names):
        batch = names[at : at + size]
        at += len(batch)
        found = _read_batch(session, path, batch, framed, lock_path, patience_s)
        yield found
        read_bytes = sum(len(one.data) for one in found) or 1
        size = max(1, min(_MOST, 2 * size, len(batch) * _BYTES // read_bytes))


def _read_batch(
    session: Session, path: str, names: Sequence[str], framed: bool, lock_path: str | None, patience_s: float
) -> list[Browsed]:
    reads: list[Read] = [GetData(join(path, name)) for name in names]
    if lock_path is not None:
        reads.append(GetChildren(lock_path))
    results = retry_until_connected(session, lambda: session.multi_read(reads), patience_s)
    held = frozenset(locks) if isinstance(locks := results[-1], list) else frozenset()
    found = []
    for name, result in zip(names, results, strict=False):
        if isinstance(result, NoNode):
            continue
        if isinstance(result, LeaderqError):
            raise result
        if isinstance(result, tuple):
            one = read(name, *result, framed=framed)
            found.append(one if lock_path is None else replace(one, is_locked=name in held))
    return found
