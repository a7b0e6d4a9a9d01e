"""Room: nobody is turned away while there is some, and whoever waits proceeds as soon as there
is.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from scripted_sink import Make, ScriptedSink, is_away, takes

from leaderq.errors import BufferFull
from leaderq.producing import (
    ALL_CONFIRMED,
    NO_SYNC,
    BatchOutcome,
    Block,
    BufferedProducer,
    BufferState,
    Journal,
    WhenFull,
)
from leaderq.producing.codec import PlainCodec
from leaderq.producing.options import FullPolicy
from leaderq.testing import eventually


class OneByOne:
    """A sink that confirms a record for each time that it is told to."""

    def __init__(self) -> None:
        self.may = threading.Semaphore(0)
        self.confirmed: list[Any] = []

    def send(self, batch: Sequence[Any], timeout_s: float) -> BatchOutcome:
        self.may.acquire()
        self.confirmed += batch
        return ALL_CONFIRMED

    def close(self, timeout_s: float) -> None:
        pass


@pytest.mark.parametrize("when_full", [WhenFull.RAISE, Block(0.0)])
def test_no_room_is_a_full_queue_like_any_other(
    producer: Make, sink: ScriptedSink, when_full: FullPolicy
) -> None:
    sink.now(is_away)
    one = producer(max_items=1, when_full=when_full)
    one.send("a")
    with pytest.raises(queue.Full) as raised:
        one.send("b")
    assert isinstance(raised.value, BufferFull)


@pytest.mark.parametrize("high", [0.5, 1.0])
def test_callers_wait_at_the_bound_and_proceed_one_for_one_in_their_order(
    producer: Make, high: float
) -> None:
    sink = OneByOne()
    one = producer(sink, max_items=100, batch_items=1, high=high, low=0.1, when_full=Block(None))
    for number in range(100):
        one.send(number, timeout_s=0.0)  # not one of them waits
    waiting: list[threading.Thread] = []
    for number in range(100, 105):
        waiting.append(threading.Thread(target=one.send, args=(number,), daemon=True))
        waiting[-1].start()
        eventually(lambda: len(one._buffer.awaiting_room) == len(waiting))
    for released in range(1, 6):
        sink.may.release()
        waiting[released - 1].join(30)
        assert not waiting[released - 1].is_alive()
        assert len(one._buffer.awaiting_room) == 5 - released
        assert one.snapshot().memory_items == 100
    for _ in range(200):
        sink.may.release()
    assert one.flush(30)
    assert sink.confirmed == list(range(105))


def test_nobody_overtakes_whoever_waits(producer: Make) -> None:
    sink = OneByOne()
    one = producer(sink, max_bytes=100, batch_items=1, when_full=Block(None))
    one.send(b"x" * 60)
    first = threading.Thread(target=one.send, args=(b"y" * 50,), daemon=True)
    first.start()
    eventually(lambda: one._buffer.awaiting_room)
    with pytest.raises(BufferFull):
        one.send(b"z" * 30, timeout_s=0.0)  # there is room for it, and not for the one before it
    for _ in range(9):
        sink.may.release()
    first.join(30)
    assert one.flush(30)
    assert sink.confirmed == [b"x" * 60, b"y" * 50]


def test_one_that_gives_up_waiting_lets_the_next_proceed(producer: Make) -> None:
    sink = OneByOne()
    one = producer(sink, max_items=10, max_bytes=100, batch_items=1, when_full=Block(None))
    one.send(b"x" * 60)
    raised: list[BaseException] = []

    def impatient() -> None:
        try:
            one.send(b"y" * 90, timeout_s=0.3)
        except BufferFull as exc:
            raised.append(exc)

    threads = [threading.Thread(target=impatient, daemon=True)]
    threads[0].start()
    eventually(lambda: one._buffer.awaiting_room)
    threads.append(threading.Thread(target=one.send, args=(b"z" * 30,), daemon=True))
    threads[1].start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert len(raised) == 1
    for _ in range(9):
        sink.may.release()
    assert one.flush(30)


def test_memory_is_bounded_by_default(sink: ScriptedSink) -> None:
    sink.shut()
    one = BufferedProducer(sink, when_full=WhenFull.RAISE)
    with pytest.raises(BufferFull):
        for number in range(1_000_000):
            one.send(number)
    assert one.snapshot().memory_items == 10_000
    sink.open.set()
    assert one.close()


def test_room_in_the_journal_is_told_and_not_looked_for(
    producer: Make, sink: ScriptedSink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leaderq.producing.admission._LOOK_S", 3600.0)
    sink.now(is_away)
    with Journal(tmp_path, sync=NO_SYNC, max_bytes=64 << 10, segment_bytes=8 << 10) as journal:
        one = producer(journal=journal, max_items=10, when_full=Block(None))
        with pytest.raises(BufferFull):
            for number in range(10_000):
                one.send((number, b"x" * 200), timeout_s=0.0)
        sender = threading.Thread(target=one.send, args=((number, b""),), daemon=True)
        sender.start()
        eventually(lambda: one._buffer.awaiting_room)
        sink.now(takes)
        sender.join(60)
        assert not sender.is_alive()
        assert one.flush(60)
        one.close()


class CountingCodec(PlainCodec):
    """Counts what is turned into bytes while the buffer is locked."""

    def __init__(self) -> None:
        self.count = 0

    def serialize(self, value: Any) -> bytes:
        self.count += 1
        return super().serialize(value)


@pytest.mark.parametrize("low", [0.5, 0.9])
def test_going_over_to_the_journal_holds_nobody_up_for_all_of_memory(
    producer: Make, sink: ScriptedSink, tmp_path: Path, low: float
) -> None:
    """Each call does its share: itself, and a few of those that were there before."""
    sink.now(is_away)
    codec = CountingCodec()
    one = producer(journal=tmp_path, max_items=5000, codec=codec, low=low)
    most = 0
    for number in range(7000):
        before = codec.count
        one.send({"number": number})
        most = max(most, codec.count - before)
    assert one.state is BufferState.SPILLING, one.snapshot()
    assert most <= 6
    assert one.snapshot().memory_items == 5000
    sink.now(takes)
    assert one.flush(60)
    assert sink.confirmed == [{"number": number} for number in range(7000)]


def test_memory_filled_at_a_blow_goes_over_in_pieces_while_others_have_the_lock(
    producer: Make, sink: ScriptedSink, tmp_path: Path
) -> None:
    class SlowCodec(PlainCodec):
        def serialize(self, value: Any) -> bytes:
            time.sleep(0.002)
            return super().serialize(value)

    sink.now(is_away)
    one = producer(
        journal=tmp_path, max_items=500, max_bytes=1000, codec=SlowCodec(), when_full=Block(60.0)
    )
    for number in range(60):
        one.send(number)
    large = threading.Thread(target=one.send, args=(b"x" * 900,), daemon=True)
    large.start()
    looks = 0
    while large.is_alive() and one.snapshot().balance.accepted == 60:
        looks += one.state is BufferState.SPILLING
    large.join(30)
    assert looks > 1  # others got in while it went on
    sink.now(takes)
    assert one.flush(60)
    assert sink.confirmed == [*range(60), b"x" * 900]
