"""Whoever is free works: no consumer holds back what it is not at."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from leaderq.queues import (
    TEXT,
    DistributedPriorityQueue,
    DistributedQueue,
)
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
