"""Looking at the items of a queue without taking them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from leaderq.errors import CorruptItem, LeaderqError, NoNode
from leaderq.queues.wire.names import QueueKind, due_ms_of, id_of, priority_of, sequence_of
from leaderq.queues.wire.payload import Note, decode
from leaderq.reading import SizedReader
from leaderq.retrying import PATIENCE_S, retry_until_connected
from leaderq.zookeeper import Session


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
        return sequence_of(self.name)

    @property
    def attempt(self) -> int:
        """How often it has failed."""
        return self.note.attempt if self.note else 0

    @property
    def enqueued_ms(self) -> int:
        """When it was first put, in ms since the epoch; the znode may be younger."""
        return (
            self.note.enqueued_ms
            if self.note and self.note.enqueued_ms is not None
            else self.ctime_ms
        )

    def key(self, kind: QueueKind) -> str | int | None:
        """Its id, priority, or due time in ms, as its kind has one."""
        if kind is QueueKind.ID:
            return id_of(self.name)
        if kind is QueueKind.DELAY:
            return due_ms_of(self.name)
        return priority_of(self.name) if kind is QueueKind.PRIORITY else None


def read(name: str, data: bytes, ctime_ms: int, version: int, *, framed: bool = True) -> Browsed:
    if not framed:
        return Browsed(name, data, [data], None, None, ctime_ms, version)
    try:
        payload = decode(data)
    except CorruptItem as exc:
        return Browsed(name, data, None, None, str(exc), ctime_ms, version)
    return Browsed(name, data, payload.items, payload.note, None, ctime_ms, version)


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

    Memory: one batch of items, about 1 MB (see :mod:`leaderq.reading`), beside the names.
    """
    reader = SizedReader(session, path)
    at = 0
    while at < len(names):
        batch = names[at : at + reader.most]
        results = retry_until_connected(session, partial(reader.read_now, batch), patience_s)
        locked = _locked(session, lock_path, patience_s)
        at += len(results)
        found = []
        for name, result in zip(batch, results, strict=False):
            if isinstance(result, LeaderqError):
                if isinstance(result, NoNode):
                    continue
                raise result
            one = read(name, *result, framed=framed)
            found.append(one if locked is None else replace(one, is_locked=name in locked))
        yield found


def _locked(session: Session, lock_path: str | None, patience_s: float) -> frozenset[str] | None:
    if lock_path is None:
        return None
    try:
        return frozenset(
            retry_until_connected(session, lambda: session.children(lock_path), patience_s)
        )
    except NoNode:
        return frozenset()
