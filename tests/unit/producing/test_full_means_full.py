"""Room: nobody is turned away while there is some, and whoever waits proceeds as soon as there
is.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from scripted_sink import Make, ScriptedSink, is_away, takes

from leaderq.errors import BufferFull
from leaderq.producing import (
    ALL_CONFIRMED,
    BatchOutcome,
    Block,
    BufferedProducer,
    WhenFull,
)
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


def test_memory_is_bounded_by_default(sink: ScriptedSink) -> None:
    sink.shut()
    one = BufferedProducer(sink, when_full=WhenFull.RAISE)
    with pytest.raises(BufferFull):
        for number in range(1_000_000):
            one.send(number)
    assert one.snapshot().memory_items == 10_000
    sink.open.set()
    assert one.close()


def test_only_so_many_futures_wait_for_requests_in_the_journal(
    producer: Make, sink: ScriptedSink, tmp_path: Path
) -> None:
    sink.now(is_away)
    one = producer(journal=tmp_path, max_items=1, max_waiters=2, when_full=WhenFull.RAISE)
    one.send("in memory")
    futures = [one.submit(number) for number in range(2)]
    with pytest.raises(BufferFull, match=r"2 futures wait .* \(max_waiters\)"):
        one.submit(2)
    assert one.send("without a future")
    assert one.snapshot().balance.refused == {"too many futures": 1}
    sink.now(takes)
    assert [future.result(30) for future in futures] == [None, None]
