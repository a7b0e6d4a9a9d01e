"""Pushing, popping and settling on a real server; ids of one's own; the same on asyncio; and the
handlers of both kinds of queues: coroutine functions, batches and values.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from leaderq.dyno import (
    AsyncDynoQueue,
    Duplicate,
    DynoQueue,
    Kill,
    Message,
    OnConflict,
    Worker,
)
from leaderq.errors import ConfigurationError, CorruptItem
from leaderq.queues import JSON, DistributedQueue, Retry
from leaderq.testing import eventually


def test_what_a_dead_consumer_had_passes_to_another_before_its_deadline(opened):
    with DynoQueue(opened(), "/d", lease_s=600) as first, DynoQueue(opened(), "/d") as second:
        first.push(Message(payload=b"one"))
        assert first.pop(1, 5)
        assert second.pop(1) == []
        first._session.close()
        assert [one.payload for one in second.pop(1, 30)] == [b"one"]


D = "/d"
DROP, RAISE, REPLACE = OnConflict.DROP, OnConflict.RAISE, OnConflict.REPLACE
EMPTY = {"0": {"messages": 0, "resting": 0, "leased": 0, "dead": 0}}


def one_of(payload: bytes, **options: object) -> Message:
    return Message(id="a", payload=payload, **options)


def test_a_conflict_drops_raises_or_replaces_and_names_the_survivor(session):
    with DynoQueue(session, D) as queue:
        first = queue.push_unique(one_of(b"1"))
        assert first.is_new
        dropped = queue.push_unique(one_of(b"2"), DROP)
        assert (dropped.is_new, dropped.surviving) == (False, first.surviving)
        with pytest.raises(Duplicate) as raised:
            queue.push_unique(one_of(b"3"), RAISE)
        assert raised.value.surviving == first.surviving
        replaced = queue.push_unique(one_of(b"4", priority=7), REPLACE)
        assert (replaced.is_new, replaced.replaced) == (True, first.surviving)
        assert [(one.payload, one.priority) for one in queue.all_messages()] == [(b"4", 7)]
        (one,) = queue.pop(2, 1)
        assert one.payload == b"4"
        with pytest.raises(Duplicate):  # it is in flight
            queue.push_unique(one_of(b"5"), REPLACE)
        one.postpone(3600)
        queue.push_unique(one_of(b"6"), REPLACE)  # it only rests
        (one,) = queue.pop(1, 30)
        assert one.payload == b"6"
        one.ack()
        assert queue.shard_sizes() == EMPTY
        assert session.children(f"{D}/ids") == []


def test_messages_are_pushed_popped_and_settled_on_asyncio(session):
    async def main() -> None:
        async with AsyncDynoQueue(DynoQueue(session, "/d")) as queue:
            await queue.push([Message(payload=b"1"), Message(payload=b"2")])
            seen = []
            async for one in queue:
                async with one:
                    seen.append(await one.payload())
                if len(seen) == 2:
                    break
            assert seen == [b"1", b"2"]
            assert await queue.pop(1) == []
            assert await queue.run(DynoQueue.size) == 0

    asyncio.run(main())


def test_what_was_taken_out_and_not_used_goes_back_as_it_was(opened):
    with DynoQueue(opened(), D) as queue, DynoQueue(opened(), D) as drain:
        queue.push([Message(payload=b"now"), Message(id="later", timeout_s=3600)])
        (failed,) = queue.pop(1, 30)
        failed.nack("no", delay_s=3600)
        places = [one.place for one in queue.all_messages()]
        taken = drain.take_out([*places, "0/50-1700000000000-00000000-0000000099"])
        assert {one.place for one in taken} == set(places)
        assert queue.shard_sizes()["0"]["leased"] == 2
        assert queue.take_out(places) == []
        drain.put_back(taken[:1])
        drain.close()
        eventually(lambda: queue.shard_sizes()["0"]["leased"] == 0)
        assert queue.pop(2) == []
        assert queue.set_timeout("later", 0)
        assert queue.set_timeout(failed.place, 0)
        again = sorted(queue.pop(2, 30, least=2), key=lambda one: one.failures)
        assert [(one.deliveries, one.failures) for one in again] == [(1, 0), (2, 1)]


QUICK = Retry(attempts=3, first_s=0.01)


def is_empty(queue: DynoQueue, dead: int = 0) -> Callable[[], bool]:
    return lambda: queue.shard_sizes() == {"0": {**EMPTY["0"], "dead": dead}}


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


def test_what_a_coroutine_of_a_batch_raises_is_said_of_all_that_it_has_not_settled(session):
    tries: list[int] = []

    async def handle(batch: list[Any]) -> None:
        tries.append(len(batch))
        if len(tries) == 1:
            batch[0].ack()
            raise ValueError("the others must come again")
        raise Kill("enough")

    with DynoQueue(session, D, retry=QUICK) as queue:
        queue.push([Message(payload=b"x")] * 5)
        with Worker(queue, handle, batch_items=5):
            eventually(is_empty(queue, dead=4))
        ends = {(one.reason, one.failures) for one in queue.dead_letters.browse()}
        assert ends == {("enough", 1)}
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
