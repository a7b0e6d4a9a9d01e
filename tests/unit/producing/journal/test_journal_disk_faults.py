"""The disk is full, gives errors, takes less than it was given, or cannot sync: the caller is told,
nothing accepted is lost, and what waits is written as soon as the disk takes it.
"""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
from functools import partial

import pytest
from faulty_disk import crash, failing, io_error, is_segment, no_space, payloads, reopened, segments

from leaderq.errors import JournalFailed, JournalFull, JournalLocked, JournalSlow
from leaderq.producing.journal import EVERY_ITEM, NO_SYNC, Every, Interval, Journal, line
from leaderq.producing.journal.disk import DirectoryLock
from leaderq.producing.journal.segments import Segment
from leaderq.testing import eventually

POLICIES = [EVERY_ITEM, Every(10), Interval(600), NO_SYNC]
# else one might meet the fault in place of the record
pytestmark = pytest.mark.usefixtures("chores_when_kicked")


@contextmanager
def full(disk, room):
    """With room for so many bytes. What fails meanwhile is not hidden by a close that fails too."""
    disk.room = room
    try:
        yield
    finally:
        disk.room = None


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
@pytest.mark.parametrize("room", [0, 60])
def test_a_full_disk_keeps_the_head_of_the_line_and_lets_nobody_in_behind_it(
    place, disk, policy, room, caplog
):
    with Journal(place, disk=disk, sync=policy) as journal:
        journal.append(b"before")
        with full(disk, room):
            with pytest.raises(JournalSlow, match=r"was accepted.* no space is left"):
                journal.append(b"x" * 100)
            with pytest.raises(JournalFull, match=r"no space is left.*nothing was stored"):
                journal.append(b"refused")
            assert journal.trouble is not None
            assert payloads(journal) == [b"before", b"x" * 100], "from memory, while it waits"
            assert journal.room_bytes == 0
            eventually(lambda: journal.counters.failed_writes > 1)
        eventually(lambda: journal.trouble is None)
        assert journal.append(b"after") == 3
        assert payloads(journal) == [b"before", b"x" * 100, b"after"]
        crash(journal)
    assert reopened(place) == [b"before", b"x" * 100, b"after"]
    said = [one.getMessage() for one in caplog.records if "journal takes" in one.getMessage()]
    assert [line[:20] for line in said] == ["journal takes nothin"]


def test_what_is_acknowledged_is_freed_on_a_disk_that_is_full_to_the_last_byte(place, disk):
    """No file can be made before another one is gone."""
    with Journal(place, disk=disk, sync=NO_SYNC) as journal:
        for _ in range(20):
            journal.append(b"x" * 1000)
        disk.room = 0
        with pytest.raises(JournalSlow):
            journal.append(b"y" * 1000)
        journal.ack_to(20)
        eventually(lambda: journal.trouble is None)
        assert payloads(journal) == [b"y" * 1000]
        assert [path.name[:20] for path in segments(place)] == ["00000000000000000021"]
        crash(journal)
    assert reopened(place) == [b"y" * 1000]


def test_what_a_failed_write_left_behind_is_never_written_after(place, disk):
    """Nor can it be cut back: the file is left alone, and the record goes to a new one."""
    with Journal(place, disk=disk) as journal:
        journal.append(b"before")
        disk.room = 30
        disk.fail["truncate"] = failing(io_error)
        with pytest.raises(JournalSlow):
            journal.append(b"x" * 100)
        disk.room = None
        eventually(lambda: journal.trouble is None)
        assert len(segments(place)) == 2
        assert payloads(journal) == [b"before", b"x" * 100]
        crash(journal)
    assert reopened(place) == [b"before", b"x" * 100]


def test_a_file_whose_sync_failed_is_never_synced_again(place, disk):
    with Journal(place, disk=disk) as journal:
        journal.append(b"before")
        disk.fail["sync"] = failing(io_error)
        with pytest.raises(JournalSlow, match="Input/output error") as caught:
            journal.append(b"late")
        assert isinstance(caught.value.__cause__, JournalFailed)
        eventually(lambda: journal.trouble is None)
        synced: list[int] = []
        disk.fail["sync"] = synced.append
        assert journal.append(b"later") == 3
        assert len(segments(place)) == 2
        assert payloads(journal) == [b"before", b"late", b"later"]
        assert journal.counters.failed_syncs == 1
    assert reopened(place) == [b"before", b"late", b"later"]


def test_a_journal_closed_while_the_disk_takes_nothing_says_what_is_lost(place, disk, caplog):
    told: list[BaseException | None] = []
    journal = Journal(place, disk=disk)
    journal.append(b"before")
    disk.room = 0
    journal.append_soon(b"lost", lambda _, error: told.append(error))
    eventually(lambda: journal.trouble is not None)
    with pytest.raises(JournalFull):
        journal.close()
    assert isinstance(told[0], JournalFull)
    assert "records not written count=1" in caplog.text
    assert reopened(place) == [b"before"]


def test_a_journal_is_closed_though_a_callback_ends_the_program_or_closes_it(place, disk):
    journal = Journal(place, disk=disk)
    disk.room = 0
    for end in (sys.exit, journal.close, sys.exit):
        journal.append_soon(b"lost", lambda *_, end=end: end())
    eventually(lambda: journal.trouble is not None)
    with pytest.raises(JournalFull):
        journal.close()
    assert reopened(place) == []


def test_who_waits_for_room_is_told_when_the_disk_takes_nothing(place, disk, monkeypatch):
    monkeypatch.setattr(line, "WAITING_BYTES", 1000)
    told: list[BaseException] = []

    def wait() -> None:
        try:
            journal.append_soon(b"late", timeout_s=None)
        except JournalFull as error:
            told.append(error)

    with Journal(place, disk=disk) as journal:
        disk.blocked.clear()
        journal.append_soon(b"first")
        eventually(lambda: disk.waiting)
        journal.append_soon(b"x" * 1000)
        waiting = threading.Thread(target=wait)
        waiting.start()
        eventually(lambda: journal._committer.room._waiters)
        with full(disk, 0):
            disk.blocked.set()
            eventually(lambda: told)
        waiting.join()


def test_a_cursor_saved_while_records_are_written_keeps_none_from_being_read(
    place, disk, monkeypatch
):
    """It has records and bytes of one moment: after a kill, reading begins behind these bytes."""
    journal = Journal(place, disk=disk)
    is_written, goes_on = threading.Event(), threading.Event()

    def wait(fd: int) -> None:
        if is_segment(place, fd):
            is_written.set()
            goes_on.wait(30)

    def records(segment: Segment) -> int:
        found = segment.extent[0]
        if threading.current_thread() is threading.main_thread():
            goes_on.set()
            eventually(lambda: segment.extent[0])
        return found

    disk.fail["sync"] = wait
    journal.append_soon(b"x")
    assert is_written.wait(30)
    with monkeypatch.context() as patch:
        patch.setattr(Segment, "records", property(records))
        journal._index.save()
    goes_on.set()
    crash(journal)
    assert reopened(place) == [b"x"]


def test_a_journal_on_a_full_disk_is_locked_though_its_process_cannot_be_named(place, monkeypatch):
    Journal(place).close()
    with monkeypatch.context() as patch:
        patch.setattr("os.pwrite", failing(no_space))
        lock = DirectoryLock(place)
    with pytest.raises(JournalLocked):
        DirectoryLock(place)
    lock.release()


def test_records_accepted_before_a_sync_that_fails_stay_readable_and_flush_says_so(place, disk):
    with Journal(place, disk=disk, sync=NO_SYNC) as journal:
        journal.append(b"before")
        disk.fail["sync"] = failing(io_error, only=partial(is_segment, place))
        with pytest.raises(JournalFailed, match="may not outlast a power cut"):
            journal.flush()
        assert (journal.counters.exposed, journal.counters.failed_syncs) == (1, 1)
        assert payloads(journal) == [b"before"]
        journal.flush()
        journal.append(b"after")
    assert reopened(place) == [b"before", b"after"]


def test_a_journal_opens_and_can_be_read_and_drained_on_a_full_disk(place, disk):
    with Journal(place, segment_bytes=4096) as journal:
        for _ in range(12):
            journal.append(b"x" * 1000)
        crash(journal)
    disk.room = 0
    with Journal(place, segment_bytes=4096, disk=disk) as journal:
        assert len(payloads(journal)) == 12
        with pytest.raises(JournalSlow):
            journal.append(b"y")
        journal.ack_to(6)
        eventually(lambda: journal.counters.deleted == 2)
        disk.room = None
        eventually(lambda: journal.trouble is None)
        assert journal.append(b"z") == 14
    assert reopened(place) == [b"x" * 1000] * 6 + [b"y", b"z"]


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
