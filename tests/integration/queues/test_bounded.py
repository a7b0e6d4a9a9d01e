"""Bounded queues: tight among producers, woken as soon as there is room, and never stuck (Curator's
F16).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from producing import PATH, at_every_point, numbered, stored

from leaderq.errors import QueueClosed
from leaderq.queues import DistributedQueue
from leaderq.testing import FaultProxy, eventually
from leaderq.zookeeper import Session

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
