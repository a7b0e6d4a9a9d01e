"""Simple queues on a real server. Lost requests and answers: ``tests/simulation``."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from leaderq.errors import ConfigurationError, QueueClosed, QueueEmpty, TooLarge
from leaderq.queues.simple_queue import SimpleDistributedQueue
from leaderq.testing import eventually


@pytest.fixture
def queue(session) -> Iterator[SimpleDistributedQueue]:
    with SimpleDistributedQueue(session, "/queue") as one:
        yield one


def test_an_empty_queue_has_no_element_whatever_foreign_children_it_has(queue, session):
    session.ensure_path("/queue/foreign")
    session.create("/queue/queue-", sequential=True)
    queue.offer_many([b"a", b"b"])
    assert [queue.remove(), queue.poll(), queue.poll(), queue.peek()] == [b"a", b"b", None, None]
    for ask in (queue.remove, queue.element):
        with pytest.raises(QueueEmpty, match="/queue"):
            ask()
    assert len(session.children("/queue")) == 2


def test_nothing_of_ours_is_left_below_the_path_or_beside_it(session):
    with SimpleDistributedQueue(session, "/queue") as queue:
        queue.offer(b"a")
        assert queue.poll() == b"a"
        assert len(session.children("/queue-meta/tallies")) == 2
    assert session.children("/queue-meta/tallies") == []
    assert session.children("/queue") == []


def test_closing_wakes_who_waits(session):
    queue = SimpleDistributedQueue(session, "/queue")
    with ThreadPoolExecutor(1) as pool:
        taken = pool.submit(queue.take)
        eventually(taken.running)
        assert queue.close()
        with pytest.raises(QueueClosed):
            taken.result(60)
    for ask in (queue.poll, queue.peek, lambda: queue.offer(b"")):
        with pytest.raises(QueueClosed):
            ask()
    assert queue.close()


def test_an_item_that_is_too_large_is_refused_and_nothing_is_sent(queue):
    with pytest.raises(TooLarge) as caught:
        queue.offer_many([b"small", b"x" * 1_100_000])
    assert caught.value.size > caught.value.limit
    assert queue.poll() is None
    queue.offer(b"x" * 1_000_000)
    assert queue.poll() == b"x" * 1_000_000
    with pytest.raises(ConfigurationError):
        queue.poll_many(0)
