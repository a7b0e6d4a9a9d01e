"""Using a queue on the real server: blocking consumers, the builder, taking, pausing, looking,
closing.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from consumption import LOCKS, PATH, Seen
from producing import numbered, stored

from leaderq.queues import (
    TEXT,
    BlockingQueueConsumer,
    DistributedQueue,
    ErrorMode,
    QueueBuilder,
    Retry,
)
from leaderq.testing import eventually
from leaderq.zookeeper import Session

QUICK = Retry(attempts=10, first_s=0.01)


def test_a_blocking_consumer_acknowledges_when_the_work_is_done_and_not_before(
    session: Session,
) -> None:
    blocking: BlockingQueueConsumer[bytes] = BlockingQueueConsumer()
    with DistributedQueue(session, PATH, consumer=blocking, lock_path=LOCKS) as queue:
        for item in numbered(10):
            queue.put(item)
        for item in numbered(10):
            assert blocking.take(60) == item
            assert any(data == item for data in stored(session))
            blocking.task_done()
        eventually(lambda: queue.depth() == 0)
        assert blocking.take(0.05) is None


def test_the_builder_builds_all_four_with_the_same_settings(session: Session) -> None:
    seen = Seen()
    builder = (
        QueueBuilder.builder(session, seen, TEXT, PATH)
        .lock_path(LOCKS)
        .max_items(100)
        .put_in_background()
        .final_flush_s(20.0)
        .keywords(concurrency=2, error_mode=ErrorMode.KEEP, retry=QUICK, name="built")
    )
    with ThreadPoolExecutor(2) as pool:
        builder.executor(pool)
        with builder.build_queue() as queue:
            queue.put("plain")
            seen.wait_for(1)
        with builder.build_id_queue() as ids:
            ids.put("id", "x")
            seen.wait_for(2)
        with builder.build_priority_queue(3) as priorities:
            priorities.put("priority", 1)
            seen.wait_for(3)
        with builder.build_delay_queue() as delays:
            delays.put("delay")
            assert seen.wait_for(4) == ["plain", "id", "priority", "delay"]
    batches: list[Any] = []
    with (
        QueueBuilder.builder(session, None, TEXT, PATH)
        .keywords(consume_batch=batches.append, batch_items=10)
        .build_queue() as queue
    ):
        queue.put_many(["a", "b", "c"])
        eventually(lambda: sum(map(len, batches)) == 3)


def test_a_paused_queue_begins_nothing_until_it_is_resumed(session: Session) -> None:
    seen = Seen()
    with DistributedQueue(session, PATH) as queue:
        queue.pause()
        assert queue.is_paused
        queue.put(b"a")
        assert queue.take(0.2) is None
        queue.resume()
        assert not queue.is_paused
        with queue.take(60) as item:
            assert item.value == b"a"
    queue = DistributedQueue(session, PATH, consumer=seen)
    queue.pause()
    with queue:
        queue.put(b"b")
        assert queue.is_paused
        queue.resume()
        assert seen.wait_for(1) == [b"b"]
