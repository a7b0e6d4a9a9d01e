"""Bounded queues: tight among producers, woken as soon as there is room, and never stuck (Curator's
F16).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from producing import MULTI, PATH, at_every_point, numbered, opcode, stored

from leaderq.errors import QueueClosed, TooLarge
from leaderq.queues import DistributedQueue
from leaderq.queues.wire.payload import encode
from leaderq.testing import FaultProxy, eventually
from leaderq.zookeeper import Session, SessionState

Open = Callable[..., Session]
LOCKS = "/q-locks"


@pytest.fixture
def straight(opened: Open) -> Session:
    return opened()


def remove_first(session: Session) -> None:
    session.delete(f"{PATH}/{min(session.children(PATH))}")


def test_a_full_queue_lets_a_put_wait_and_takes_it_when_there_is_room(straight: Session) -> None:
    with DistributedQueue(straight, PATH, max_items=2) as queue, ThreadPoolExecutor(1) as pool:
        assert queue.put(b"0")
        assert queue.put(b"1")
        assert not queue.put(b"in vain", timeout_s=0.1)
        waiting = pool.submit(queue.put, b"2")
        remove_first(straight)
        assert waiting.result(60)
        assert stored(straight) == [b"1", b"2"]
        assert queue.put_many([b"3", b"4"], timeout_s=0.1) == 0
        assert not queue.put_multi([b"3", b"4"], timeout_s=0.1)


def test_room_for_a_few_is_given_to_the_first_and_the_others_are_given_up(
    straight: Session,
) -> None:
    with DistributedQueue(straight, PATH, max_items=3) as queue:
        # in which there must be time to store the first
        assert queue.put_many(numbered(10), timeout_s=5.0) == 3
        assert stored(straight) == numbered(3)
        assert queue.flush_puts(0)


def test_several_producers_and_a_consumer_never_exceed_the_bound(
    opened: Open, straight: Session
) -> None:
    producers, each, bound = 4, 60, 10
    depths: list[int] = []
    straight.ensure_path(PATH)
    seen: list[bytes] = []
    queues = [DistributedQueue(opened(), PATH, max_items=bound) for _ in range(producers)]
    for queue in queues:
        queue.start()

    def produce(me: int) -> None:
        assert queues[me].put_many([b"%d-%d" % (me, turn) for turn in range(each)]) == each

    with ThreadPoolExecutor(producers) as pool:
        done = [pool.submit(produce, me) for me in range(producers)]
        while len(seen) < producers * each:
            stat = straight.exists(PATH)
            assert stat is not None
            depths.append(stat.num_children)
            for name in sorted(straight.children(PATH))[:5]:
                data, _ = straight.get(f"{PATH}/{name}")
                straight.delete(f"{PATH}/{name}")
                seen.append(data)
        for one in done:
            one.result(60)
    for queue in queues:
        queue.close()
    assert max(depths) <= bound
    assert max(depths) > 1
    assert len(set(seen)) == producers * each
    for me in range(producers):
        assert [data for data in seen if b"%d-" % me in data] == [
            encode([b"%d-%d" % (me, turn)]) for turn in range(each)
        ]


def test_what_others_put_counts_but_does_not_wait(straight: Session) -> None:
    with DistributedQueue(straight, PATH, max_items=2) as queue:
        for _ in range(3):
            straight.create(f"{PATH}/queue-", encode([b"from Java"]), sequential=True)
        assert not queue.put(b"a", timeout_s=0.1)
        for _ in range(2):
            remove_first(straight)
        assert queue.put(b"a", timeout_s=60)


def test_whichever_reply_is_lost_each_item_is_stored_once_in_order_and_the_bound_holds(
    straight: Session, proxy: FaultProxy, znode_root: str, opened: Open
) -> None:
    session = opened(proxy.address)

    def scenario(point: int) -> None:
        straight.ensure_path(PATH)
        with DistributedQueue(session, PATH, max_items=2) as queue, ThreadPoolExecutor(1) as pool:
            putting = pool.submit(queue.put_many, numbered(5))
            seen: list[bytes] = []
            while len(seen) < 5:
                found = stored(straight)
                assert len(found) <= 2
                if found:
                    seen.append(found[0])
                    remove_first(straight)
            assert putting.result(60) == 5
        assert seen == numbered(5)
        assert straight.children(PATH) == []

    assert at_every_point(proxy, scenario, session) >= 10


def test_bound_and_queue_deleted_by_hand_are_made_again(straight: Session) -> None:
    with DistributedQueue(straight, PATH, max_items=2) as queue:
        assert queue.put(b"a")
        straight.delete(f"{PATH}-meta/bound")
        assert queue.put(b"b", timeout_s=60)
        assert not queue.put(b"c", timeout_s=0.1)
        for _ in range(2):
            remove_first(straight)
        straight.delete(PATH)
        assert queue.put(b"d", timeout_s=60)
        assert stored(straight) == [b"d"]


def test_an_item_that_fails_by_itself_harms_no_other(straight: Session) -> None:
    with DistributedQueue(straight, PATH, max_items=5) as queue:
        with pytest.raises(TooLarge):
            queue.put(b"x" * 2_000_000)
        assert queue.put(b"a")


def test_closing_wakes_a_put_that_waits_for_room(straight: Session) -> None:
    queue = DistributedQueue(straight, PATH, max_items=1, final_flush_s=60.0)
    queue.start()
    queue.put(b"a")
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(queue.put, b"b"), pool.submit(queue.put_multi, [b"c"])]
        eventually(lambda: queue._putter.unsettled == 2)
        queue.close()
        assert all(isinstance(one.exception(60), QueueClosed) for one in waiting)
    assert stored(straight) == [b"a"]


def test_puts_in_the_background_into_a_full_queue_are_reported_at_the_close(
    straight: Session,
) -> None:
    queue = DistributedQueue(straight, PATH, max_items=1, put_in_background=True, final_flush_s=0.1)
    queue.start()
    queue.put_many([b"a", b"b", b"c"])
    eventually(lambda: queue._putter.unsettled == 2)  # the first is stored, and known to be
    with pytest.raises(Exception, match="2 of 3 items"):
        queue.close()
    assert stored(straight) == [b"a"]


def test_a_bounded_queue_waits_through_an_outage(
    straight: Session, proxy: FaultProxy, znode_root: str, opened: Open
) -> None:
    session = opened(proxy.address)
    with DistributedQueue(session, PATH, max_items=2) as queue, ThreadPoolExecutor(1) as pool:
        queue.put(b"0")
        queue.put(b"1")
        waiting = pool.submit(queue.put, b"2")
        eventually(lambda: queue._putter.unsettled == 1)
        proxy.refuse()
        eventually(lambda: session.state is not SessionState.CONNECTED)
        assert not queue.put(b"in vain", timeout_s=0.2)
        remove_first(straight)
        proxy.heal()
        assert waiting.result(60)
    assert stored(straight) == [b"1", b"2"]


def test_idle_bounded_queues_ask_nothing_and_a_full_one_lists_nothing(
    straight: Session, proxy: FaultProxy, znode_root: str, opened: Open
) -> None:
    session = opened(proxy.address)
    asked: list[int] = []

    def note(request: bytes) -> bool:
        if opcode(request) != 8 or b"/tallies" not in request:  # listed to be swept, at the start
            asked.append(opcode(request))
        return False

    with DistributedQueue(session, PATH, max_items=3) as queue:
        proxy.drop_reply_to(note)
        assert queue.put_many(numbered(5), timeout_s=5.0) == 3
        assert 8 not in asked  # getChildren
        assert 12 not in asked
        assert asked.count(MULTI) == 1
        proxy.heal()


# -- Curator's own tests


def test_curator_simple(straight: Session) -> None:
    """TestBoundedDistributedQueue.testSimple: one place, a consumer that is held up, five items in
    order.
    """
    release, got = threading.Event(), []

    def consume(item: bytes) -> None:
        assert release.wait(60)
        got.append(item)

    with DistributedQueue(straight, PATH, consumer=consume, lock_path=LOCKS, max_items=1) as queue:
        assert queue.put(b"1")
        assert not queue.put(b"2", timeout_s=0.2)
        release.set()
        for item in (b"2", b"3", b"4", b"5"):
            assert queue.put(item, timeout_s=60)
        eventually(lambda: got == [b"1", b"2", b"3", b"4", b"5"])


def test_curator_multi(opened: Open, straight: Session) -> None:
    """TestBoundedDistributedQueue.testMulti: four clients that put and consume; never more than the
    bound (Curator: four times it).
    """
    clients, each, bound = 4, 100, 10
    lock, got, depths = threading.Lock(), [], []
    straight.ensure_path(PATH)

    def consume(item: bytes) -> None:
        with lock:
            got.append(item)

    queues = [
        DistributedQueue(
            opened(), PATH, consumer=consume, lock_path=LOCKS, max_items=bound, concurrency=4
        )
        for _ in range(clients)
    ]

    def put(me: int) -> Any:
        return queues[me].put_many(b"%d-%d" % (me, turn) for turn in range(each))

    for queue in queues:
        queue.start()
    with ThreadPoolExecutor(clients) as pool:
        done = [pool.submit(put, me) for me in range(clients)]
        is_over = False
        while not is_over:
            # looked at first: so there is one look at the queue at least
            is_over = all(one.done() for one in done)
            stat = straight.exists(PATH)
            assert stat is not None
            depths.append(stat.num_children)
        assert [one.result(0) for one in done] == [each] * clients
    eventually(lambda: len(got) == clients * each, timeout_s=60)
    for queue in queues:
        queue.close()
    assert len(set(got)) == clients * each
    assert max(depths) <= bound
