"""Simple queues where the network fails: lost replies, outages, sessions that end, callers whose
time is up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from consumption import expire
from producing import numbered
from reply_rules import at_every_point, is_multi

from leaderq.errors import ConnectionLost, NotConnected
from leaderq.queues.simple_queue import SimpleDistributedQueue
from leaderq.testing import eventually
from leaderq.zookeeper import Session


@pytest.fixture
def queue(session: Session) -> Iterator[SimpleDistributedQueue]:
    with SimpleDistributedQueue(session, "/queue") as one:
        yield one


def scenario(queue: SimpleDistributedQueue) -> list[bytes]:
    """Offers and takes of every kind; gives what was taken, in order."""
    got = []
    queue.offer(b"0")
    queue.offer_many([b"1", b"2", b"3"])
    assert queue.peek() == b"0"
    got.append(queue.take())
    got += queue.poll_many(2, timeout_s=60)
    queue.offer(b"4")
    got.append(queue.poll(timeout_s=60))
    got.append(queue.take(timeout_s=60))
    assert queue.poll(timeout_s=0.01) is None
    return got


def patiently(ask: Callable[[], Any]) -> Any:
    """Reads that break tell their caller so; asking again is up to it."""
    while True:
        try:
            return ask()
        except ConnectionLost:
            eventually(lambda: True, interval_s=0.01)


def settle(session: Session) -> None:
    """Return when nothing is left to be done about earlier answers: the thread that tells of
    answers takes them in turn.
    """
    session.exists("/")


class Patient(SimpleDistributedQueue):
    def peek(self) -> bytes | None:
        return patiently(super().peek)

    def poll_many(self, max_items: int, timeout_s: float | None = None) -> list[bytes]:
        return patiently(lambda: super(Patient, self).poll_many(max_items, timeout_s))


def test_whichever_reply_is_lost_each_item_is_stored_once_and_taken_once(proxy, opened):
    session, straight = opened(proxy.address, timeout_s=30.0), opened()

    def taken_once(point: int) -> None:
        with Patient(session, f"/queue{point}") as queue:
            assert scenario(queue) == numbered(5), f"reply {point}"
        # not through a session that may not have heard yet that it was cut off
        assert straight.children(f"/queue{point}") == []

    assert at_every_point(proxy, taken_once, session) > 20


def test_an_item_is_taken_once_although_the_session_ends_while_it_is(address, proxy, opened):
    session = opened(proxy.address, timeout_s=10.0)
    with SimpleDistributedQueue(session, "/queue") as queue, ThreadPoolExecutor(1) as pool:
        queue.offer_many(numbered(3))
        assert queue.poll() == b"0"
        proxy.drop_reply_to(is_multi)
        taken = pool.submit(queue.take)
        eventually(lambda: proxy.dropped == 1)
        expire(session, address)
        assert taken.result(60) == b"1"
        assert queue.take(timeout_s=60) == b"2"


def test_an_offer_whose_reply_does_not_come_in_time_is_in_doubt_and_stored_once(
    proxy, opened, queue
):
    session = opened(proxy.address, timeout_s=10.0)
    with SimpleDistributedQueue(session, "/queue") as far:
        far.offer(b"first")
        # or the next offer might have to wait for its turn, in vain, and not be sent at all
        settle(session)
        proxy.freeze_direction("to_client")
        with pytest.raises(ConnectionLost) as caught:
            far.offer(b"second", timeout_s=0.1)
        assert not isinstance(caught.value, NotConnected)
        proxy.heal()
        far.offer(b"third")
    assert queue.poll_many(10) == [b"first", b"second", b"third"]
