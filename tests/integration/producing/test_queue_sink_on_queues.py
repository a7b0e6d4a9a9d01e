"""A buffered producer into real ZooKeeper queues."""

from __future__ import annotations

from reading_topics import taken

from leaderq.producing import BufferedProducer, QueueSink
from leaderq.queues import DistributedQueue


def test_a_queue_gets_what_is_sent_once_and_in_order(session):
    with DistributedQueue[bytes](session, "/q") as queue:
        with BufferedProducer(QueueSink(queue)) as producer:
            for number in range(1000):
                producer.send(b"%d" % number)
            assert producer.flush(30)
        assert queue.depth() == 1000
        assert taken(queue, 1000) == [b"%d" % number for number in range(1000)]
