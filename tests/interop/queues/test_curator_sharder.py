"""QueueSharder: Java's and ours on one queue path, in one latch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from curator_ours import Seen
from java_peer import JavaSharder

from leaderq import Session
from leaderq.queues import DistributedQueue, QueueSharder, QueueSharderPolicies
from leaderq.testing import eventually

Ours = QueueSharder[Any]


@pytest.fixture
def ours(opened, znode_root) -> Callable[..., Ours]:
    """A sharder of ours of plain queues; ``consumer`` consumes all of them."""

    def make(consumer: Callable[[bytes], object] | None = None, **policies: Any) -> Ours:
        def allocate(session: Session, path: str) -> DistributedQueue[bytes]:
            lock_path = f"{znode_root}/locks/{path.rpartition('/')[2]}"
            return DistributedQueue(session, path, consumer=consumer, lock_path=lock_path)

        chosen = QueueSharderPolicies(threshold_check_s=0.2, **policies)
        return QueueSharder(
            # With a session that is lost its items would come again, as they should.
            opened(timeout_s=60),
            allocate,
            f"{znode_root}/q",
            f"{znode_root}/latch",
            chosen,
            id="ours",
        )

    return make


@pytest.fixture
def theirs(java, znode_root) -> Callable[..., JavaSharder]:
    """A sharder of Java's."""

    def make(**options: object) -> JavaSharder:
        return java.sharder(f"{znode_root}/q", f"{znode_root}/latch", check=200, **options)

    return make


def test_each_side_takes_up_the_shards_of_the_other_and_nothing_else(
    ours, theirs, session, znode_root
):
    def in_zookeeper() -> set[str]:
        return {f"{znode_root}/q/{name}" for name in session.children(f"{znode_root}/q")}

    def put_until(count: int, put: Callable[[bytes], object], shards: Callable[[], int]) -> bool:
        put(b"x")
        return shards() >= count

    first = ours(new_queue_threshold=5, max_queues=3)
    with first:
        eventually(
            lambda: put_until(
                3, lambda item: first.get_queue().put(item), lambda: first.shard_count
            )
        )
        javas = theirs(threshold=5, max=5)
        assert javas.shards == set(first.queue_paths) == in_zookeeper()
    eventually(
        lambda: put_until(5, javas.put, lambda: len(javas.shards)),
        message="Java adds shards when it leads",
    )
    with ours(new_queue_threshold=5, max_queues=3) as second:
        eventually(lambda: set(second.queue_paths) == javas.shards == in_zookeeper())
        assert not second.is_leader
    javas.close()


def test_what_one_side_puts_into_any_shard_is_consumed_once_by_either(ours, theirs, znode_root):
    seen = Seen()
    with ours(seen, new_queue_threshold=50) as sharder:
        javas = theirs(consume=True, threshold=50, lock=f"{znode_root}/locks")
        for number in range(200):
            sharder.get_queue().put(b"p%03d" % number)
            javas.put(b"j%03d" % number)
        eventually(lambda: len(seen.values) + len(javas.consumed) >= 400)
        javas.close()
    expected = [b"%s%03d" % (side, number) for side in (b"j", b"p") for number in range(200)]
    assert sorted([*seen.values, *javas.consumed]) == expected
