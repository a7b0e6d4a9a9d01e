"""Curator's ``DistributedQueue``: first in, first out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, TypeVar

from leaderq.queues.recipe import Recipe
from leaderq.queues.wire.kinds import Kind
from leaderq.queues.wire.names import prefix_for

T = TypeVar("T")
_PREFIX = prefix_for(Kind.PLAIN)


class DistributedQueue(Recipe[T]):
    """A queue in ZooKeeper that Java's Curator may share.

    *Guarantees:* a put that gave ``True`` (not in the background) has stored the item, once, whatever happened to the connection. One
    consumer with ``concurrency=1`` begins items in the order they were stored in; a failed one goes behind those that wait
    (``ErrorMode.REQUEUE``) or holds up those behind it (``KEEP``). With ``lock_path`` an item is never lost: it is removed only when it
    was worked on, and given to another consumer as soon as the session of its own is over; nothing of that one's is written then.
    *Not guaranteed:* an order among several consumers. With ``lock_path``, exactly-once work: a consumer that dies between its work
    and the acknowledgement has it repeated (let it write its results with ``item.ack(ops)``). Without ``lock_path``, anything about
    an item whose consumer dies: it was removed when it was handed out.

    Keywords: see :class:`~leaderq.queues.recipe.Recipe`.
    """

    KIND: ClassVar[Kind] = Kind.PLAIN

    def put(self, item: T, *, timeout_s: float | None = None) -> bool:
        """Put ``item`` at the tail, and wait until it is stored (``put_in_background``: until it is accepted).

        ``False``: it could not even be sent within ``timeout_s`` seconds (no room, no connection), and will not be.

        :raises TooLarge: it does not fit into a request; with its size and the limit.
        :raises ConnectionLost: it was sent within ``timeout_s``, and not answered within another second; it may have been stored.
        :raises QueueClosed: not started, or closed before it was sent. Whatever the serializer raises.
        """
        return self._putter.put(item, _PREFIX, timeout_s=timeout_s)

    def put_multi(self, items: Iterable[T], *, timeout_s: float | None = None) -> bool:
        """Put all ``items`` as one znode: cheap, and one unit of locking, acknowledging and retrying. Otherwise as :meth:`put`."""
        return self._putter.put_multi(items, _PREFIX, timeout_s=timeout_s)

    def put_many(self, items: Iterable[T], *, timeout_s: float | None = None) -> int:
        """Put each of ``items`` as a znode of its own, many in one request, in order; gives how many were stored (accepted, in the
        background): all, unless ``timeout_s`` seconds passed. Any iterable will do, and memory stays bounded.

        :raises PutsFailed: some were not stored, or not certainly; it says which. The others were.
        """
        return self._putter.put_many(items, _PREFIX, timeout_s=timeout_s)
