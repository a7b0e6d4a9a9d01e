"""Both kinds of queues on asyncio: what a cancelled task waited for is neither lost nor doubled."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from leaderq.dyno import AsyncDynoQueue, DynoQueue, Message
from leaderq.errors import QueueClosed
from leaderq.queues import (
    AsyncQueue,
    DistributedDelayQueue,
    DistributedIdQueue,
    DistributedPriorityQueue,
    DistributedQueue,
    Retry,
)
from leaderq.zookeeper import Create, Session


def test_a_loop_sees_every_value_and_ends_when_the_queue_is_closed(session):
    seen: list[bytes] = []

    async def work(queue: AsyncQueue[bytes]) -> None:
        async for item in queue:
            async with item:
                seen.append(item.value)

    async def run() -> None:
        async with AsyncQueue(DistributedQueue(session, "/q", lock_path="/locks")) as queue:
            working = asyncio.create_task(work(queue))
            await queue.put_many([b"one", b"two"])
            while queue.queue.depth():
                await asyncio.sleep(0.01)
            await queue.close()
            await asyncio.wait_for(working, 30)

    asyncio.run(run())
    assert seen == [b"one", b"two"]


class OfItems:
    def __init__(self, session: Session, lock_path: str | None = None) -> None:
        retry = Retry(attempts=10, first_s=0.0)
        self.queue: Any = AsyncQueue(
            DistributedQueue(session, "/q", lock_path=lock_path, retry=retry, final_flush_s=30.0)
        )

    async def put(self, values: list[bytes]) -> None:
        await self.queue.put_many(values)

    async def take(self) -> tuple[Any, bytes, int]:
        item = await self.queue.take()
        return item, item.value, item.attempt - 1


class OfMessages:
    def __init__(self, session: Session) -> None:
        retry = Retry(attempts=10, first_s=0.0)
        self.queue: Any = AsyncDynoQueue(DynoQueue(session, "/q", retry=retry))

    async def put(self, values: list[bytes]) -> None:
        await self.queue.push([Message(payload=value) for value in values])

    async def take(self) -> tuple[Any, bytes, int]:
        (one,) = await self.queue.pop(1, None)
        return one, await one.payload(), one.delivery.failures


FACES = pytest.mark.parametrize(
    "kind",
    [OfItems, lambda session: OfItems(session, "/locks"), OfMessages],
    ids=["items", "items with locks", "messages"],
)


@FACES
def test_takes_and_work_that_are_cancelled_lose_and_double_nothing(session, kind):
    done: list[bytes] = []
    values = [b"%d" % number for number in range(100)]
    chance = random.Random(7)
    face = kind(session)

    async def one() -> None:
        taken, value, failures = await face.take()
        async with taken:
            await asyncio.sleep(chance.random() * 0.002)
            assert failures == 0
            done.append(value)
            await taken.ack()  # carried out although the task may be cancelled

    async def run() -> None:
        async with face.queue:
            await face.put(values)
            while len(done) < len(values):
                tasks = [asyncio.create_task(one()) for _ in range(8)]
                await asyncio.sleep(chance.random() * 0.02)
                for task in chance.sample(tasks, 3):
                    task.cancel()
                ended, waiting = await asyncio.wait(tasks, timeout=2)
                for task in waiting:
                    task.cancel()
                for task in ended:
                    assert task.cancelled() or task.exception() is None

    asyncio.run(asyncio.wait_for(run(), 90))
    assert sorted(done, key=int) == values
    left = "/q" if kind is not OfMessages else "/q/shards/0/messages"
    assert session.children(left) == []


@FACES
def test_a_block_that_is_cancelled_releases_and_one_that_raises_has_failed(session, kind):
    face = kind(session)

    async def work(began: asyncio.Event) -> None:
        async with (await face.take())[0]:
            began.set()
            await asyncio.sleep(3600)

    async def run() -> None:
        async with face.queue:
            await face.put([b"1"])
            began = asyncio.Event()
            task = asyncio.create_task(work(began))
            await began.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            taken, _, failures = await face.take()
            assert failures == 0
            with pytest.raises(ValueError):
                async with taken:
                    raise ValueError("no")
            again, _, failures = await face.take()
            assert failures == 1
            await face.queue.close()
            with pytest.raises(QueueClosed):
                await again.ack()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        (DistributedQueue, ()),
        (DistributedIdQueue, ("id",)),
        (DistributedPriorityQueue, (7,)),
        (DistributedDelayQueue, ()),
    ],
)
def test_every_kind_puts_and_takes(session, kind, more):
    async def run() -> None:
        async with AsyncQueue(kind(session, "/q", lock_path="/locks")) as queue:
            name = await queue.put(b"one", *more)
            assert isinstance(name, str)
            item = await queue.take()
            assert (item.value, item.name, item.attempt) == (b"one", name, 1)
            session.ensure_path("/done")
            await item.ack([Create("/done/one")])
            assert item.is_settled
            assert await queue.take(0.05) is None
            assert await queue.cancel(str(await queue.put(b"two", *more)))
            assert queue.queue.depth() == 0

    asyncio.run(run())
    assert session.children("/done") == ["one"]
