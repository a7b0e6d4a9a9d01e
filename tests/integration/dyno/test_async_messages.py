"""Dyno queues on asyncio."""

from __future__ import annotations

import asyncio

import pytest

from leaderq.dyno import AsyncDynoQueue, DynoQueue, Message, StaleLease
from leaderq.zookeeper import Session


def test_messages_are_pushed_popped_and_settled_on_asyncio(session: Session) -> None:
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


def test_a_pop_that_is_cancelled_keeps_no_message(session: Session) -> None:
    async def main() -> None:
        async with AsyncDynoQueue(DynoQueue(session, "/d")) as queue:
            waiting = [asyncio.create_task(queue.pop(1, None)) for _ in range(4)]
            await asyncio.sleep(0.05)
            pushing = asyncio.create_task(
                queue.push([Message(payload=b"%d" % number) for number in range(4)])
            )
            for task in waiting:
                task.cancel()
            await pushing
            seen = set()
            while len(seen) < 4:
                for one in await queue.pop(4, 30):
                    seen.add(await one.payload())
                    await one.ack()

    asyncio.run(main())


def test_a_block_that_is_cancelled_releases_and_one_that_raises_has_failed(
    session: Session,
) -> None:
    async def main() -> None:
        async with AsyncDynoQueue(DynoQueue(session, "/d")) as queue:
            await queue.push(Message(payload=b"1"))

            async def work() -> None:
                (one,) = await queue.pop(1, 30)
                async with one:
                    began.set()
                    await asyncio.sleep(3600)

            began = asyncio.Event()
            task = asyncio.create_task(work())
            await began.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            (one,) = await queue.pop(1, 30)
            assert one.delivery.failures == 0
            with pytest.raises(ValueError):
                async with one:
                    raise ValueError("no")
            (again,) = await queue.pop(1, 30)
            assert again.delivery.failures == 1
            with pytest.raises(StaleLease):
                await one.ack()

    asyncio.run(main())
