"""What a sharder needs of the queues that its shards are, and how it gets them."""

from __future__ import annotations

from typing import Protocol, TypeVar

from leaderq.zookeeper import Session


class ShardQueue(Protocol):
    """Any of the recipes, or a queue of the user's own."""

    def start(self) -> object:
        """Begin. Called once by the sharder."""

    def close(self) -> object:
        """Let go, in bounded time. Called once by the sharder."""


Q = TypeVar("Q", bound=ShardQueue)
Q_co = TypeVar("Q_co", bound=ShardQueue, covariant=True)


class QueueAllocator(Protocol[Q_co]):
    """Any callable that makes the queue of a shard, *not* started: ``lambda client, path: DistributedQueue(client, path, ...)``.

    Each must be given a lock path of its own, if any: items of two shards may have one name. ``f"{path}-locks"`` will not do, since
    nothing but shards may be below the sharder's path; ``path.replace("/jobs/", "/job-locks/")`` will.
    """

    def __call__(self, client: Session, path: str, /) -> Q_co:
        """The queue of the shard at ``path``."""
