"""Where a queue keeps what is not an item: beside its path, never below it (a Java consumer would
complain of every foreign child).

::

    <path>                          the items, and nothing else
    <path>-meta/members/<name>      ephemeral, one per consumer: its fence (see tallying), and how consumers know of each other
    <path>-meta/tallies/<name>      persistent, one per producer or consumer without a lock path; taken away when it closes
    <path>-meta/claims/<name>       persistent, one per consumer with a lock path: the names it holds, for when it dies
    <path>-meta/bound               persistent: serialises the producers of a bounded queue
    <path>-meta/control             persistent: an operator's wish that consumers pause
    <path>-meta/drained/<item>      persistent: set aside by ``leaderq queue drain``, until it is written out
    <path>-meta/drains/<name>       ephemeral: the drain that is going on
    <path>-dead/<item>              dead letters, named and framed as items of the same kind
    <lock path>/<item name>         ephemeral: being worked on (Curator's own format)

Of a shard, ``<root>/queue-<uuid>``, they lie beside the sharder's root: below ``<root>-side/`` (see
:func:`~leaderq.queues.wire.znodes.beside`).

Shards of a queue, as Curator's ``QueueSharder`` names them: ``<root>/queue-<uuid4>``, a queue each
(pure).

A Java sharder takes *every* child of the root for a shard and puts items into it, so nothing else
may be there: the side data of a shard's queue must not stand beside it, as that of other queues
does, but beside the root (:func:`beside`).
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from leaderq.errors import NoPermission
from leaderq.queues.wire.names import ITEM_PREFIX
from leaderq.zookeeper.paths import join, name_of, parent_of

_SHARD = re.compile(rf"{ITEM_PREFIX}[0-9a-f]{{8}}(?:-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}").fullmatch
_SIDE = "-side"


def new_shard_name() -> str:
    return f"{ITEM_PREFIX}{uuid.uuid4()}"


def is_shard(name: str) -> bool:
    """Whether a child of the root is a shard; everything else is foreign and left alone."""
    return _SHARD(name) is not None


def beside(path: str) -> str:
    """What a queue's side data is named after: its path or, for a shard, a path beside its root.

    ``/jobs`` returns ``/jobs``, and ``/jobs/queue-<uuid>`` returns ``/jobs-side/queue-<uuid>``.
    """
    root = parent_of(path)
    if root == "/" or root.endswith(_SIDE) or not is_shard(name_of(path)):
        return path
    return join(root + _SIDE, name_of(path))


@dataclass(frozen=True, slots=True)
class QueuePaths:
    """The znodes of one queue; pure."""

    path: str
    lock_path: str | None = None
    meta_path: str | None = None
    """Where side data is kept instead; the dead letters are below it then, at ``<meta_path>/dead``."""

    @property
    def meta(self) -> str:
        """What all side data is below."""
        return self.meta_path or f"{beside(self.path)}-meta"

    @property
    def members(self) -> str:
        """The parent of the consumers' members."""
        return f"{self.meta}/members"

    @property
    def tallies(self) -> str:
        """The parent of the persistent writers."""
        return f"{self.meta}/tallies"

    @property
    def claims(self) -> str:
        """The parent of the records of what each consumer holds."""
        return f"{self.meta}/claims"

    @property
    def bound(self) -> str:
        """What the producers of a bounded queue take turns by."""
        return f"{self.meta}/bound"

    @property
    def control(self) -> str:
        """The operator's wishes."""
        return f"{self.meta}/control"

    @property
    def drained(self) -> str:
        """Where a drain sets items aside."""
        return f"{self.meta}/drained"

    @property
    def dead(self) -> str:
        """The queue of dead letters."""
        return f"{beside(self.path)}-dead" if self.meta_path is None else f"{self.meta_path}/dead"

    def item(self, name: str) -> str:
        return join(self.path, name)

    def lock(self, name: str) -> str:
        """The znode that says that an item is being worked on; needs a lock path."""
        if self.lock_path is None:
            raise ValueError("this queue has no lock path")
        return join(self.lock_path, name)


@contextmanager
def explaining_refusals(paths: QueuePaths) -> Iterator[None]:
    """Say why znodes beside the queue are needed, if the credentials do not allow for them."""
    try:
        yield
    except NoPermission as exc:
        if exc.path is None or not exc.path.startswith(paths.meta) or paths.meta_path is not None:
            raise
        why = "the queue keeps its side data beside its path, because a Java consumer would complain of it below"
        remedy = "give meta_path= a path where these credentials may create znodes, the same to all its processes"
        raise NoPermission(f"{exc}; {why}; {remedy}", path=exc.path) from exc
