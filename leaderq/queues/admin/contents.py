"""All about a queue on one line, and which queues there are."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from leaderq.errors import ConfigurationError, LeaderqError, NoNode
from leaderq.queues.pausing import wants_pause
from leaderq.queues.wire.names import QueueKind, is_item, kind_of, next_number, sequence_of, sort_key
from leaderq.queues.wire.znodes import QueuePaths, is_shard
from leaderq.retrying import PATIENCE_S, retry_until_connected
from leaderq.zookeeper import GetData, Session, Stat
from leaderq.zookeeper.paths import join

META, DEAD = "-meta", "-dead"
"""How the paths end that belong to the queue whose path comes before; see ``places``."""


@dataclass(frozen=True, slots=True)
class QueueContents:
    """``kind``: as told, else as the names say, ``None`` if there is not a item; ``items`` in the
    order in which they go; ``foreign``: what nobody consumes; ``shards``: queues of a
    ``QueueSharder``, which look like items and must never be taken for some.
    """

    kind: QueueKind | None
    items: list[str]
    foreign: list[str]
    shards: list[str]


def contents_of(names: Collection[str], kind: QueueKind | None = None) -> QueueContents:
    """Tell items from what is none.

    :raises ConfigurationError: no kind was told, and items of a simple queue and of another lie
        side by side.
    """
    shards = sorted(name for name in names if is_shard(name))
    rest = [name for name in names if not (is_shard(name) or is_side_data_of_shard(name))]
    found = kind or kind_of(rest)
    if found is None:
        return QueueContents(None, [], sorted(rest), shards)
    items = sorted((name for name in rest if is_item(found, name)), key=sort_key(found))
    foreign = sorted(name for name in rest if not is_item(found, name)) if len(items) < len(rest) else []
    return QueueContents(found, items, foreign, shards)


def is_side_data_of_shard(name: str) -> bool:
    """Whether it belongs to a shard: it begins as an item does, and is none."""
    return name.endswith((META, DEAD)) and is_shard(name.removesuffix(META).removesuffix(DEAD))


def agreed(told: QueueKind | None, found: QueueKind | None, path: str) -> QueueKind | None:
    """The kind that new items may be put as.

    What Java requeues in a priority or delay queue looks plain, and an id may look like a due time;
    nothing else may be mixed, for consumers would not find an order in it.

    :raises ConfigurationError: the items there are of another kind than the one told.
    """
    if told is None or found is None or told is found:
        return told or found
    looks_plain = found is QueueKind.PLAIN and told in (QueueKind.PRIORITY, QueueKind.DELAY)
    if looks_plain or (found is QueueKind.DELAY and told is QueueKind.ID):
        return told
    raise ConfigurationError(f"the items below {path} are those of a {found.value} queue, and {told.value} was given")


def sequence_after(stat: Stat) -> int:
    """The number that the server will give to the next child: how many were ever created."""
    return next_number(stat.cversion, stat.num_children)


LIST_S = 60.0
"""A million names take some seconds to come."""


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


def drained_of(paths: QueuePaths) -> str:
    """Where a drain sets items aside."""
    return f"{paths.meta}/drained"


def overview(
    session: Session, paths: QueuePaths, kind: QueueKind | None = None, *, patience_s: float = PATIENCE_S
) -> Overview | None:
    """Look at a queue; ``None`` if there is nothing of it, neither items nor side data.

    :raises ConfigurationError: no kind was told, and the names are those of several.
    """
    queue, dead, control, members, drained, *locks = _znodes(session, paths, patience_s)
    if queue is dead is control is members is drained is None:
        return None
    seen = contents_of([], kind) if queue is None else look(session, paths.path, kind, patience_s)
    return Overview(
        path=paths.path,
        exists=queue is not None,
        kind=seen.kind,
        depth=len(seen.items),
        held=_children(locks[0]) if locks else None,
        dead=_children(dead),
        next_sequence=sequence_after(queue[1]) if queue else 0,
        consumers=_children(members),
        is_paused=control is not None and wants_pause(control[0]),
        oldest_ms=_oldest_ms(session, paths, seen, patience_s),
        aside=_children(drained),
        foreign=tuple(seen.foreign),
        shards=tuple(seen.shards),
    )


def is_there(session: Session, paths: QueuePaths, *, patience_s: float = PATIENCE_S) -> bool:
    """Whether there is anything of a queue, be it only its dead letters, an operator's wish or its
    members' place.
    """
    return any(found is not None for found in _znodes(session, replace(paths, lock_path=None), patience_s))


def look(session: Session, path: str, kind: QueueKind | None, patience_s: float = PATIENCE_S) -> QueueContents:
    """List a queue's children and tell them apart; a path that is gone has none."""
    return contents_of(names_at(session, path, patience_s), kind)


def names_at(session: Session, path: str, patience_s: float = PATIENCE_S) -> list[str]:
    """The names of the children of a path, none if it is gone."""
    try:
        return retry_until_connected(session, lambda: session.children(path, timeout_s=LIST_S), patience_s)
    except NoNode:
        return []


def refuse_sharder(seen: QueueContents, paths: QueuePaths) -> None:
    """Raise if what was seen is not a queue but the queues of a ``QueueSharder``.

    :raises ConfigurationError: that is so.
    """
    if seen.shards:
        raise ConfigurationError(
            f"{paths.path} is the path of a sharder with {len(seen.shards)} queues below it; "
            f"name one of them, as {paths.item(seen.shards[0])}"
        )


def queues_below(session: Session, path: str, *, patience_s: float = PATIENCE_S) -> Iterator[str]:
    """The paths of what look like queues among the children of ``path``: those with items, and
    those with side data of leaderq.

    An empty queue without side data cannot be told from any other znode, and is left out; so are
    the paths of locks.

    :raises NoNode: there is no ``path``.
    """
    names = set(retry_until_connected(session, lambda: session.children(path, timeout_s=LIST_S), patience_s))
    known = {name.removesuffix(end) for name in names for end in (META, DEAD) if name.endswith(end)} - {""}
    for name in sorted(names | known):
        if name in known or (not _is_side_data(name) and _has_items(session, join(path, name), patience_s)):
            yield join(path, name)


def _znodes(session: Session, paths: QueuePaths, patience_s: float) -> list[tuple[bytes, Stat] | None]:
    """The queue's path, its dead letters, control, members, what a drain set aside, and the lock
    path if one is known; ``None`` for what is not there.
    """
    wanted = [paths.path, paths.dead, paths.control, paths.members, drained_of(paths), paths.lock_path]
    reads = [GetData(path) for path in wanted if path is not None]
    found: list[tuple[bytes, Stat] | None] = []
    for answer in retry_until_connected(session, lambda: session.multi_read(reads), patience_s):
        if isinstance(answer, LeaderqError) and not isinstance(answer, NoNode):
            raise answer
        found.append(answer if isinstance(answer, tuple) else None)
    return found


def _is_side_data(name: str) -> bool:
    return any(name.endswith(end) and name != end for end in (META, DEAD))


def _has_items(session: Session, path: str, patience_s: float) -> bool:
    try:
        children = retry_until_connected(session, lambda: session.children(path, timeout_s=LIST_S), patience_s)
        item = next((name for name in children if kind_of([name]) and not is_side_data_of_shard(name)), None)
        stat = (
            retry_until_connected(session, lambda: session.exists(join(path, item)), patience_s)
            if item is not None
            else None
        )
    except NoNode:
        return False
    return stat is not None and stat.ephemeral_owner == 0  # ephemeral ones of such names are locks


def _children(found: tuple[bytes, Stat] | None) -> int:
    return found[1].num_children if found else 0


def _oldest_ms(session: Session, paths: QueuePaths, seen: QueueContents, patience_s: float) -> int | None:
    if not seen.items:
        return None
    oldest = paths.item(min(seen.items, key=sequence_of))
    stat = retry_until_connected(session, lambda: session.exists(oldest), patience_s)
    return stat.ctime_ms if stat else None
