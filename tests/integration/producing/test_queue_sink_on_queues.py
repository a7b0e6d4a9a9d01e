"""A buffered producer into real ZooKeeper queues."""

from __future__ import annotations

from pathlib import Path

from reading_topics import taken

from leaderq.producing import BufferedProducer, QueueSink, Retry
from leaderq.queues import DistributedQueue
from leaderq.testing import eventually
from leaderq.zookeeper import Session

SOON = Retry(first_s=0.05, most_s=0.2)


def test_a_queue_gets_what_is_sent_once_and_in_order(session: Session) -> None:
    with DistributedQueue[bytes](session, "/q") as queue:
        with BufferedProducer(QueueSink(queue)) as producer:
            for number in range(1000):
                producer.send(b"%d" % number)
            assert producer.flush(30)
        assert queue.depth() == 1000
        assert taken(queue, 1000) == [b"%d" % number for number in range(1000)]


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
