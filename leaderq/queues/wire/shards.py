"""Shards of a queue, as Curator's ``QueueSharder`` names them: ``<root>/queue-<uuid4>``, a queue each (pure).

A Java sharder takes *every* child of the root for a shard and puts items into it, so nothing else may be there: the side data of a
shard's queue must not stand beside it, as that of other queues does, but beside the root (:func:`beside`).
"""

from __future__ import annotations

import re
import uuid

from leaderq.queues.wire.names import ITEM_PREFIX
from leaderq.zookeeper.paths import join, name_of, parent_of

_SHARD = re.compile(rf"{ITEM_PREFIX}[0-9a-f]{{8}}(?:-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}").fullmatch
_SIDE = "-side"


def new_shard_name() -> str:
    """A name that no other shard has."""
    return f"{ITEM_PREFIX}{uuid.uuid4()}"


def is_shard(name: str) -> bool:
    """Whether a child of the root is a shard; everything else is foreign and left alone."""
    return _SHARD(name) is not None


def beside(path: str) -> str:
    """What a queue's side data is named after: its path or, for a shard, a path beside its root.

    ``/jobs`` gives ``/jobs``, and ``/jobs/queue-<uuid>`` gives ``/jobs-side/queue-<uuid>``.
    """
    root = parent_of(path)
    if root == "/" or root.endswith(_SIDE) or not is_shard(name_of(path)):
        return path
    return join(root + _SIDE, name_of(path))
