"""Simple queues on a real server. Lost requests and answers: ``tests/simulation``."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from consumption import numbered

from leaderq.errors import ConfigurationError, QueueClosed, QueueEmpty, TooLarge
from leaderq.queues.simple_queue import SimpleDistributedQueue
from leaderq.testing import eventually


@pytest.fixture
def queue(session) -> Iterator[SimpleDistributedQueue]:
    with SimpleDistributedQueue(session, "/queue") as one:
        yield one


@pytest.fixture
def other(opened) -> Iterator[SimpleDistributedQueue]:
    """The same queue, in a session of its own."""
    with SimpleDistributedQueue(opened(), "/queue") as one:
        yield one


def test_an_empty_queue_has_no_element_and_removing_from_it_is_an_error(queue, other):
    queue.offer_many(numbered(10))
    for _ in range(10):
        other.remove()
    with pytest.raises(QueueEmpty, match="/queue"):
        queue.remove()
    assert queue.peek() is None
    with pytest.raises(QueueEmpty):
        queue.element()


def test_foreign_children_are_left_alone(queue, session):
    session.ensure_path("/queue/foreign")
    session.create("/queue/queue-", sequential=True)
    queue.offer(b"mine")
    assert queue.poll() == b"mine"
    assert queue.poll() is None
    assert queue.peek() is None
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
    for ask in (
        queue.poll,
        queue.take,
        queue.peek,
        queue.element,
        queue.remove,
        lambda: queue.offer(b""),
    ):
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
