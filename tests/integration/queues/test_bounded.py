"""Bounded queues: tight among producers, woken as soon as there is room, and never stuck (Curator's
F16).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from producing import PATH, stored

from leaderq.queues import DistributedQueue
from leaderq.testing import eventually
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
