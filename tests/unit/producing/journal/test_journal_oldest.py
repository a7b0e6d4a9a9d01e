"""The age of the oldest record: found without changing anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from faulty_disk import FaultyDisk, at_record, flip, segments

from leaderq.producing.journal import Journal


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def test_looking_at_the_age_of_the_oldest_expires_nothing_and_calls_nobody(place):
    now: list[float] = [1000.0]
    gone: list[Any] = []
    with Journal(place, clock=lambda: now[0], on_expired=gone.append) as journal:
        assert journal.oldest_age_s is None
        journal.append(b"old", ttl_s=5)
        now[0] = 1003.0
        journal.append(b"young")
        now[0] = 1010.0
        assert (journal.oldest_age_s, journal.depth, gone, journal.counters.expired) == (10.0, 2, [], 0)
        assert [entry.payload for entry in journal.read()] == [b"young"]
        assert (journal.oldest_age_s, journal.depth, len(gone), journal.counters.expired) == (7.0, 1, 1, 1)
        journal.ack(2)
        assert journal.oldest_age_s is None


def test_the_age_of_the_oldest_is_found_wherever_it_lies_and_reading_goes_on_where_it_stood(place):
    now, disk = [1000.0], FaultyDisk()
    with Journal(place, segment_bytes=4096, clock=lambda: now[0], disk=disk) as journal:
        for _ in range(100):
            now[0] += 1.0
            journal.append(b"x" * 500)
        journal.ack_many(range(1, 38))
        assert journal.oldest_age_s == 62.0
        stood = [entry.id for entry in journal.read(80, max_items=2)]
        place_before = journal._reader._place
        journal.ack_many(range(40, 80))
        assert journal.oldest_age_s == 62.0
        journal.ack_many([38, 39])
        assert journal.oldest_age_s == 20.0
        assert journal._reader._place is place_before
        disk.calls.clear()
        assert [entry.id for entry in journal.read(stood[-1], max_items=2)] == [83, 84]
        assert "read" not in disk.calls


def test_the_age_of_the_oldest_passes_what_is_spoilt_and_leaves_the_telling_to_who_reads(place):
    now = [1000.0]
    with Journal(place, segment_bytes=4096, clock=lambda: now[0]) as journal:
        for _ in range(10):
            now[0] += 1.0
            journal.append(b"x" * 1000)
        first, second = segments(place)[:2]
        flip(first, at_record(0, 1000) + 40)
        second.unlink()
        assert (journal.oldest_age_s, journal.damages, journal.depth) == (8.0, (), 10)
        journal.ack_to(3)
        assert (journal.oldest_age_s, journal.damages, journal.depth) == (3.0, (), 7)
