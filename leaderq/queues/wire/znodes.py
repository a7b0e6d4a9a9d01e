"""Where a queue keeps what is not an item: beside its path, never below it (a Java consumer would
complain of every foreign child); pure.

Shards of a queue, as Curator's ``QueueSharder`` names them, are ``<root>/queue-<uuid4>``, a queue
each. A Java sharder takes *every* child of the root for a shard and puts items into it: so the side
data of a shard's queue stands beside the root, below ``<root>-side/`` (:func:`beside`).
"""

from __future__ import annotations

import json
import re

from leaderq.base import chance
from leaderq.errors import LeaderqError, NoPermission
from leaderq.queues.wire.names import ITEM_PREFIX
from leaderq.zookeeper.paths import join, name_of, own_path, parent_of, validated_path

_SHARD = re.compile(rf"{ITEM_PREFIX}[0-9a-f]{{8}}(?:-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}").fullmatch
_SIDE = "-side"


def new_shard_name() -> str:
    return f"{ITEM_PREFIX}{chance.uuid4()}"


def is_shard(name: str) -> bool:
    """Whether a child of the root is a shard; everything else is foreign and left alone."""
    return _SHARD(name) is not None


def beside(path: str) -> str:
    """The path that the names of a queue's side data are built on: ``/jobs`` itself, but for a
    shard ``/jobs/queue-<uuid>`` it is ``/jobs-side/queue-<uuid>``.
    """
    root = parent_of(path)
    if root == "/" or root.endswith(_SIDE) or not is_shard(name_of(path)):
        return path
    return join(root + _SIDE, name_of(path))


class QueuePaths:
    """The znodes of one queue. ``lock_path``: below it ``<item name>``, ephemeral: being worked on
    (Curator's own format). ``meta_path``: where side data is kept instead of beside the queue.

    :raises ConfigurationError: ZooKeeper cannot use one of these paths.
    """

    def __init__(
        self, path: str, lock_path: str | None = None, meta_path: str | None = None
    ) -> None:
        validated_path(path)
        for beside_it in (lock_path, meta_path):
            if beside_it is not None:
                own_path(beside_it)
        self.path = path
        self._items = join(path, "")
        self.lock_path = lock_path
        self.meta_path = meta_path
        self.meta = meta_path or f"{beside(path)}-meta"
        """The root of all side data, except dead letters without a ``meta_path``."""
        self.dead = f"{beside(path)}-dead" if meta_path is None else f"{meta_path}/dead"
        """Dead letters, named and framed as items of the same kind."""
        self.members = f"{self.meta}/members"
        """Ephemeral, one per consumer: guard, fence, and how consumers know of each other."""
        self.tallies = f"{self.meta}/tallies"
        """Persistent guards, one per producer or consumer without a lock path, until it closes."""
        self.claims = f"{self.meta}/claims"
        """Persistent, one per consumer with a lock path: the names it holds, in case it dies."""
        self.bound = f"{self.meta}/bound"
        """Persistent: serialises the producers of a bounded queue."""
        self.control = f"{self.meta}/control"
        """Persistent: an operator's wish that consumers pause."""
        self.drained = f"{self.meta}/drained"
        """Persistent: items set aside by ``leaderq queue drain``, until they are written out."""
        self.drains = f"{self.meta}/drains"
        """Ephemeral: the running drain."""

    def item(self, name: str) -> str:
        return self._items + name

    def lock(self, name: str) -> str:
        """The lock of item ``name``, which marks it as being worked on."""
        if self.lock_path is None:
            raise ValueError("this queue has no lock path")
        return f"{self.lock_path}/{name}"


def wants_pause(data: bytes) -> bool:
    """Whether the control znode's data, ``{"paused": true}``, asks consumers to pause; unreadable
    data asks for nothing.
    """
    try:
        said = json.loads(data)
    except (ValueError, RecursionError):
        return False
    return isinstance(said, dict) and said.get("paused") is True


def explained(error: LeaderqError, paths: QueuePaths) -> LeaderqError:
    """The error or, if the credentials do not allow znodes beside the queue, one that says why
    these are needed.
    """
    if not isinstance(error, NoPermission) or paths.meta_path is not None:
        return error
    if not (error.path or "").startswith(paths.meta):
        return error
    why = "side data lies beside the queue, because a Java consumer would complain of it below"
    remedy = "give all processes of the queue a meta_path= where they may create znodes"
    return NoPermission(f"{error}; {why}; {remedy}", path=error.path)
