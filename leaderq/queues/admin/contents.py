"""What lies below a path, looked at or deleted; and which queues there are."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from leaderq.base import chance
from leaderq.errors import ConfigurationError, CorruptItem, LeaderqError, NoNode, NotEmpty
from leaderq.queues.wire.names import (
    QueueKind,
    due_ms_of,
    id_of,
    is_item,
    kind_of,
    priority_of,
    sort_key,
)
from leaderq.queues.wire.payload import Note, decode
from leaderq.queues.wire.znodes import QueuePaths, is_shard
from leaderq.zookeeper import Create, Delete, Operation, Session
from leaderq.zookeeper.paths import join
from leaderq.zookeeper.reading import SizedReader
from leaderq.zookeeper.retrying import retry_until_connected
from leaderq.zookeeper.writing import SequencedWriter, await_outcomes
from leaderq.zookeeper.writing.groups import batched
from leaderq.zookeeper.writing.writer import OVERTAKEN, outcomes

META, DEAD = "-meta", "-dead"
"""The endings of paths that belong to the queue whose path comes before; see ``QueuePaths``."""
_LIST_S = 60.0  # a million names take some seconds to come
_TREE_ROUNDS = 5
_UNDER_WAY = 1000
_CLOSE_S = 2.0
_OTHERS = (*OVERTAKEN, NotEmpty)


@dataclass(frozen=True, slots=True)
class QueueContents:
    """``kind``: as told, else as the names say, ``None`` without items; ``items`` in the order in
    which they go; ``foreign``: names that nobody consumes; ``shards``: queues of a
    ``QueueSharder``, which look like items and must never be taken for some.
    """

    kind: QueueKind | None
    items: list[str]
    foreign: list[str]
    shards: list[str]


def contents_of(names: Collection[str], kind: QueueKind | None = None) -> QueueContents:
    """Tell items from anything else.

    :raises ConfigurationError: no kind was told, and items of a simple queue and of another lie
        side by side.
    """
    shards = sorted(name for name in names if is_shard(name))
    rest = [name for name in names if not (is_shard(name) or _is_side_data_of_shard(name))]
    found = kind or kind_of(rest)
    if found is None:
        return QueueContents(None, [], sorted(rest), shards)
    items = sorted((name for name in rest if is_item(found, name)), key=sort_key(found))
    foreign = sorted(name for name in rest if not is_item(found, name))
    return QueueContents(found, items, foreign, shards)


def agreed(told: QueueKind | None, found: QueueKind | None, path: str) -> QueueKind | None:
    """The kind that new items may be put as.

    What Java requeues in a priority or delay queue looks plain, and an id may look like a due time;
    nothing else may be mixed, because consumers would not find an order in it.

    :raises ConfigurationError: the items there are of another kind than the one told.
    """
    if told is None or found is None or told is found:
        return told or found
    looks_plain = found is QueueKind.PLAIN and told in (QueueKind.PRIORITY, QueueKind.DELAY)
    if looks_plain or (found is QueueKind.DELAY and told is QueueKind.ID):
        return told
    raise ConfigurationError(
        f"the items below {path} are those of a {found.value} queue, and {told.value} was given"
    )


def refuse_sharder(seen: QueueContents, paths: QueuePaths) -> None:
    """:raises ConfigurationError: these are the queues of a ``QueueSharder``, and not items."""
    if seen.shards:
        raise ConfigurationError(
            f"{paths.path} is the path of a sharder with {len(seen.shards)} queues below it; "
            f"name one of them, as {paths.item(seen.shards[0])}"
        )


def names_at(session: Session, path: str) -> list[str]:
    """The names of all children, in no order; none if the path is not there."""
    try:
        return _children(session, path)
    except NoNode:
        return []


def queues_below(session: Session, path: str) -> Iterator[str]:
    """The paths of what look like queues among the children of ``path``: those with items, and
    those with side data of leaderq. An empty queue without side data looks like any other znode,
    and is left out; so are the paths of locks.

    :raises NoNode: there is no ``path``.
    """
    names = set(_children(session, path))
    side = [(name, end) for name in names for end in (META, DEAD) if name.endswith(end)]
    known = {name.removesuffix(end) for name, end in side} - {""}
    others = names - known - {name for name, end in side if name != end}
    for name in sorted(known | others):
        if name in known or _has_items(session, join(path, name)):
            yield join(path, name)


def _has_items(session: Session, path: str) -> bool:
    for name in names_at(session, path):
        if kind_of([name]) and not _is_side_data_of_shard(name):
            stat = retry_until_connected(session, partial(session.exists, join(path, name)))
            return stat is not None and stat.ephemeral_owner == 0  # ephemeral: a lock of that name
    return False


def _children(session: Session, path: str) -> list[str]:
    return retry_until_connected(session, lambda: session.children(path, timeout_s=_LIST_S))


def _is_side_data_of_shard(name: str) -> bool:
    """Whether it belongs to a shard: it begins as an item does, and is not one."""
    return name.endswith((META, DEAD)) and is_shard(name.removesuffix(META).removesuffix(DEAD))


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
    def attempt(self) -> int:
        """How many times it has failed."""
        return self.note.attempt if self.note else 0

    @property
    def enqueued_ms(self) -> int:
        """When it was first put, in ms since the epoch; the znode may be younger."""
        first = self.note.enqueued_ms if self.note else None
        return self.ctime_ms if first is None else first

    def key(self, kind: QueueKind) -> str | int | None:
        """Its id, priority, or due time in ms, as its kind has one."""
        if kind is QueueKind.ID:
            return id_of(self.name)
        if kind is QueueKind.DELAY:
            return due_ms_of(self.name)
        return priority_of(self.name) if kind is QueueKind.PRIORITY else None


def read(
    name: str,
    data: bytes,
    ctime_ms: int,
    version: int,
    *,
    framed: bool = True,
    locked: Collection[str] | None = None,
) -> Browsed:
    """Parse an item's data (pure); ``locked``: the names of items being worked on."""
    items: Sequence[bytes] | None = [data]
    note = problem = None
    if framed:
        try:
            payload = decode(data)
            items, note = payload.items, payload.note
        except CorruptItem as exc:
            items, problem = None, str(exc)
    is_locked = None if locked is None else name in locked
    return Browsed(name, data, items, note, problem, ctime_ms, version, is_locked)


def browse(
    session: Session,
    path: str,
    names: Sequence[str],
    *,
    framed: bool = True,
    lock_path: str | None = None,
) -> Iterator[list[Browsed]]:
    """Read these children of ``path``, in this order, a batch at a time; vanished ones are left
    out.

    Memory: one batch of items, about 1 MB (see :mod:`leaderq.zookeeper.reading`), beside the names.
    """
    reader = SizedReader(session, path)
    at = 0
    while at < len(names):
        batch = names[at : at + reader.most]
        results = retry_until_connected(session, partial(reader.read_now, batch))
        locked = None if lock_path is None else frozenset(names_at(session, lock_path))
        at += len(results)
        found = []
        for name, result in zip(batch, results, strict=False):
            if not isinstance(result, LeaderqError):
                found.append(read(name, *result, framed=framed, locked=locked))
            elif not isinstance(result, NoNode):
                raise result
        yield found


def removal(paths: QueuePaths, name: str) -> Sequence[Operation]:
    """The operations that delete an item, unless a consumer holds it: its lock is made and deleted
    in the same transaction, so nobody ever sees it.
    """
    item = Delete(paths.item(name))
    if paths.lock_path is None:
        return [item]
    lock = paths.lock(name)
    return [Create(lock, ephemeral=True), item, Delete(lock)]


def written(
    session: Session, paths: QueuePaths, groups: Iterable[Sequence[Operation]]
) -> Iterator[LeaderqError | None]:
    """Write these through a writer of their own, and yield why each was not applied, in their
    order; ``None``: it was. Errors other than those that others' znodes cause are raised.

    :raises ConnectionLost: nothing was answered for ``PATIENCE_S``; the rest may or may not have
        been done.
    """
    is_new = has_no_side_data(session, paths)
    guard = join(paths.tallies, f"admin-{chance.uuid4().hex}")
    writer = SequencedWriter(session, guard)
    retry_until_connected(session, writer.open)
    try:
        for some in batched(groups, _UNDER_WAY):
            for _, error in outcomes(writer, some, paths.path):
                if error is not None and not isinstance(error, _OTHERS):
                    raise error
                yield error
    finally:
        writer.close(_CLOSE_S)
        if is_new:
            forget_side_data(session, paths)


def has_no_side_data(session: Session, paths: QueuePaths) -> bool:
    """Whether only Java uses this queue, or it is none."""
    return retry_until_connected(session, partial(session.exists, paths.meta)) is None


def forget_side_data(session: Session, paths: QueuePaths) -> None:
    """Delete an operator's part of the side data, as far as it is empty: it would say that there
    is a queue.
    """
    parts = paths.tallies, paths.drained, paths.drains, paths.meta
    with suppress(LeaderqError):
        await_outcomes([session.delete_async(path) for path in parts], _CLOSE_S)


def delete_tree(session: Session, path: str) -> int:
    """Delete a znode with all below it; returns their number. Znodes that are created meanwhile are
    deleted too, as long as that is fast enough.

    :raises NotEmpty: it was not.
    """
    deleted = 0
    for _ in range(_TREE_ROUNDS):
        full: list[str] = []
        below = (join(path, name) for name in names_at(session, path))
        for some in batched([*below, path], _UNDER_WAY):
            errors = retry_until_connected(session, partial(_delete_each, session, some))
            deleted += errors.count(None)
            full += [one for one, error in zip(some, errors, strict=True) if _is_full(error)]
        if path not in full:
            return deleted
        deleted += sum(delete_tree(session, one) for one in full if one != path)
    raise NotEmpty(f"{path} is written to while it is deleted", path=path)


def _delete_each(session: Session, paths: Sequence[str]) -> list[LeaderqError | None]:
    errors = await_outcomes([session.delete_async(path) for path in paths])
    for error in errors:
        if error is not None and not isinstance(error, NoNode | NotEmpty):
            raise error
    return errors


def _is_full(error: LeaderqError | None) -> bool:
    return isinstance(error, NotEmpty)
