"""A producer with a journal: what does not fit into memory, what is left at the close, what is
written ahead.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scripted_sink import Make, ScriptedSink, is_away, takes

from leaderq.errors import (
    BufferFull,
)
from leaderq.producing import (
    EVERY_ITEM,
    NO_SYNC,
    Block,
    BufferState,
    Journal,
    WhenFull,
)
from leaderq.producing.options import FullPolicy
from leaderq.testing import eventually


def test_what_does_not_fit_into_memory_is_journaled_and_sent_in_order(
    producer: Make, sink: ScriptedSink, tmp_path: Path
) -> None:
    sink.now(is_away)
    one = producer(journal=tmp_path, max_items=100)
    for number in range(3000):
        one.send(number)
    snapshot = one.snapshot()
    assert snapshot.state is BufferState.SPILLING
    assert snapshot.memory_items == 100
    assert snapshot.journal_only == 2900
    assert snapshot.balance.pending == 3000
    sink.now(takes)
    assert one.flush(30)
    assert sink.confirmed == list(range(3000))
    eventually(lambda: one.state is BufferState.DIRECT)
    one.send("direct again")
    assert one.flush(30)


@pytest.mark.parametrize("when_full", [WhenFull.RAISE, Block(0.0)])
def test_of_requests_in_the_journal_so_many_futures_are_kept_and_no_more(
    producer: Make, sink: ScriptedSink, tmp_path: Path, when_full: FullPolicy
) -> None:
    sink.now(is_away)
    one = producer(journal=tmp_path, max_items=1, max_waiters=2, when_full=when_full)
    kept = [one.submit(number) for number in range(3)]
    with pytest.raises(BufferFull):
        one.submit("more")
    one.send("without a future")
    sink.now(takes)
    assert one.flush(30)
    assert all(future.done() for future in kept)
    assert sink.confirmed == [0, 1, 2, "without a future"]


def test_what_is_left_at_the_close_is_sent_by_the_next_producer_in_order(
    producer: Make, sink: ScriptedSink, tmp_path: Path
) -> None:
    sink.now(is_away)
    first = producer(journal=tmp_path, max_items=100)
    for number in range(50):
        first.send(number)  # these are in memory only, until the close
    assert first.close(0.02).journaled
    assert first.snapshot().balance.pending == 50
    second = producer(journal=tmp_path, max_items=10)
    assert second.snapshot().balance.recovered == 50
    for number in range(50, 80):
        second.send(number)
    assert second.close(0.02).journaled
    sink.now(takes)
    third = producer(journal=tmp_path)
    assert third.flush(30).pending == 0
    assert sink.confirmed == list(range(80))
    balance = third.snapshot().balance
    assert (balance.accepted, balance.recovered, balance.confirmed) == (0, 80, 80)


# -- write-ahead


def test_what_send_has_returned_for_is_in_the_journal(
    producer: Make, sink: ScriptedSink, tmp_path: Path
) -> None:
    sink.shut()
    one = producer(journal=tmp_path, persistence=EVERY_ITEM)
    for number in range(20):
        one.send(number)
        assert one._spill is not None
        assert one._spill.journal.depth == number + 1


def test_on_durable_is_called_once_for_each_in_order(
    producer: Make, sink: ScriptedSink, tmp_path: Path
) -> None:
    told: list[tuple[int, BaseException | None]] = []
    one = producer(journal=tmp_path, persistence=EVERY_ITEM)
    for number in range(200):
        one.send(number, on_durable=lambda error, number=number: told.append((number, error)))
    eventually(lambda: len(told) == 200)
    assert told == [(number, None) for number in range(200)]


# -- the disk


def small(path: Path, **options: Any) -> Journal:
    return Journal(path, sync=NO_SYNC, max_bytes=64 << 10, segment_bytes=8 << 10, **options)


def fill(one: Any) -> int:
    """Send until it is refused; gives how many were taken."""
    number = 0
    while True:
        try:
            one.send((number, b"x" * 200))
        except BufferFull:
            return number
        number += 1


def test_when_the_journal_is_full_too_the_policy_decides(
    producer: Make, sink: ScriptedSink, tmp_path: Path
) -> None:
    sink.now(is_away)
    with small(tmp_path) as journal:
        one = producer(journal=journal, max_items=10, when_full=WhenFull.RAISE)
        taken = fill(one)
        assert 200 < taken < 400
        snapshot = one.snapshot()
        assert snapshot.state is BufferState.BLOCKED
        assert snapshot.journal_bytes <= 64 << 10
        assert snapshot.balance.refused == {"no room": 1}
        sink.now(takes)
        assert one.flush(30)
        eventually(lambda: one.send((taken, b"")))
        assert one.flush(30)
        assert [number for number, _ in sink.confirmed] == list(range(taken + 1))
        one.close()


# -- what lies in the journal


def test_records_spoilt_on_disk_are_counted_and_the_others_are_sent(
    producer: Make, sink: ScriptedSink, tmp_path: Path
) -> None:
    sink.now(is_away)
    first = producer(journal=tmp_path, max_items=1)
    for number in range(100):
        first.send((number, b"x" * 50))
    first.close(0.01)
    segment = next(path for path in tmp_path.iterdir() if b"x" * 50 in path.read_bytes())
    data = bytearray(segment.read_bytes())
    at = data.index(b"x" * 50, 2000)
    data[at] ^= 0xFF
    segment.write_bytes(data)
    sink.now(takes)
    second = producer(journal=tmp_path)
    assert second.flush(30).pending == 0
    sent = [number for number, _ in sink.confirmed]
    assert sent == sorted(sent)
    balance = second.snapshot().balance
    assert balance.pending == 0
    assert balance.confirmed + sum(balance.dropped.values()) == balance.recovered
    assert len(sent) == 99
