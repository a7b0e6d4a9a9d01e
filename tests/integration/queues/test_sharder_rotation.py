"""Which shards a sharder puts into, how many there are, and how they are retired and removed."""

from __future__ import annotations

from typing import Any

import pytest

from leaderq.errors import ConfigurationError, QueueClosed
from leaderq.queues.sharding import QueueSharder
from leaderq.testing import eventually


def test_a_retired_shard_is_put_into_no_more_and_goes_when_it_is_empty(sharder_of, opened, session):
    one = sharder_of(retire_grace_s=0.05)
    other = sharder_of(opened(), retire_grace_s=0.05)
    one.start()
    other.start()
    (old,) = one.queue_paths
    queue = other.get_queue()
    queue.offer_many([b"a", b"b"])
    other.retire(old)
    eventually(lambda: one.shard_count == other.shard_count == 2)
    eventually(lambda: one._plan.retired and other._plan.retired)
    assert all(path.get_queue().path != old for path in (one, other) for _ in range(20))
    assert queue.poll_many(5) == [b"a", b"b"]
    eventually(lambda: one.shard_count == other.shard_count == 1, timeout_s=60)
    assert session.exists(old) is None
    eventually(lambda: session.children("/jobs-meta/retired") == [])
    eventually(lambda: _is_closed(queue))  # it is forgotten first, and closed then
    with pytest.raises(QueueClosed):
        queue.offer(b"late")
    with pytest.raises(ConfigurationError, match="not a shard"):
        one.retire(old)


def test_a_shard_that_has_numbered_too_many_is_rotated_and_nothing_is_lost(sharder_of, session):
    one = sharder_of(rotate_at=30, retire_grace_s=0.05, threshold_check_s=0.02)
    one.start()
    begun = one.queue_paths
    got: list[bytes] = []
    for number in range(200):
        eventually(lambda number=number: _offered(one, b"%d" % number))
        for queue in list(one._queues.values()):
            got += _polled(queue)

    def are_all_got() -> bool:
        for queue in list(one._queues.values()):
            got.extend(_polled(queue))
        return len(got) >= 200

    eventually(are_all_got)
    eventually(lambda: one.shard_count == 1 and not set(begun) & set(one.queue_paths), timeout_s=60)
    assert sorted(got) == sorted(b"%d" % number for number in range(200))
    eventually(lambda: session.exists(one.queue_paths[0]))


def _offered(one: QueueSharder[Any], item: bytes) -> bool:
    """``QueueClosed``: the shard was removed between asking for it and using it; ask for
    another.
    """
    try:
        one.get_queue().offer(item)
    except QueueClosed:
        return False
    return True


def _is_closed(queue: Any) -> bool:
    try:
        queue.peek()
    except QueueClosed:
        return True
    return False


def _polled(queue: Any) -> list[bytes]:
    try:
        return list(queue.poll_many(500))
    except QueueClosed:
        return []
