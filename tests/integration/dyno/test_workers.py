"""Handlers of both kinds of queues on a real server: coroutine functions, batches and values."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from leaderq.dyno import DynoQueue, Kill, Message, Worker
from leaderq.errors import ConfigurationError, CorruptItem
from leaderq.queues import JSON, DistributedQueue, Retry
from leaderq.testing import eventually

D = "/d"
EMPTY = {"messages": 0, "resting": 0, "leased": 0, "dead": 0}
QUICK = Retry(attempts=3, first_s=0.01)


def is_empty(queue: DynoQueue, dead: int = 0) -> Callable[[], bool]:
    return lambda: queue.shard_sizes() == {"0": {**EMPTY, "dead": dead}}


def test_coroutines_of_a_worker_run_side_by_side_and_one_that_fails_is_tried_again(session):
    all_there, seen = asyncio.Event(), list[Any]()

    async def handle(value: Any) -> None:
        seen.append(value["job"])
        if len(seen) == 3:
            all_there.set()
        await all_there.wait()
        if len(seen) == 3:
            raise ValueError("no")

    with DynoQueue(session, D, serializer=JSON, retry=QUICK) as queue:
        queue.push(queue.message({"job": number}, priority=number) for number in range(3))
        with Worker(queue, handle, threads=3, values=True) as worker:
            eventually(is_empty(queue))
        assert not worker.is_running
    assert set(seen) == {0, 1, 2}
    assert len(seen) > 3


def test_a_batch_is_acknowledged_together_and_what_cannot_be_read_is_dead(session):
    seen: list[list[Any]] = []
    with DynoQueue(session, D, serializer=JSON) as queue:
        good = [queue.message(number) for number in range(40)]
        queue.push([*good[:20], Message(id="bad", payload=b"{"), *good[20:]])
        with pytest.raises(CorruptItem):
            assert [one.value for one in [queue.pop_id("bad")] if one]
    with DynoQueue(session, D, serializer=JSON) as queue:
        with Worker(queue, seen.append, batch_items=16, values=True):
            eventually(is_empty(queue, dead=1))
        assert sorted(one for batch in seen for one in batch) == list(range(40))
        assert max(map(len, seen)) > 1
        assert max(map(len, seen)) <= 16
        (letter,) = queue.dead_letters.browse()
        assert (letter.reason, letter.frame.id) == ("corrupt", "bad")


def test_what_a_batch_raises_is_said_of_all_that_it_has_not_settled(session):
    tries: list[int] = []

    def handle(batch: list[Any]) -> None:
        tries.append(len(batch))
        if len(tries) == 1:
            batch[0].ack()
            raise ValueError("the others must come again")
        if len(tries) > 1:
            raise Kill("enough")

    with DynoQueue(session, D, retry=QUICK) as queue:
        queue.push([Message(payload=b"x")] * 5)
        with Worker(queue, handle, batch_items=5):
            eventually(is_empty(queue, dead=4))
        assert {(one.reason, one.failures) for one in queue.dead_letters.browse()} == {
            ("enough", 1)
        }
    with pytest.raises(ConfigurationError, match="batch_items"):
        Worker(queue, handle, batch_items=0)


@pytest.mark.parametrize("is_batch", [False, True])
def test_coroutines_consume_a_queue_of_items(session, is_batch):
    both, seen, begun = asyncio.Event(), list[Any](), list[Any]()

    async def consume(values: Any) -> None:
        begun.append(values)
        if len(begun) == 2:
            both.set()
        await both.wait()
        seen.extend(values if is_batch else [values])

    how: dict[str, Any] = {"consume_batch" if is_batch else "consumer": consume}
    how |= {"serializer": JSON, "lock_path": "/locks", "concurrency": 2, "batch_items": 5}
    with DistributedQueue[Any](session, "/q", **how) as queue:
        queue.put_many(range(20))
        eventually(lambda: sorted(seen) == list(range(20)))
        eventually(lambda: not session.children("/q"))
