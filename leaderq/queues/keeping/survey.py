"""What the names of a queue's children say (pure)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from leaderq.errors import ConfigurationError
from leaderq.queues.wire.kinds import Kind
from leaderq.queues.wire.names import is_item, kind_of, sort_key
from leaderq.queues.wire.numbers import next_number
from leaderq.queues.wire.shards import is_shard
from leaderq.zookeeper import Stat

META, DEAD = "-meta", "-dead"
"""How the paths end that belong to the queue whose path comes before; see ``places``."""


@dataclass(frozen=True, slots=True)
class Survey:
    """``kind``: as told, else as the names say, ``None`` if there is no item; ``items`` in the order in which they go; ``foreign``:
    what nobody consumes; ``shards``: queues of a ``QueueSharder``, which look like items and must never be taken for some."""

    kind: Kind | None
    items: list[str]
    foreign: list[str]
    shards: list[str]


def survey(names: Collection[str], kind: Kind | None = None) -> Survey:
    """Tell items from what is none.

    :raises ConfigurationError: no kind was told, and items of a simple queue and of another lie side by side.
    """
    shards = sorted(name for name in names if is_shard(name))
    rest = [name for name in names if not (is_shard(name) or is_side_data_of_shard(name))]
    found = kind or kind_of(rest)
    if found is None:
        return Survey(None, [], sorted(rest), shards)
    items = sorted((name for name in rest if is_item(found, name)), key=sort_key(found))
    foreign = sorted(name for name in rest if not is_item(found, name)) if len(items) < len(rest) else []
    return Survey(found, items, foreign, shards)


def is_side_data_of_shard(name: str) -> bool:
    """Whether it belongs to a shard: it begins as an item does, and is none."""
    return name.endswith((META, DEAD)) and is_shard(name.removesuffix(META).removesuffix(DEAD))


def agreed(told: Kind | None, found: Kind | None, path: str) -> Kind | None:
    """The kind that new items may be put as.

    What Java requeues in a priority or delay queue looks plain, and an id may look like a due time; nothing else may be mixed, for
    consumers would not find an order in it.

    :raises ConfigurationError: the items there are of another kind than the one told.
    """
    if told is None or found is None or told is found:
        return told or found
    looks_plain = found is Kind.PLAIN and told in (Kind.PRIORITY, Kind.DELAY)
    if looks_plain or (found is Kind.DELAY and told is Kind.ID):
        return told
    raise ConfigurationError(f"the items below {path} are those of a {found.value} queue, and {told.value} was given")


def sequence_after(stat: Stat) -> int:
    """The number that the server will give to the next child: how many were ever created."""
    return next_number(stat.cversion, stat.num_children)
