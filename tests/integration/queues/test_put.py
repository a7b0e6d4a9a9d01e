"""Putting on the real server: stored once, in order, told to whom it concerns. Whatever happens on
the way: ``tests/simulation/test_writing.py``.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from consumption import LOCKS, PATH, stored

from leaderq.errors import ConfigurationError, LeaderqError, PutsFailed, TooLarge
from leaderq.queues import (
    TEXT,
    DistributedIdQueue,
    DistributedQueue,
    PutListener,
    SimpleDistributedQueue,
)
from leaderq.zookeeper import Session


class Ledger(PutListener):
    """Notes what it hears."""

    def __init__(self) -> None:
        self.completed: list[Any] = []
        self.multis: list[Any] = []
        self.failed: list[tuple[Sequence[Any], LeaderqError]] = []

    def put_completed(self, item: Any) -> None:
        self.completed.append(item)

    def put_multi_completed(self, items: Sequence[Any]) -> None:
        self.multis.append(list(items))

    def put_failed(self, items: Sequence[Any], error: LeaderqError) -> None:
        self.failed.append((list(items), error))


class Picky:
    """A serializer that refuses one value."""

    def serialize(self, value: bytes) -> bytes:
        if value == b"bad":
            raise ValueError("not this one")
        return value

    def deserialize(self, data: bytes) -> bytes:
        return data


def test_one_by_one_as_one_and_many_at_once_are_stored_byte_for_byte_as_curator_would(
    session: Session,
) -> None:
    with DistributedQueue(session, PATH, serializer=TEXT) as queue:
        assert queue.put("hello")
        assert queue.put_multi(["a", "b"])
        assert queue.put_multi([])
        assert queue.put_many(["", "x"]) == 2
        names = sorted(session.children(PATH))
        assert names == [f"queue-{number:010}" for number in range(5)]
        data = [session.get(f"{PATH}/{name}")[0].hex() for name in names]
        assert data == [
            "00010001010000000568656c6c6f02",
            "0001000101000000016101000000016202",
            "0001000102",
            "00010001010000000002",
            "0001000101000000017802",
        ]


@pytest.mark.parametrize(
    ("kind", "path", "options", "says"),
    [
        (DistributedQueue, PATH, {"max_items": 0, "final_flush_s": -1}, "max_items=0.*flush_s=-1"),
        (DistributedQueue, PATH, {"lock_path": PATH}, "znodes of their own"),
        (DistributedIdQueue, "/a|b", {}, r"holds '\|'"),
        (DistributedQueue, "q", {}, "absolute"),
        (DistributedQueue, PATH, {"min_items_before_refresh": 3}, "only a priority queue"),
        (DistributedQueue, PATH, {"consumer": print, "consume_batch": print}, "not both"),
        (DistributedQueue, PATH, {"consumer": 3}, "cannot be called"),
        *(
            (DistributedQueue, PATH, {"lock_path": LOCKS, "meta_path": meta}, "a place of its own")
            for meta in (PATH, f"{PATH}/meta", f"{LOCKS}/meta")
        ),
        *((SimpleDistributedQueue, path, {}, "path") for path in ("/", "queue", "/a//b")),
    ],
)
def test_what_cannot_be_used_is_refused_all_at_once(
    session: Session, kind: Any, path: str, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigurationError, match=says):
        kind(session, path, **options)


# -- failures reach whom they concern


def test_a_serializer_that_raises_fails_its_item_only_and_leaves_no_counter_raised(
    session: Session,
) -> None:
    with DistributedQueue(session, PATH, serializer=Picky(), final_flush_s=60.0) as queue:
        for put in (queue.put, lambda item: queue.put_multi([b"a", item])):
            with pytest.raises(ValueError, match="not this one"):
                put(b"bad")
        assert queue.flush_puts(0)
        with pytest.raises(PutsFailed) as caught:
            queue.put_many([b"a", b"bad", b"x" * 2_000_000, b"b"])
        assert (caught.value.stored, caught.value.failed) == (2, 2)
        kinds = {item[:3]: type(error) for item, error in caught.value.failures}
        assert kinds == {b"bad": ValueError, b"xxx": TooLarge}
        assert queue.flush_puts(0)
    assert stored(session) == [b"a", b"b"]


def test_listeners_hear_of_each_item_and_of_each_failure_and_may_put_themselves(
    session: Session,
) -> None:
    ledger, deaf, all_put = Ledger(), Ledger(), threading.Event()

    class Broken(PutListener):
        def put_completed(self, item: Any) -> None:
            if item == b"0":
                assert all_put.wait(60)  # or it might come before those
                queue.put(b"by a listener")
            raise ValueError("a listener that fails")

    with DistributedQueue(session, PATH, put_in_background=True) as queue:
        for listener in (Broken(), ledger, deaf):
            queue.add_put_listener(listener)
        queue.remove_put_listener(deaf)
        queue.put(b"0")
        queue.put_multi([b"1", b"2"])
        queue.put_many([b"3", b"4"])
        all_put.set()
        assert queue.flush_puts(60)
        assert queue.flush_puts(60)
    assert ledger.completed == [b"0", b"3", b"4", b"by a listener"]
    assert ledger.multis == [[b"1", b"2"]]
    assert (ledger.failed, deaf.completed) == ([], [])


# -- time-outs and closing


def test_a_full_queue_lets_a_put_wait_and_takes_it_when_there_is_room(session: Session) -> None:
    with DistributedQueue(session, PATH, max_items=2) as queue, ThreadPoolExecutor(1) as pool:
        assert queue.put(b"0")
        assert queue.put(b"1")
        assert not queue.put(b"in vain", timeout_s=0.1)
        waiting = pool.submit(queue.put, b"2")
        session.delete(f"{PATH}/{min(session.children(PATH))}")
        assert waiting.result(60)
        assert stored(session) == [b"1", b"2"]
        assert queue.put_many([b"3", b"4"], timeout_s=0.1) == 0
        assert not queue.put_multi([b"3", b"4"], timeout_s=0.1)
