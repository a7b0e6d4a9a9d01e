"""Which shards a sharder puts into, how many there are, and how they are retired and removed."""

from __future__ import annotations

from typing import Any

import pytest

from leaderq.errors import ConfigurationError, QueueClosed
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


def _is_closed(queue: Any) -> bool:
    try:
        queue.peek()
    except QueueClosed:
        return True
    return False
