"""The disk is full, gives errors, takes less than it was given, or cannot sync: the caller is told,
nothing accepted is lost, and the next record is taken as soon as the disk takes it.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from faulty_disk import FaultyDisk, crash, failing, io_error, no_space, payloads, segments

from leaderq.errors import JournalFailed, JournalFull
from leaderq.producing.journal import EVERY_ITEM, NO_SYNC, Every, Interval, Journal
from leaderq.testing import eventually

POLICIES = [EVERY_ITEM, Every(10), Interval(600), NO_SYNC]
# else one might meet the fault in place of the record
pytestmark = pytest.mark.usefixtures("chores_when_kicked")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


def reopened(place: Path) -> list[bytes]:
    with Journal(place) as journal:
        assert not journal.report.damages
        return payloads(journal)


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
@pytest.mark.parametrize("room", [0, 1, 27, 28, 60])
def test_a_full_disk_refuses_one_record_and_takes_the_next_when_there_is_room(
    place, disk, policy, room
):
    with Journal(place, disk=disk, sync=policy) as journal:
        journal.append(b"before")
        disk.room = room
        with pytest.raises(JournalFull, match="no space is left"):
            journal.append(b"x" * 100)
        assert payloads(journal) == [b"before"]
        disk.room = None
        assert journal.append(b"after") == 2
        assert payloads(journal) == [b"before", b"after"]
        assert journal.counters.failed_writes == 1
        crash(journal)
    assert reopened(place) == [b"before", b"after"]


def test_a_segment_that_cannot_be_begun_refuses_the_record_only(place, disk):
    with Journal(place, disk=disk, segment_bytes=4096) as journal:
        stored = [journal.append(b"x" * 1000) for _ in range(3)]
        disk.fail["create"] = failing(no_space, times=3)
        for _ in range(3):
            with pytest.raises(JournalFull):
                journal.append(b"y" * 1000)
        assert journal.append(b"z" * 1000) == stored[-1] + 1
    assert reopened(place) == [b"x" * 1000] * 3 + [b"z" * 1000]


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_what_a_failed_write_left_behind_is_never_written_after(place, disk, policy):
    """Neither the write nor the cutting back works: the file is left alone, and the next record
    goes to a new one.
    """
    with Journal(place, disk=disk, sync=policy) as journal:
        journal.append(b"before")
        disk.room = 30
        disk.fail["truncate"] = failing(io_error)
        with pytest.raises(JournalFull):
            journal.append(b"x" * 100)
        disk.room = None
        assert journal.append(b"after") == 2
        assert len(segments(place)) == 2
        assert payloads(journal) == [b"before", b"after"]
        crash(journal)
    assert reopened(place) == [b"before", b"after"]


def test_a_failed_sync_refuses_the_record_and_that_file_is_never_synced_again(place, disk):
    with Journal(place, disk=disk) as journal:
        journal.append(b"before")
        old: list[int] = []
        disk.fail["sync"] = failing(io_error, only=lambda fd: not old.append(fd))
        with pytest.raises(JournalFailed, match="nothing was stored") as caught:
            journal.append(b"lost")
        assert isinstance(caught.value.__cause__, OSError)
        synced: list[int] = []
        disk.fail["sync"] = synced.append
        assert journal.append(b"after") == 2
        assert journal.append(b"later") == 3
        assert len(segments(place)) == 2
        assert payloads(journal) == [b"before", b"after", b"later"]
        assert journal.counters.failed_syncs == 1
    assert reopened(place) == [b"before", b"after", b"later"]


def test_a_failed_sync_of_the_first_record_leaves_a_journal_that_works(place, disk):
    with Journal(place, disk=disk) as journal:
        disk.fail["sync"] = failing(io_error)
        with pytest.raises(JournalFailed):
            journal.append(b"lost")
        disk.fail["create"] = failing(no_space)
        with pytest.raises(JournalFull):
            journal.append(b"lost")
        assert journal.append(b"after") == 1
    assert reopened(place) == [b"after"]


@pytest.mark.parametrize("policy", [Every(3), Interval(0.01)], ids=repr)
def test_records_accepted_before_a_sync_that_fails_stay_readable_and_flush_says_so(
    place, disk, policy
):
    with Journal(place, disk=disk, sync=policy) as journal:
        inode = segments(place)[0].stat().st_ino

        def fail(fd: int) -> None:
            import os

            if os.fstat(fd).st_ino == inode:
                raise io_error()

        disk.fail["sync"] = fail
        accepted = []
        for number in range(6):
            try:
                journal.append(b"%d" % number)
                accepted.append(b"%d" % number)
            except JournalFailed:
                continue
        eventually(lambda: journal.counters.failed_syncs == 1)
        assert journal.counters.exposed > 0
        assert payloads(journal) == accepted
        with pytest.raises(JournalFailed, match="may not outlast a power cut"):
            journal.flush()
        journal.flush()
        journal.append(b"after")
    assert reopened(place) == [*accepted, b"after"]


@pytest.mark.parametrize("error", [io_error, no_space])
@pytest.mark.parametrize("records", [1, 3])  # of which two fill a segment
def test_a_flush_whose_sync_fails_does_not_say_that_nothing_was_stored(place, disk, error, records):
    with Journal(place, disk=disk, sync=NO_SYNC, segment_bytes=4096) as journal:
        for _ in range(records):
            journal.append(bytes(2000))
        disk.fail["sync"] = failing(error)
        with pytest.raises(JournalFailed, match="may not outlast a power cut"):
            journal.flush()
        journal.flush()
        assert (len(payloads(journal)), journal.counters.failed_syncs) == (records, 1)


def test_a_journal_opens_and_can_be_read_and_drained_on_a_full_disk(place):
    with Journal(place, segment_bytes=4096) as journal:
        for _ in range(12):
            journal.append(b"x" * 1000)
        crash(journal)
    disk = FaultyDisk()
    disk.room = 0
    with Journal(place, segment_bytes=4096, disk=disk) as journal:
        assert len(payloads(journal)) == 12
        with pytest.raises(JournalFull):
            journal.append(b"y")
        journal.ack_to(6)
        eventually(lambda: journal.counters.deleted == 2)
        disk.room = None
        assert journal.append(b"y") == 13
    assert reopened(place) == [b"x" * 1000] * 6 + [b"y"]


def test_a_cursor_that_cannot_be_saved_costs_acknowledgements_only(place, disk):
    with Journal(place, disk=disk) as journal:
        journal.append_many([b"1", b"2", b"3"])
        journal.flush()
        journal.ack(1)
        disk.fail["write"] = failing(io_error, times=1000)
        with pytest.raises(JournalFailed, match="could not be saved"):
            journal.flush()
        assert journal.counters.failed_cursor_saves == 1
        assert payloads(journal) == [b"2", b"3"]
        crash(journal)
    assert reopened(place) == [b"1", b"2", b"3"]


SMALL = [b"%0200d" % number for number in range(200)]


def test_zeros_are_allotted_to_a_journal_of_many_small_records_and_taken_back(place, disk):
    with Journal(place, disk=disk) as journal:
        for payload in SMALL:
            journal.append(payload)
        assert segments(place)[0].stat().st_size > 1 << 20
        assert journal.bytes_used < 50_000
        assert payloads(journal) == SMALL
        crash(journal)
    again = Journal(place, disk=disk)
    assert (again.report.torn_bytes, again.report.damages) == (0, ())
    assert payloads(again) == SMALL
    again.close()
    assert segments(place)[0].stat().st_size == again.report.bytes_used


def test_a_record_torn_within_allotted_zeros_is_cut_off(place, disk):
    with Journal(place, disk=disk) as journal:
        for payload in SMALL:
            journal.append(payload)
        used = journal.bytes_used
        crash(journal)
    path = segments(place)[0]
    copy = path.read_bytes()
    torn = bytearray(copy)
    torn[used : used + 100] = copy[used - 228 : used - 128]
    path.write_bytes(torn)
    with Journal(place) as journal:
        assert 28 < journal.report.torn_bytes <= 100
        assert not journal.damages
        assert payloads(journal) == SMALL
