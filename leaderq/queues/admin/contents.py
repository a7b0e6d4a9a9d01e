"""Reads or deletes what lies below a path, and finds the queues below one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial

from leaderq.base import chance
from leaderq.errors import (
    ConfigurationError,
    CorruptItem,
    LeaderqError,
    NoNode,
    NoPermission,
    NotEmpty,
)
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
from leaderq.zookeeper.reading import SizedReader, children_of
from leaderq.zookeeper.retrying import retry_until_connected
from leaderq.zookeeper.writing import SequencedWriter, await_outcomes
from leaderq.zookeeper.writing.groups import batched
from leaderq.zookeeper.writing.writer import OVERTAKEN, Outcome, outcomes

META, DEAD = "-meta", "-dead"
"""The endings of paths that belong to the queue whose path comes before; see ``QueuePaths``."""
_LIST_S = 60.0  # a million names take some seconds to come
_TREE_ROUNDS = 5
_UNDER_WAY = 1000
_CLOSE_S = 5.0
_OTHERS = (*OVERTAKEN, NotEmpty)


@dataclass(frozen=True, slots=True)
class QueueContents:
    """What lies below a queue's path. ``kind``: the kind that was told, or else the kind that the
    names show; ``None`` without items. ``items``: in queue order. ``foreign``: names that nobody
    consumes. ``shards``: the queues of a ``QueueSharder``; their names look like items, but they
    must never be treated as items.
    """

    kind: QueueKind | None
    items: list[str]
    foreign: list[str]
    shards: list[str]


def contents_of(names: Collection[str], kind: QueueKind | None = None) -> QueueContents:
    """Sort the children of a queue into items, foreign names and shards. Without ``kind``, the
    names tell the kind.

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
    """Return the kind under which new items may be put: ``told``, or ``found`` if no kind was told.

    The two may differ in two cases only: an item that Java requeued in a priority or delay queue
    looks plain, and an id may look like a due time. Any other mixture has no order in which
    consumers could take the items.

    :raises ConfigurationError: the queue holds items of another kind than ``told``.
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
    """Raise an error if the path is that of a ``QueueSharder``.

    :raises ConfigurationError: the path's children are queues of a ``QueueSharder``, not items.
    """
    if seen.shards:
        raise ConfigurationError(
            f"{paths.path} is the path of a sharder with {len(seen.shards)} queues below it; "
            f"name one of them, as {paths.item(seen.shards[0])}"
        )


def names_at(session: Session, path: str) -> list[str]:
    """Return the names of all children, unsorted; an empty list if ``path`` does not exist."""
    return retry_until_connected(partial(children_of, session, path, timeout_s=_LIST_S))


def queues_below(session: Session, path: str) -> Iterator[str]:
    """Yield the paths of those children of ``path`` that look like queues: they have items, or side
    data of leaderq, or their children may not be listed. Paths of locks are left out, and so are
    empty queues without side data, because these look like any other znode.

    :raises NoNode: there is no ``path``.
    """
    names = set(retry_until_connected(partial(session.children, path, timeout_s=_LIST_S)))
    side = [(name, end) for name in names for end in (META, DEAD) if name.endswith(end)]
    known = {name.removesuffix(end) for name, end in side} - {""}
    others = names - known - {name for name, end in side if name != end}
    for name in sorted(known | others):
        if name in known or _has_items(session, join(path, name)):
            yield join(path, name)


def _has_items(session: Session, path: str) -> bool:
    try:
        names = names_at(session, path)
    except NoPermission:
        return True  # perhaps; whoever looks closer finds out
    for name in names:
        if kind_of([name]) and not _is_side_data_of_shard(name):
            stat = retry_until_connected(partial(session.exists, join(path, name)))
            return stat is not None and stat.ephemeral_owner == 0  # ephemeral: a lock of that name
    return False


def _is_side_data_of_shard(name: str) -> bool:
    """Such a name begins like an item's, and is not one."""
    return name.endswith((META, DEAD)) and is_shard(name.removesuffix(META).removesuffix(DEAD))


@dataclass(frozen=True, slots=True)
class Browsed:
    """One item of a queue, as it was when its znode was read.

    ``items``: the values in the znode; ``None`` if its data is corrupt, and ``problem`` then says
    why. ``is_locked``: whether a consumer works on the item; ``None`` if no lock path is known.
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
        """How many attempts at this item have failed."""
        return self.note.attempt if self.note else 0

    @property
    def enqueued_ms(self) -> int:
        """When the item was first put, in ms since the epoch; its znode may be younger."""
        first = self.note.enqueued_ms if self.note else None
        return self.ctime_ms if first is None else first

    def key(self, kind: QueueKind) -> str | int | None:
        """The item's id, priority, or due time in ms; ``None`` if its kind has no such key."""
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
    """Parse the data of item ``name`` (pure). ``locked``: the names of items being worked on."""
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
    """Read the children ``names`` of ``path`` in this order, and yield them batch by batch.
    Children that have vanished are left out.

    Memory: one batch of items, about 1 MB (see :mod:`leaderq.zookeeper.reading`), beside the names.
    """
    reader = SizedReader(session, path)
    at = 0
    while at < len(names):
        batch = names[at : at + reader.most]
        results = retry_until_connected(partial(reader.read_now, batch))
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
    """Return the operations that delete an item unless a consumer holds it. They create and delete
    the item's lock in the same transaction: so they fail if it is locked, and nobody ever sees the
    lock.
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
    with operators_writer(session, paths, join(paths.tallies, "admin")) as writer:
        for some in batched(groups, _UNDER_WAY):
            yield from usual_errors(outcomes(writer, some, paths.path), *_OTHERS)


def usual_errors(
    outcomes: Iterable[Outcome], *usual: type[LeaderqError]
) -> list[LeaderqError | None]:
    """The error of each, or ``None``. Errors that are not ``usual`` are raised."""
    errors = [error for _, error in outcomes]
    for error in errors:
        if error is not None and not isinstance(error, usual):
            raise error
    return errors


@contextmanager
def operators_writer(
    session: Session, paths: QueuePaths, guard: str, *, ephemeral: bool = False
) -> Iterator[SequencedWriter]:
    """A writer for an operator's work. Where only Java uses the queue, or it is none, no empty side
    data are left, which would say that there is a queue.
    """
    is_new = retry_until_connected(partial(session.exists, paths.meta)) is None
    guard = f"{guard}-{chance.uuid4().hex}"
    writer = SequencedWriter(session, guard, ephemeral=ephemeral)
    retry_until_connected(writer.open)
    try:
        yield writer
    finally:
        writer.close(_CLOSE_S)
        if is_new:
            parts = paths.tallies, paths.drained, paths.drains, paths.meta
            with suppress(LeaderqError):
                await_outcomes([session.delete_async(path) for path in parts], _CLOSE_S)


def delete_tree(session: Session, path: str) -> int:
    """Delete a znode and everything below it; returns how many znodes were deleted. It also deletes
    znodes that others create meanwhile, unless they create them faster.

    :raises NotEmpty: others created znodes below it faster than this could delete them.
    """
    deleted = 0
    for _ in range(_TREE_ROUNDS):
        full: list[str] = []
        below = (join(path, name) for name in names_at(session, path))
        for some in batched([*below, path], _UNDER_WAY):
            errors = retry_until_connected(partial(_delete_each, session, some))
            deleted += errors.count(None)
            both = zip(some, errors, strict=True)
            full += [one for one, error in both if isinstance(error, NotEmpty)]
        if path not in full:
            return deleted
        deleted += sum(delete_tree(session, one) for one in full if one != path)
    raise NotEmpty(f"{path} is written to while it is deleted", path=path)


def _delete_each(session: Session, paths: Sequence[str]) -> list[LeaderqError | None]:
    errors = await_outcomes([session.delete_async(path) for path in paths])
    return usual_errors([(None, error) for error in errors], NoNode, NotEmpty)
