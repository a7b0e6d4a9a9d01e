"""Curator's ``DistributedIdQueue``: first in, first out, and items can be removed by their id."""

from __future__ import annotations

from collections.abc import Iterable, Sized
from typing import ClassVar, TypeVar

from leaderq.errors import BadVersion, NodeExists, NoNode, QueueClosed
from leaderq.queues.keeping.perseverance import answered
from leaderq.queues.recipe import Recipe
from leaderq.queues.wire.kinds import Kind
from leaderq.queues.wire.names import fixed_id, id_of, is_item, prefix_for
from leaderq.zookeeper import Create, Delete, Operation

T = TypeVar("T")
_CHUNK = 256


class DistributedIdQueue(Recipe[T]):
    """A queue in ZooKeeper whose items carry an id of the user's, by which they can be removed. Ids need not be unique.

    *Guarantees:* as :class:`~leaderq.queues.DistributedQueue`. :meth:`remove` counts what it removed, itself, exactly, whatever
    happens to the connection; with ``lock_path`` no item that somebody works on is removed. A failed item that is requeued keeps its id.
    *Not guaranteed:* that ids differing only in ``/``, ``|`` and ``_`` differ: the former two are stored as ``_``, as Curator does.

    Keywords: see :class:`~leaderq.queues.recipe.Recipe`. The path must not hold ``|``, which separates ids.
    """

    KIND: ClassVar[Kind] = Kind.ID

    def put(self, item: T, id: str, *, timeout_s: float | None = None) -> bool:
        """Put ``item`` at the tail under ``id``. Otherwise as :meth:`DistributedQueue.put() <leaderq.queues.DistributedQueue.put>`.

        :raises ConfigurationError: ``id`` is empty, or holds characters that ZooKeeper refuses.
        """
        return self._putter.put(item, prefix_for(Kind.ID, id=id), timeout_s=timeout_s)

    def put_multi(self, items: Iterable[T], id: str, *, timeout_s: float | None = None) -> bool:
        """Put all ``items`` as one znode under ``id`` (Curator cannot do that, but reads it)."""
        return self._putter.put_multi(items, prefix_for(Kind.ID, id=id), timeout_s=timeout_s)

    def put_many(self, items: Iterable[tuple[T, str]], *, timeout_s: float | None = None) -> int:
        """Put each of these ``(item, id)`` as a znode of its own; see
        :meth:`DistributedQueue.put_many() <leaderq.queues.DistributedQueue.put_many>`."""
        named = ((item, prefix_for(Kind.ID, id=id)) for item, id in items)
        chunk = _CHUNK if isinstance(items, Sized) else 1
        return self._putter.put_pairs(named, timeout_s=timeout_s, chunk=chunk)

    def remove(self, id: str) -> int:
        """Remove all items put under ``id`` that nobody works on; gives their number.

        Lists the whole queue. Waits for the connection if it is away.

        :raises QueueClosed: not started, or closed before all were removed.
        """
        if not self._is_started or self._is_closed:
            raise QueueClosed(f"queue {self.path} is {'closed' if self._is_closed else 'not started; call start()'}")
        wanted = fixed_id(id)
        try:
            names = answered(self._session, lambda: self._session.children(self.path))
        except NoNode:
            return 0
        matches = sorted(name for name in names if is_item(Kind.ID, name) and id_of(name) == wanted)
        outcomes = self._putter.tally.submit_all([self._removal(name) for name in matches])
        removed = 0
        for outcome in outcomes:
            try:
                outcome.result()
            except (NodeExists, NoNode, BadVersion):  # somebody works on it, or was first
                continue
            removed += 1
        return removed

    def _removal(self, name: str) -> list[Operation]:
        item = Delete(self._places.item(name))
        if self.lock_path is None:
            return [item]
        lock = self._places.lock(
            name
        )  # never seen by anybody: made and deleted in one transaction, which fails if it is there
        return [Create(lock, b"", ephemeral=True), item, Delete(lock)]
