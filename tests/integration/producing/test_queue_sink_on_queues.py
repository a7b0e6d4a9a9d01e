"""A buffered producer into real ZooKeeper queues."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from reading_topics import taken

from leaderq.producing import BufferedProducer, QueueSink, Retry
from leaderq.queues import (
    DistributedQueue,
)
from leaderq.testing import FaultProxy, eventually
from leaderq.zookeeper import Session, connect

SOON = Retry(first_s=0.05, most_s=0.2)


def test_a_queue_gets_what_is_sent_once_and_in_order(session: Session) -> None:
    with DistributedQueue[bytes](session, "/q") as queue:
        with BufferedProducer(QueueSink(queue)) as producer:
            for number in range(1000):
                producer.send(b"%d" % number)
            assert producer.flush(30)
        assert queue.depth() == 1000
        assert taken(queue, 1000) == [b"%d" % number for number in range(1000)]


def test_servers_that_go_away_and_come_back_have_all_once_and_in_order(
    zookeeper_server: Any,
    znode_root: str,
    session: Session,
    fault_proxy: Callable[[str], FaultProxy],
    tmp_path: Path,
) -> None:
    proxy = fault_proxy(zookeeper_server.address)
    with (
        connect(proxy.address + znode_root) as through,
        DistributedQueue[bytes](through, "/q") as queue,
        BufferedProducer(
            QueueSink(queue), journal=tmp_path, max_items=200, sink_timeout_s=0.2, retry=SOON
        ) as producer,
    ):
        for number in range(1000):
            producer.send(b"%d" % number)
        proxy.refuse()
        for number in range(1000, 3000):
            producer.send(b"%d" % number)
        eventually(lambda: producer.snapshot().sink_error, timeout_s=30)
        assert producer.snapshot().memory_items <= 200
        proxy.heal()
        assert producer.flush(60), producer.snapshot()
        assert producer.snapshot().balance.confirmed == 3000
    with DistributedQueue[bytes](session, "/q") as queue:
        assert queue.depth() == 3000
        assert taken(queue, 3000) == [b"%d" % number for number in range(3000)]


def test_a_queue_that_is_closed_costs_nothing_that_a_journal_holds(
    session: Session, tmp_path: Path
) -> None:
    queue = DistributedQueue[bytes](session, "/q")
    queue.start()
    producer = BufferedProducer(QueueSink(queue), journal=tmp_path, retry=SOON)
    producer.send(b"a")
    assert producer.flush(30)
    queue.close()
    producer.send(b"b")
    eventually(
        lambda: "the queue takes nothing" in str(producer.snapshot().sink_error), timeout_s=30
    )
    assert producer.close(0.1).journaled == 1
    with (
        DistributedQueue[bytes](session, "/q") as again,
        BufferedProducer(QueueSink(again), journal=tmp_path) as second,
    ):
        assert second.flush(30)
        assert taken(again, 2) == [b"a", b"b"]
