"""What lies below a path, and which queues there are."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from leaderq.errors import ConfigurationError, NoNode
from leaderq.queues.wire.names import QueueKind, is_item, kind_of, next_number, sort_key
from leaderq.queues.wire.znodes import QueuePaths, is_shard
from leaderq.retrying import PATIENCE_S, retry_until_connected
from leaderq.zookeeper import Session, Stat
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
    foreign = (
        sorted(name for name in rest if not is_item(found, name)) if len(items) < len(rest) else []
    )
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
    raise ConfigurationError(
        f"the items below {path} are those of a {found.value} queue, and {told.value} was given"
    )


def sequence_after(stat: Stat) -> int:
    """The number that the server will give to the next child: how many were ever created."""
    return next_number(stat.cversion, stat.num_children)


LIST_S = 60.0
"""A million names take some seconds to come."""


def look(
    session: Session, path: str, kind: QueueKind | None, patience_s: float = PATIENCE_S
) -> QueueContents:
    return contents_of(names_at(session, path, patience_s), kind)


def names_at(session: Session, path: str, patience_s: float = PATIENCE_S) -> list[str]:
    try:
        return retry_until_connected(
            session, lambda: session.children(path, timeout_s=LIST_S), patience_s
        )
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
    names = set(
        retry_until_connected(session, lambda: session.children(path, timeout_s=LIST_S), patience_s)
    )
    known = {
        name.removesuffix(end) for name in names for end in (META, DEAD) if name.endswith(end)
    } - {""}
    for name in sorted(names | known):
        if name in known or (
            not _is_side_data(name) and _has_items(session, join(path, name), patience_s)
        ):
            yield join(path, name)


def _is_side_data(name: str) -> bool:
    return any(name.endswith(end) and name != end for end in (META, DEAD))


def _has_items(session: Session, path: str, patience_s: float) -> bool:
    children = names_at(session, path, patience_s)
    item = next(
        (name for name in children if kind_of([name]) and not is_side_data_of_shard(name)), None
    )
    if item is None:
        return False
    stat = retry_until_connected(session, lambda: session.exists(join(path, item)), patience_s)
    return stat is not None and stat.ephemeral_owner == 0  # ephemeral ones of such names are locks
