"""All about a queue on one line, and which queues there are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from leaderq.errors import ConfigurationError, LeaderqError, NoNode
from leaderq.queues.keeping.control import wants_pause
from leaderq.queues.keeping.perseverance import PATIENCE_S, answered
from leaderq.queues.keeping.survey import DEAD, META, Survey, is_side_data_of_shard, sequence_after, survey
from leaderq.queues.places import Places
from leaderq.queues.wire.kinds import Kind
from leaderq.queues.wire.names import kind_of, sequence_of
from leaderq.zookeeper import GetData, Session, Stat
from leaderq.zookeeper.paths import join

LIST_S = 60.0
"""A million names take some seconds to come."""


@dataclass(frozen=True, slots=True)
class Overview:
    """A queue at one moment.

    ``depth``: items, those being worked on included; ``held``: how many these are, ``None`` without a lock path; ``consumers``: those
    of leaderq; ``oldest_ms``: when the oldest item's znode was made; ``next_sequence``: the number the next item gets, 0 too if the
    path is not there (``exists``), as a container that the servers took away when it was empty; ``aside``: what a drain that goes on, or
    died, has in hand.
    """

    path: str
    exists: bool
    kind: Kind | None = None
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


def drained_of(places: Places) -> str:
    """Where a drain sets items aside."""
    return f"{places.meta}/drained"


def overview(
    session: Session, places: Places, kind: Kind | None = None, *, patience_s: float = PATIENCE_S
) -> Overview | None:
    """Look at a queue; ``None`` if there is nothing of it, neither items nor side data.

    :raises ConfigurationError: no kind was told, and the names are those of several.
    """
    queue, dead, control, members, drained, *locks = _znodes(session, places, patience_s)
    if queue is dead is control is members is drained is None:
        return None
    seen = survey([], kind) if queue is None else look(session, places.path, kind, patience_s)
    return Overview(
        path=places.path,
        exists=queue is not None,
        kind=seen.kind,
        depth=len(seen.items),
        held=_children(locks[0]) if locks else None,
        dead=_children(dead),
        next_sequence=sequence_after(queue[1]) if queue else 0,
        consumers=_children(members),
        is_paused=control is not None and wants_pause(control[0]),
        oldest_ms=_oldest_ms(session, places, seen, patience_s),
        aside=_children(drained),
        foreign=tuple(seen.foreign),
        shards=tuple(seen.shards),
    )


def is_there(session: Session, places: Places, *, patience_s: float = PATIENCE_S) -> bool:
    """Whether there is anything of a queue, be it only its dead letters, an operator's wish or its members' place."""
    return any(found is not None for found in _znodes(session, Places(places.path), patience_s))


def look(session: Session, path: str, kind: Kind | None, patience_s: float = PATIENCE_S) -> Survey:
    """List a queue's children and tell them apart; a path that is gone has none."""
    return survey(names_at(session, path, patience_s), kind)


def names_at(session: Session, path: str, patience_s: float = PATIENCE_S) -> list[str]:
    """The names of the children of a path, none if it is gone."""
    try:
        return answered(session, lambda: session.children(path, timeout_s=LIST_S), patience_s)
    except NoNode:
        return []


def refuse_sharder(seen: Survey, places: Places) -> None:
    """Raise if what was seen is no queue but the queues of a ``QueueSharder``.

    :raises ConfigurationError: that is so.
    """
    if seen.shards:
        raise ConfigurationError(
            f"{places.path} is the path of a sharder with {len(seen.shards)} queues below it; "
            f"name one of them, as {places.item(seen.shards[0])}"
        )


def queues_below(session: Session, path: str, *, patience_s: float = PATIENCE_S) -> Iterator[str]:
    """The paths of what look like queues among the children of ``path``: those with items, and those with side data of leaderq.

    An empty queue without side data cannot be told from any other znode, and is left out; so are the paths of locks.

    :raises NoNode: there is no ``path``.
    """
    names = set(answered(session, lambda: session.children(path, timeout_s=LIST_S), patience_s))
    known = {name.removesuffix(end) for name in names for end in (META, DEAD) if name.endswith(end)} - {""}
    for name in sorted(names | known):
        if name in known or (not _is_side_data(name) and _has_items(session, join(path, name), patience_s)):
            yield join(path, name)


def _znodes(session: Session, places: Places, patience_s: float) -> list[tuple[bytes, Stat] | None]:
    """The queue's path, its dead letters, control, members, what a drain set aside, and the lock path if one is known; ``None`` for
    what is not there."""
    paths = [places.path, places.dead, places.control, places.members, drained_of(places), places.lock_path]
    reads = [GetData(path) for path in paths if path is not None]
    found: list[tuple[bytes, Stat] | None] = []
    for answer in answered(session, lambda: session.multi_read(reads), patience_s):
        if isinstance(answer, LeaderqError) and not isinstance(answer, NoNode):
            raise answer
        found.append(answer if isinstance(answer, tuple) else None)
    return found


def _is_side_data(name: str) -> bool:
    return any(name.endswith(end) and name != end for end in (META, DEAD))


def _has_items(session: Session, path: str, patience_s: float) -> bool:
    try:
        children = answered(session, lambda: session.children(path, timeout_s=LIST_S), patience_s)
        item = next((name for name in children if kind_of([name]) and not is_side_data_of_shard(name)), None)
        stat = answered(session, lambda: session.exists(join(path, item)), patience_s) if item is not None else None
    except NoNode:
        return False
    return stat is not None and stat.ephemeral_owner == 0  # ephemeral ones of such names are locks


def _children(found: tuple[bytes, Stat] | None) -> int:
    return found[1].num_children if found else 0


def _oldest_ms(session: Session, places: Places, seen: Survey, patience_s: float) -> int | None:
    if not seen.items:
        return None
    oldest = places.item(min(seen.items, key=sequence_of))
    stat = answered(session, lambda: session.exists(oldest), patience_s)
    return stat.ctime_ms if stat else None
