"""Sending from ``asyncio``: whatever it waits for, the event loop goes on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from scripted_sink import Make, ScriptedSink, is_away
from slow_disk import SlowDisk

from leaderq.errors import BufferFull, JournalFailed, ProducerClosed, RequestsLost
from leaderq.producing import EVERY_ITEM, Block, BufferedProducer, Every, Journal

T = TypeVar("T")


async def beside(waiting: Awaitable[T], until: threading.Event | asyncio.Event) -> tuple[int, T]:
    """Await it, and count the turns of the loop until ``until`` is set at the 50th."""
    task = asyncio.ensure_future(waiting)
    turns = 0
    while not task.done():
        await asyncio.sleep(0.001)
        turns += 1
        if turns == 50:
            until.set()
    return turns, task.result()


def test_a_loop_goes_on_while_a_send_waits_for_room(producer: Make, sink: ScriptedSink) -> None:
    sink.shut()
    one = producer(max_items=1, when_full=Block(None), sink_timeout_s=60.0)
    one.send("a")
    turns, taken = asyncio.run(beside(one.asend("b"), sink.open))
    assert (turns >= 50, taken) == (True, True)
    assert one.flush(30)
    assert sink.confirmed == ["a", "b"]


@pytest.mark.parametrize("policy", [EVERY_ITEM, Every(1), Every(2)])
def test_a_loop_goes_on_while_a_send_waits_for_the_disk(
    producer: Make, sink: ScriptedSink, tmp_path: Path, policy: Any
) -> None:
    disk = SlowDisk()
    with Journal(tmp_path, sync=policy, disk=disk) as journal:
        one = producer(journal=journal, persistence=policy)
        disk.goes_on.clear()

        async def two() -> None:
            await asyncio.gather(one.asend("a"), one.asend("b"))

        turns, _ = asyncio.run(beside(two(), disk.goes_on))
        assert turns >= 50
        assert one.flush(30).confirmed == 2
        one.close()


def test_a_loop_goes_on_while_a_flush_and_a_close_wait(producer: Make, sink: ScriptedSink) -> None:
    sink.shut()
    one = producer(sink_timeout_s=60.0)
    one.send("a")
    turns, settlement = asyncio.run(beside(one.aflush(60.0), sink.open))
    assert turns >= 50
    assert settlement
    sink.shut()
    one.send("b")
    turns, settlement = asyncio.run(beside(one.aclose(60.0), sink.open))
    assert turns >= 50
    assert settlement.confirmed == 2


def test_tasks_and_threads_wait_in_one_line(producer: Make, sink: ScriptedSink) -> None:
    sink.shut()
    one = producer(max_items=1, batch_items=1, when_full=Block(None), sink_timeout_s=60.0)
    one.send(0)

    async def main() -> None:
        tasks = []
        for number in (1, 2, 3):
            tasks.append(asyncio.ensure_future(one.asend(number)))
            while len(one._buffer.awaiting_room) < number:
                await asyncio.sleep(0.001)
        sink.open.set()
        await asyncio.gather(*tasks)

    asyncio.run(main())
    assert one.flush(30)
    assert sink.confirmed == [0, 1, 2, 3]


def test_cancelled_while_it_waits_for_room_nothing_was_taken(
    producer: Make, sink: ScriptedSink
) -> None:
    sink.shut()
    one = producer(max_items=1, when_full=Block(None), sink_timeout_s=60.0)
    one.send("a")

    async def main() -> None:
        task = asyncio.ensure_future(one.asend("b"))
        while not one._buffer.awaiting_room:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert not one._buffer.awaiting_room
    sink.open.set()
    one.send("c", timeout_s=60.0)
    assert one.flush(30)
    assert sink.confirmed == ["a", "c"]


def test_what_a_send_raises_an_asend_raises(producer: Make, sink: ScriptedSink) -> None:
    sink.now(is_away)
    one = producer(max_items=1, when_full=Block(0.01))
    one.send("a")

    async def main() -> None:
        with pytest.raises(BufferFull):
            await one.asend("b")
        with pytest.raises(BufferFull):
            await one.asend("b", timeout_s=0.0)

    asyncio.run(main())
    one.close(0.01)
    with pytest.raises(ProducerClosed):
        asyncio.run(one.asend("c"))


def test_a_disk_that_refuses_raises_in_the_task(producer: Make, tmp_path: Path) -> None:
    class Refuses(SlowDisk):
        refuses = False

        def sync(self, fd: int) -> None:
            if self.refuses:
                raise OSError(5, "Input/output error")
            super().sync(fd)

    disk = Refuses()
    journal = Journal(tmp_path, disk=disk)
    one = producer(journal=journal, persistence=EVERY_ITEM)
    disk.refuses = True
    with pytest.raises(JournalFailed):
        asyncio.run(one.asend("a"))
    disk.refuses = False
    one.close()
    journal.close()


def test_async_with_closes_and_tells_of_losses(sink: ScriptedSink) -> None:
    async def block(**options: Any) -> None:
        async with BufferedProducer(sink, linger_s=0.0, **options) as one:
            assert await one.asend("a")

    asyncio.run(block())
    assert sink.confirmed == ["a"]
    sink.now(is_away)
    with pytest.raises(RequestsLost):
        asyncio.run(block(close_timeout_s=0.01))
