"""Sending from ``asyncio``: whatever it waits for, the event loop goes on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable
from typing import Any, TypeVar

import pytest
from scripted_sink import Make, ScriptedSink, is_away

from leaderq.errors import RequestsLost
from leaderq.producing import Block, BufferedProducer

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


def test_async_with_closes_and_tells_of_losses(sink: ScriptedSink) -> None:
    async def block(**options: Any) -> None:
        async with BufferedProducer(sink, linger_s=0.0, **options) as one:
            assert await one.asend("a")

    asyncio.run(block())
    assert sink.confirmed == ["a"]
    sink.now(is_away)
    with pytest.raises(RequestsLost):
        asyncio.run(block(close_timeout_s=0.01))
