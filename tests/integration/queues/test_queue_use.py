"""Using a queue on the real server: a blocking consumer, the builder, pausing, taking back; and
what happens after as many writes as a version can count.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from consumption import LOCKS, PATH, Held, Seen, numbered, stored

from leaderq.errors import QueueClosed
from leaderq.queues import TEXT, BlockingQueueConsumer, DistributedQueue, ErrorMode, QueueBuilder
from leaderq.testing import eventually
from leaderq.zookeeper.writing import groups


def test_a_blocking_consumer_acknowledges_when_the_work_is_done_and_not_before(session):
    blocking: BlockingQueueConsumer[bytes] = BlockingQueueConsumer()
    with DistributedQueue(session, PATH, consumer=blocking, lock_path=LOCKS) as queue:
        queue.put_many(numbered(10))
        for item in numbered(10):
            assert blocking.take(60) == item
            assert item in stored(session)
            blocking.task_done()
        eventually(lambda: queue.depth() == 0)


def test_the_builder_builds_all_four_with_the_same_settings(session):
    builder = QueueBuilder.builder(session, seen := Seen(), TEXT, PATH).lock_path(LOCKS)
    builder.max_items(100).put_in_background().final_flush_s(20.0)
    builder.keywords(concurrency=2, error_mode=ErrorMode.KEEP, name="built")
    with ThreadPoolExecutor(2) as pool:
        builder.executor(pool)
        built: list[tuple[Any, tuple[Any, ...]]] = [
            (builder.build_queue(), ("plain",)),
            (builder.build_id_queue(), ("id", "x")),
            (builder.build_priority_queue(3), ("priority", 1)),
            (builder.build_delay_queue(), ("delay",)),
        ]
        for number, (queue, put) in enumerate(built, 1):
            with queue:
                queue.put(*put)
                assert seen.wait_for(number)[-1] == put[0]


def test_a_paused_queue_begins_nothing_until_it_is_resumed(session):
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
        session.ensure_path(f"{PATH}-meta/control")
        session.set(f"{PATH}-meta/control", b'{"paused": true}')  # as an operator does
        eventually(lambda: queue._consumption.engine.pause_switch._by_operator)
        queue.resume()
        assert queue.is_paused
        assert seen.values == []
        session.set(f"{PATH}-meta/control", b"{}")
        assert seen.wait_for(1) == [b"b"]


@pytest.mark.parametrize("lock_path", [None, LOCKS])
def test_an_item_is_taken_back_by_its_name_unless_somebody_has_begun_it(opened, lock_path):
    held = Held()
    with DistributedQueue(opened(), "/q", lock_path=lock_path) as producer:
        begun = producer.put(b"begun")
        options = {"lock_path": lock_path, "claim_ahead": 0, "final_flush_s": 30.0}
        with DistributedQueue(opened(), "/q", consumer=held, **options):
            assert held.entered.wait(60)
            waiting, other = producer.put(b"waiting"), producer.put_multi([b"two", b"more"])
            assert [name[:6] for name in (begun, waiting, other) if isinstance(name, str)] == [
                "queue-"
            ] * 3
            assert producer.cancel(str(waiting))
            assert not producer.cancel(str(waiting))
            assert not producer.cancel(str(begun))
            held.released.set()
            eventually(lambda: held.seen.values == [b"begun", b"two", b"more"])
    with pytest.raises(QueueClosed):
        producer.cancel(str(other))


@pytest.mark.parametrize("lock_path", [None, "/locks"])
def test_a_guard_is_made_again_before_its_version_runs_over(session, monkeypatch, lock_path):
    monkeypatch.setattr(groups, "RENEW_AT", 20)
    seen: list[bytes] = []
    with DistributedQueue(session, "/q", consumer=seen.append, lock_path=lock_path) as queue:
        members = session.children("/q-meta/members")
        for item in numbered(150):
            queue.put(item)
        eventually(lambda: len(seen) == 150 and queue.depth() == 0)
        assert seen == numbered(150)
        guards = [f"/q-meta/tallies/{name}" for name in session.children("/q-meta/tallies")]
        guards += [f"/q-meta/members/{name}" for name in members if lock_path is not None]
        versions = [session.get(path)[1].version for path in guards]
        assert len(versions) == 2
        assert max(versions) <= 20
        assert session.children("/q-meta/members") == members


def test_a_queue_can_be_iterated_until_it_is_closed(session):
    seen: list[bytes] = []

    def work(queue: DistributedQueue[bytes]) -> None:
        for item in queue:
            with item:
                seen.append(item.value)

    with ThreadPoolExecutor(1) as pool, DistributedQueue(session, "/q") as queue:
        working = pool.submit(work, queue)
        queue.put_many([b"one", b"two"])
        queue.put_multi([b"three", b"four"])
        eventually(lambda: len(seen) == 4)
        queue.close()
        assert working.result(60) is None
    assert seen == [b"one", b"two", b"three", b"four"]
    with pytest.raises(QueueClosed):
        next(iter(DistributedQueue(session, "/never-started")))
