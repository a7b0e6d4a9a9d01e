"""Dyno queues on asyncio."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from leaderq.dyno import AsyncDynoQueue, DynoQueue, FileBodies, Message, StaleLease
from leaderq.errors import QueueClosed
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


def test_a_queue_on_asyncio_is_closed_once_however_often_it_is_asked_and_says_so_then(
    session: Session,
) -> None:
    async def main() -> None:
        async with AsyncDynoQueue(DynoQueue(session, "/d")) as queue:
            # more than there are threads for
            waiting = [asyncio.create_task(queue.pop(1, None)) for _ in range(12)]
            await asyncio.sleep(0.1)
            assert await queue.close()
            ended = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 30)
            assert {type(one) for one in ended} == {QueueClosed}
            for use in (queue.pop(), queue.push(Message()), queue.run(DynoQueue.size)):
                with pytest.raises(QueueClosed):
                    await use

    asyncio.run(main())


def test_a_loop_that_ends_under_a_pop_keeps_no_message_from_the_next(session: Session) -> None:
    queue = AsyncDynoQueue(DynoQueue(session, "/d"))

    async def leave() -> None:
        task = asyncio.create_task(queue.pop(1, None))
        await asyncio.sleep(0.1)
        assert not task.done()

    async def come() -> bytes:
        await queue.push(Message(payload=b"1"))
        async for one in queue:
            await one.ack()
            break
        await queue.close()
        return one.delivery.payload

    asyncio.run(leave())
    assert asyncio.run(come()) == b"1"


def test_the_loop_goes_on_while_a_large_payload_is_read(session: Session, tmp_path: Path) -> None:
    released = threading.Event()

    class SlowBodies(FileBodies):
        def get(self, reference: str) -> bytes:
            assert released.wait(30), "the loop stands still"
            return super().get(reference)

    async def main() -> None:
        async with AsyncDynoQueue(
            DynoQueue(session, "/d", body_store=SlowBodies(tmp_path), body_bytes=1)
        ) as queue:
            await queue.push(Message(payload=b"large"))
            (one,) = await queue.pop(1, 30)
            reading = asyncio.create_task(one.payload())
            await asyncio.sleep(0.1)
            released.set()
            assert await reading == b"large"

    asyncio.run(main())


def test_what_a_block_raised_is_heard_although_its_message_cannot_be_released(
    session: Session,
) -> None:
    async def main() -> None:
        async with AsyncDynoQueue(DynoQueue(session, "/d")) as queue:
            await queue.push(Message(payload=b"1"))
            (one,) = await queue.pop(1, 30)
            with pytest.raises(ValueError):
                async with one:
                    assert await queue.run(lambda it: it.remove(one.id))
                    raise ValueError

    asyncio.run(main())
