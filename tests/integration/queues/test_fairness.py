"""Whoever is free works: no consumer holds back what it is not at."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from leaderq.queues import (
    JSON,
    TEXT,
    DistributedDelayQueue,
    DistributedPriorityQueue,
    DistributedQueue,
)
from leaderq.queues.consuming.claims import ClaimAttempt, ClaimResult
from leaderq.reading import SizedReader
from leaderq.testing import eventually
from leaderq.zookeeper import Session

Open = Callable[..., Session]


@pytest.mark.parametrize("lock_path", [None, "/locks"])
@pytest.mark.parametrize("other", ["hung", "slow", "paused", "asked once"])
def test_a_free_consumer_takes_what_another_leaves_lying_while_the_flow_lasts(
    opened: Open, other: str, lock_path: str | None
) -> None:
    released, is_over = threading.Event(), threading.Event()
    got: list[str] = []
    put = 0

    def work(_value: str) -> None:
        if other == "hung":
            released.wait(60)
        elif other == "slow":
            released.wait(0.1)

    options: dict[str, Any] = {"serializer": TEXT, "lock_path": lock_path, "final_flush_s": 30.0}
    consumer = None if other == "asked once" else work
    with (
        DistributedQueue(opened(), "/q", consumer=consumer, **options) as busy,
        DistributedQueue(opened(), "/q", put_in_background=True, **options) as producer,
    ):

        def flow() -> None:
            nonlocal put
            while not is_over.wait(0.01):
                producer.put("item")
                put += 1

        if other == "asked once":
            busy.take(0.05)
        elif other == "paused":
            busy.pause()
        elif other == "hung":
            producer.put("long")
            eventually(lambda: producer.depth() == 0 or opened().children("/locks"))
        with (
            DistributedQueue(opened(), "/q", consumer=got.append, **options),
            ThreadPoolExecutor(1) as pool,
        ):
            flowing = pool.submit(flow)
            try:
                eventually(lambda: put > 300 and len(got) > 0.75 * put, timeout_s=40)
            finally:
                is_over.set()
                flowing.result(60)
                released.set()


def test_a_free_consumer_leaves_nothing_any_more_to_one_that_hangs(opened: Open) -> None:
    released = threading.Event()
    got: list[str] = []
    with (
        DistributedQueue(opened(), "/q", consumer=lambda _value: released.wait(60)),
        DistributedQueue(opened(), "/q", consumer=got.append, serializer=TEXT) as free,
    ):
        members = free._consumption.engine._members
        eventually(lambda: members.share is not None)
        share = members.share
        names = [f"queue-{number:010d}" for number in range(10)]
        for number in range(40):
            free.put(str(number))
        eventually(lambda: len(got) >= 38)
        assert all(name in share or share.stands_in_for(name) for name in names)
        released.set()


def test_what_comes_to_an_idle_consumer_is_read_while_the_queue_is_listed(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    read = SizedReader.read

    def noted(reader: SizedReader, names: Sequence[str]) -> Future[list[Any]]:
        asked.extend(names)
        return read(reader, names)

    monkeypatch.setattr(SizedReader, "read", noted)
    got: list[str] = []
    with DistributedQueue(opened(), "/q", consumer=got.append, serializer=TEXT) as queue:
        for number in range(20):
            queue.put(str(number))
            eventually(lambda number=number: len(got) == number + 1)
    assert len(asked) < 10


def test_the_most_urgent_item_is_begun_next_by_whoever_is_free(opened: Open) -> None:
    released = threading.Event()
    begun: list[str] = []

    def work(value: str) -> None:
        begun.append(value)
        time.sleep(0.005)

    with DistributedPriorityQueue(opened(), "/q", serializer=TEXT) as producer:
        producer.put("long", -1)
        with DistributedPriorityQueue(
            opened(),
            "/q",
            consumer=lambda _value: released.wait(60),
            serializer=TEXT,
            lock_path="/locks",
        ):
            eventually(lambda: opened().children("/locks"))
            producer.put_many(["low"] * 400, 9)
            with DistributedPriorityQueue(
                opened(), "/q", consumer=work, serializer=TEXT, lock_path="/locks"
            ):
                eventually(lambda: len(begun) > 20)
                before = len(begun)
                producer.put_many(["urgent"] * 20, 0)
                eventually(lambda: begun.count("urgent") == 20, timeout_s=60)
                last = max(position for position, value in enumerate(begun) if value == "urgent")
                released.set()
        # what was claimed ahead; the rest of the 400 come after
        assert begun[before:last].count("low") <= 60


@pytest.mark.parametrize("kind", [DistributedPriorityQueue, DistributedDelayQueue])
def test_under_a_flow_what_is_most_urgent_and_due_is_begun_next_by_whoever_of_several_is_free(
    opened: Open, kind: Any
) -> None:
    released, begun = threading.Event(), list[str]()
    now = time.time()
    if kind is DistributedPriorityQueue:
        long, low, urgent = [{"priority": priority} for priority in (-1, 9, 0)]
    else:
        long, low, urgent = [{"due": now - ago_s} for ago_s in (7200, 1, 3600)]

    def work(value: str) -> None:
        begun.append(value)
        if value == "long":
            released.wait(60)
        time.sleep(0.005)

    options: dict[str, Any] = {"serializer": TEXT, "lock_path": "/locks", "final_flush_s": 60.0}
    with ExitStack() as stack:
        producer = stack.enter_context(kind(opened(), "/q", **options))
        stack.callback(released.set)
        producer.put("long", **long)
        stack.enter_context(kind(opened(), "/q", consumer=work, **options))
        eventually(lambda: begun == ["long"])
        producer.put_many(["low"] * 3000, **low)
        for _ in range(3):
            stack.enter_context(kind(opened(), "/q", consumer=work, **options))
        eventually(lambda: len(begun) > 100)
        waited = []
        for number in range(30):
            producer.put(f"urgent {number}", **urgent)
            stored = len(begun)
            eventually(lambda number=number: f"urgent {number}" in begun)
            waited.append(begun.index(f"urgent {number}") - stored)
        released.set()
    # 5 without a fault; what is left for 50 ms to one that hangs waits for 30 others
    assert sum(waited) <= 100


def test_a_lock_that_comes_or_goes_is_no_reason_to_list_again(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = opened()
    listed: list[str] = []
    ask = session.children_async

    def noted(path: str, watch: Any = None) -> Any:
        listed.append(path)
        return ask(path, watch)

    got: list[str] = []
    with DistributedQueue(
        session, "/q", consumer=got.append, serializer=TEXT, lock_path="/locks"
    ) as queue:
        eventually(lambda: session.exists("/locks") is not None)
        monkeypatch.setattr(session, "children_async", noted)
        for number in range(20):
            queue.put(str(number))
            eventually(lambda number=number: len(got) == number + 1)
            eventually(lambda: queue.depth() == 0)
    # when the item comes, and when it is gone
    assert listed.count("/locks") <= 45


def test_what_its_owner_works_on_for_long_is_not_tried_by_others(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: set[int] = set()
    late: list[str] = []
    finish = ClaimAttempt.finish

    def noted(attempt: ClaimAttempt) -> ClaimResult:
        found = finish(attempt)
        late.extend(found.locked)
        return found

    monkeypatch.setattr(ClaimAttempt, "finish", noted)

    def work(value: int) -> None:
        time.sleep(0.2)
        done.add(value)

    options: dict[str, Any] = {"consumer": work, "serializer": JSON, "lock_path": "/locks"}
    with (
        DistributedQueue(opened(), "/q", **options) as queue,
        DistributedQueue(opened(), "/q", **options) as other,
    ):
        for one in (queue, other):
            eventually(lambda one=one: one._consumption.engine._members.share is not None)
        for number in range(8):
            queue.put(number)
            eventually(lambda number=number: number in done)
    assert len(late) <= 2  # whose owner needed more than 50 ms to claim them


def test_what_is_claimed_next_was_read_before(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing: list[str] = []
    read = SizedReader.read

    def noted(reader: SizedReader, names: Sequence[str]) -> Future[list[Any]]:
        if sys._getframe(1).f_code.co_name == "__init__":
            missing.extend(names)
        return read(reader, names)

    monkeypatch.setattr(SizedReader, "read", noted)
    got: list[bytes] = []
    with DistributedQueue(opened(), "/q") as producer:
        producer.put_many([b"item"] * 3000)
    with DistributedQueue(opened(), "/q", consumer=got.append):
        eventually(lambda: len(got) == 3000)
    assert len(missing) < 300


def test_names_that_are_gone_are_passed_over_many_at_a_time(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []
    read = SizedReader.read

    def noted(reader: SizedReader, names: Sequence[str]) -> Future[list[Any]]:
        reads.append(len(names))
        return read(reader, names)

    session = opened()
    with DistributedQueue(session, "/q") as queue:
        queue.put_many([b"%04d" % number for number in range(1201)])
        queue.take().ack()
        for number in range(100, 1200):
            session.delete_async(f"/q/queue-{number:010d}")
        monkeypatch.setattr(SizedReader, "read", noted)
        eventually(lambda: queue.depth() <= 101)
        while queue.take().value != b"1200":
            continue
    assert len(reads) < 300
