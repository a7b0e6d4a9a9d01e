"""Simple queues on a real server: Curator's own tests of them, and beyond: lost replies, reaped
paths, several takers.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from kazoo.client import KazooClient
from producing import create_all

from leaderq.errors import (
    ConfigurationError,
    NoNode,
    NotEmpty,
    QueueClosed,
    QueueEmpty,
    SessionClosed,
    TooLarge,
)
from leaderq.queues.simple_queue import SimpleDistributedQueue
from leaderq.testing import eventually
from leaderq.zookeeper import Session

MULTI, MULTI_READ = 14, 22
Open = Callable[..., Session]


@pytest.fixture
def queue(session: Session) -> Iterator[SimpleDistributedQueue]:
    with SimpleDistributedQueue(session, "/queue") as one:
        yield one


@pytest.fixture
def other(opened: Open) -> Iterator[SimpleDistributedQueue]:
    """The same queue, in a session of its own."""
    with SimpleDistributedQueue(opened(), "/queue") as one:
        yield one


def numbered(count: int) -> list[bytes]:
    return [str(number).encode() for number in range(count)]


# -- equivalents of Curator's TestSimpleDistributedQueue


def test_an_item_offered_can_be_removed_and_taken_by_the_same_client_and_by_another(queue, other):
    for takes in (queue.remove, other.remove, other.take):
        queue.offer(b"hello")
        assert takes() == b"hello"


def test_polling_an_empty_queue_gives_nothing_when_the_time_is_up(queue):
    assert queue.poll(timeout_s=0.2) is None
    assert queue.poll() is None
    assert queue.take(timeout_s=0.1) is None


@pytest.mark.parametrize(("offered", "removed"), [(10, 2), (1000, 1000)])
def test_items_are_removed_in_the_order_they_were_offered(queue, other, offered, removed):
    queue.offer_many(numbered(offered))
    assert [other.remove() for _ in range(removed)] == numbered(offered)[:removed]


@pytest.mark.parametrize(("offered", "removed"), [(1, 0), (10, 5), (1000, 999)])
def test_the_element_is_what_would_be_removed_next(queue, other, offered, removed):
    queue.offer_many(numbered(offered))
    for _ in range(removed):
        other.remove()
    assert other.element() == numbered(offered)[removed]
    assert queue.element() == other.peek() == other.remove()


def test_an_empty_queue_has_no_element_and_removing_from_it_is_an_error(queue, other):
    queue.offer_many(numbered(10))
    for _ in range(10):
        other.remove()
    with pytest.raises(QueueEmpty, match="/queue"):
        queue.remove()
    assert queue.peek() is None
    with pytest.raises(QueueEmpty):
        queue.element()


@pytest.mark.parametrize("times", [1, 2])
def test_a_taker_waits_for_an_item_and_is_woken(queue, other, times):
    with ThreadPoolExecutor(1) as pool:
        for number in range(times):
            taken = pool.submit(other.take)
            eventually(taken.running)
            queue.offer(b"%d" % number)
            assert taken.result(60) == b"%d" % number


def test_a_path_that_is_reaped_all_the_time_stops_nobody(queue, other, opened):
    """CURATOR-308; here it is reaped not every 100 ms, but whenever it is empty."""
    reaper = opened()
    stop = threading.Event()
    reaped = []

    def reap() -> None:
        while not stop.is_set():
            with contextlib.suppress(NoNode, NotEmpty):
                reaper.delete("/queue")
                reaped.append(1)

    thread = threading.Thread(target=reap)
    thread.start()
    try:
        with ThreadPoolExecutor(1) as pool:
            taken = pool.submit(lambda: [other.take(timeout_s=60) for _ in range(20)])
            for item in numbered(20):
                queue.offer(item)
                eventually(lambda: reaper.exists("/queue") is None, interval_s=0.001)
            assert taken.result(60) == numbered(20)
    finally:
        stop.set()
        thread.join()
    assert len(reaped) > 10


# -- the wire


def test_znodes_are_named_and_filled_as_curators(queue, session):
    queue.offer_many([b"\x00raw", b""])
    assert sorted(session.children("/queue")) == ["qn-0000000000", "qn-0000000001"]
    assert session.get("/queue/qn-0000000000")[0] == b"\x00raw"
    assert queue.poll_many(5) == [b"\x00raw", b""]


def test_foreign_children_are_left_alone(queue, session):
    session.ensure_path("/queue/foreign")
    session.create("/queue/queue-", sequential=True)
    queue.offer(b"mine")
    assert queue.poll() == b"mine"
    assert queue.poll() is None
    assert queue.peek() is None
    assert len(session.children("/queue")) == 2


def test_an_item_that_was_rewritten_is_given_as_it_stands(queue, other, session):
    queue.offer_many([b"a", b"b"])
    assert other.poll() == b"a"  # and has read b
    session.set("/queue/qn-0000000001", b"B")
    assert other.poll() == b"B"


def test_a_name_that_came_to_stand_for_another_item_gives_the_new_one(queue, other, session):
    queue.offer_many([b"a", b"old", b"old"])
    assert other.poll() == b"a"  # and has read the others
    assert queue.poll_many(5) == [b"old", b"old"]
    session.delete("/queue")
    queue.offer_many([b"x", b"new"])
    assert queue.poll() == b"x"
    assert other.poll() == b"new"
    assert other.poll() is None


def test_items_read_ahead_are_not_handed_out_for_new_ones_when_the_path_was_made_again(
    queue, other, session
):
    queue.offer_many([b"old"] * 20)
    assert [other.poll() for _ in range(5)] == [b"old"] * 5
    assert queue.poll_many(20) == [b"old"] * 15
    session.delete("/queue")
    queue.offer_many(numbered(20))
    eventually(
        lambda: not other._consumption.engine._listing.known, message="the other has heard of it"
    )
    assert [other.poll() for _ in range(20)] == numbered(20)


def test_nothing_of_ours_is_left_below_the_path_or_beside_it(session):
    with SimpleDistributedQueue(session, "/queue") as queue:
        queue.offer(b"a")
        assert queue.poll() == b"a"
        assert len(session.children("/queue-meta/tallies")) == 2
    assert session.children("/queue-meta/tallies") == []
    assert session.children("/queue") == []


def test_a_kazoo_client_serves_as_well(zookeeper_server, znode_root):
    client = KazooClient(zookeeper_server.address)
    client.start()
    try:
        with SimpleDistributedQueue(client, f"{znode_root}/queue") as queue:
            queue.offer(b"a")
            assert queue.take() == b"a"
    finally:
        client.stop()
        client.close()


# -- several takers


def test_a_lone_taker_keeps_the_order_over_many_lists(queue, other):
    got = []
    for start in range(0, 600, 200):
        queue.offer_many(numbered(600)[start : start + 200])
        got += [other.poll() for _ in range(150)]
    got += [other.poll() for _ in range(150)]
    assert got == numbered(600)


@pytest.mark.parametrize("at_once", [1, 7])
def test_each_item_goes_to_one_of_many_takers(queue, opened, at_once):
    queue.offer_many(numbered(800))
    takers = [SimpleDistributedQueue(opened(), "/queue") for _ in range(4)]

    def drain(taker: SimpleDistributedQueue) -> list[bytes]:
        got: list[bytes] = []
        while some := taker.poll_many(at_once):
            got += some
        return got

    with ThreadPoolExecutor(8) as pool:
        shares = list(pool.map(drain, takers * 2))  # two threads each
    assert sorted(item for share in shares for item in share) == sorted(numbered(800))
    for taker in takers:
        assert taker.close(60.0)


@pytest.mark.parametrize("at_once", [1, 20])
def test_no_taker_goes_empty_handed_because_others_are_quicker(queue, opened, at_once):
    queue.offer_many(numbered(100 * at_once * 4))
    takers = [SimpleDistributedQueue(opened(), "/queue") for _ in range(4)]
    ready = threading.Barrier(4)

    def drain(taker: SimpleDistributedQueue) -> int:
        taker.peek()
        ready.wait(60)
        return sum(1 for _ in iter(lambda: taker.poll_many(at_once), []))

    with ThreadPoolExecutor(4) as pool:
        shares = list(pool.map(drain, takers))
    assert min(shares) > 10, shares
    for taker in takers:
        assert taker.close(60.0)


def test_each_item_goes_to_one_of_many_takers_that_wait(queue, opened):
    takers = [SimpleDistributedQueue(opened(), "/queue") for _ in range(5)]
    lock = threading.Lock()
    got: list[bytes] = []

    def take_all(taker: SimpleDistributedQueue) -> None:
        while (item := taker.take()) != b"end":
            with lock:
                got.append(item)

    with ThreadPoolExecutor(10) as pool:
        for taker in takers * 2:
            pool.submit(take_all, taker)
        for number in range(60):
            queue.offer(b"%d" % number)
            if number % 3 == 0:  # each third comes to a queue that is empty
                eventually(lambda number=number: len(got) == number + 1, interval_s=0.001)
        queue.offer_many([b"end"] * 10)
    assert sorted(got) == sorted(numbered(60))
    for taker in takers:
        assert taker.close(60.0)


# -- its end


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


def test_a_closed_session_ends_every_wait(opened):
    session = opened()
    with SimpleDistributedQueue(session, "/queue") as queue, ThreadPoolExecutor(1) as pool:
        assert queue.poll() is None
        taken = pool.submit(queue.take)
        eventually(taken.running)
        session.close()
        with pytest.raises(SessionClosed):
            taken.result(60)
        with pytest.raises(SessionClosed):
            queue.offer(b"a")


def test_an_item_that_is_too_large_is_refused_and_nothing_is_sent(queue):
    with pytest.raises(TooLarge) as caught:
        queue.offer_many([b"small", b"x" * 1_100_000])
    assert caught.value.size > caught.value.limit
    assert queue.poll() is None
    queue.offer(b"x" * 1_000_000)
    assert queue.poll() == b"x" * 1_000_000


@pytest.mark.parametrize("item", ["text", 1, None])
def test_what_is_no_bytes_is_refused(queue, item):
    with pytest.raises(TypeError, match="takes bytes, not"):
        queue.offer(item)


def test_a_queue_needs_a_path_of_its_own(session):
    for path in ("/", "queue", "/a//b"):
        with pytest.raises(ConfigurationError):
            SimpleDistributedQueue(session, path)
    with pytest.raises(ConfigurationError):
        SimpleDistributedQueue(session, "/queue").poll_many(0)


def test_large_items_are_read_few_at_a_time(queue, other):
    items = [bytes([number]) * 200_000 for number in range(12)]
    queue.offer_many(items)
    assert [other.poll() for _ in items] == items


def sent_by(session: Session) -> list[int]:
    """The kinds of its requests from now on."""
    sent: list[int] = []
    send = type(session)._send

    def counting(self: Session, request: Any, *rest: Any) -> Any:
        sent.append(request.type)
        return send(self, request, *rest)

    session._send = counting.__get__(session)
    return sent


def test_who_takes_one_after_the_other_reads_ahead(queue, other):
    queue.offer_many(numbered(100))
    assert other.poll() == b"0"
    sent = sent_by(other._session)
    assert [other.poll() for _ in range(90)] == numbered(100)[1:91]
    assert sent.count(MULTI) == 90
    assert sent.count(MULTI_READ) < 20


def test_a_backlog_is_listed_once(queue, other, session, monkeypatch):
    """10,000 items listed each time would be 10 GB."""
    session.ensure_path("/queue")
    create_all(session, "/queue/qn-", [b"x"] * 3000)
    sent = sent_by(other._session)
    listed: list[str] = []
    children = other._session.children

    def noting(path: str, *how: Any) -> list[str]:
        found = children(path, *how)
        listed.extend(found if path == "/queue" else ())
        return found

    monkeypatch.setattr(other._session, "children", noting)
    got = 0
    while some := other.poll_many(100):
        got += len(some)
    assert got == len(listed) == 3000
    assert sent.count(MULTI) <= 40  # few are claimed at first, because few are read
