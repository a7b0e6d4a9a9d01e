"""A journal in use: records in and out, in order; durable as the policy says; limits kept."""

from __future__ import annotations

import os
import threading
from collections import deque
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from faulty_disk import payloads, reopened, segments
from forks import in_child

from leaderq import errors
from leaderq.base import clock
from leaderq.errors import ConfigurationError, JournalClosed, JournalFull, JournalLocked
from leaderq.producing.journal import NO_SYNC, Every, Interval, Journal
from leaderq.producing.journal.line import Committer
from leaderq.testing import eventually


def test_what_comes_while_the_disk_is_busy_is_written_and_forced_out_together(place, disk):
    with Journal(place, disk=disk) as journal:
        disk.blocked.clear()
        journal.append_soon(b"first")
        eventually(lambda: disk.waiting)
        for _ in range(100):
            journal.append_soon(b"x")
        disk.blocked.set()
        journal.flush()
        assert journal.counters.batches == journal.counters.fsyncs == 2


class EmptiedMeanwhile(deque[Any]):
    """A line that looks as if something were in it until that is taken: it was written."""

    def __len__(self) -> int:
        return 1


def test_the_next_id_can_be_asked_for_while_the_last_record_leaves_the_line(place):
    with Journal(place) as journal:
        journal.append(b"x")
        line = SimpleNamespace(batches=EmptiedMeanwhile(), index=journal._index)
        assert Committer.next_id.fget(line) == journal.next_id == 2  # type: ignore[attr-defined]


def test_every_n_is_synced_once_in_n_and_at_a_flush(place):
    with Journal(place, sync=Every(10)) as journal:
        for _ in range(95):
            journal.append(b"x")
        assert journal.counters.fsyncs == 9
        journal.flush()
        assert journal.counters.fsyncs == 10


def test_a_journal_is_open_once_and_says_where(place):
    with Journal(place), pytest.raises(JournalLocked, match=f"open in process {os.getpid()}"):
        Journal(place)


def test_what_cannot_be_stored_is_refused_and_a_closed_journal_refuses_everything(place):
    journal = Journal(place, segment_bytes=4096)
    for use in (
        journal.append,
        journal.append_soon,
        lambda data: journal.append_many([data[:1000]] * 5),
    ):
        with pytest.raises(errors.JournalRecordTooLarge) as caught:
            use(b"x" * 4097)
        assert caught.value.limit == 4096
    assert journal.append(b"y" * 3900) == 1
    with pytest.raises(ValueError, match="no record has had id 2 yet"):
        journal.ack_many([1, 2])
    assert journal.depth == 1
    journal.close()
    journal.close()
    uses = partial(journal.append, b""), partial(journal.append_soon, b""), journal.read
    for use in (*uses, journal.flush, partial(journal.ack, 1), partial(journal.append_many, [])):
        with pytest.raises(JournalClosed):
            use()
    assert journal.room_bytes == 0


@pytest.mark.parametrize("path", ["", "a\0b", 5, None, b"journal"])
def test_what_is_no_path_is_refused(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match=r"directory=.*: give the path"):
        Journal(path)
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_kept_is_refused_all_at_once(place):
    for limits in (
        {"segment_bytes": 4095, "max_bytes": 16383, "reserve_bytes": -1},
        {"segment_bytes": (1 << 30) + 1, "sync": Every},
        {"sync": None},
    ):
        with pytest.raises(ConfigurationError) as refused:
            Journal(place, **limits)
        assert len(refused.value.problems) == len(limits)
        assert all(name in str(refused.value) for name in limits)


def test_the_cap_holds_and_room_comes_back_with_acknowledgements(place):
    cap = 64 * 1024
    with Journal(place, max_bytes=cap) as journal:
        stored = []
        with pytest.raises(JournalFull, match="acknowledge what is done with, or raise max_bytes"):
            while True:
                stored.append(journal.append(b"x" * 500))
        assert sum(path.stat().st_size for path in segments(place)) == journal.bytes_used <= cap
        assert len(stored) * 528 > cap * 0.9
        assert journal.room_bytes < 600
        journal.ack_many(stored[: len(stored) // 2])
        eventually(lambda: journal.room_bytes > cap / 4)
        assert journal.append(b"y" * 500) == stored[-1] + 1


def test_the_cap_counts_each_segment_that_what_waits_may_need(place, disk):
    goes_on = threading.Event()
    with Journal(place, disk=disk, max_bytes=1 << 20, segment_bytes=4096, sync=NO_SYNC) as journal:
        disk.fail["write"] = lambda *_: goes_on.wait(30)
        with pytest.raises(JournalFull):
            while True:
                journal.append_soon(b"x" * 500)
        goes_on.set()
        journal.flush()
        assert sum(path.stat().st_size for path in segments(place)) <= 1 << 20


def test_what_is_on_its_way_to_the_disk_is_acknowledged_up_to_an_id(place, disk):
    with Journal(place, disk=disk) as journal:
        journal.append(b"1")
        disk.blocked.clear()
        for payload in (b"2", b"3"):
            journal.append_soon(payload)
        assert journal.ack_to(2) == 2
        disk.blocked.set()
        journal.flush()
        assert payloads(journal) == [b"3"]
        assert journal.ack_to(99) == 1


@pytest.mark.parametrize("ttl_s", [float("inf"), float("nan"), -1, 1e15, "5"])
def test_a_time_to_live_that_is_none_is_refused(place, ttl_s):
    with Journal(place) as journal:
        for use in (journal.append, journal.append_soon):
            with pytest.raises(ConfigurationError, match="ttl_s="):
                use(b"x", ttl_s=ttl_s)


def test_no_instant_keeps_the_head_of_the_line_from_the_disk(place, monkeypatch):
    """Whatever the clock says, and however long ago a producer's request has expired."""
    monkeypatch.setattr(clock, "calendar_s", lambda: -5.0)
    with Journal(place) as journal:
        for ttl_s in (None, -1e12, 1e15):
            journal.accept(b"x", None, ttl_s=ttl_s, timeout_s=0)
        journal.flush()
        assert [one.expires_at for one in journal.read()] == [None, 0, 2**63 / 1e6]


def test_a_record_says_when_it_expires_and_its_reader_decides(place, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(clock, "calendar_s", lambda: now[0])
    with Journal(place) as journal:
        journal.append(b"short", ttl_s=5)
        journal.append_soon(b"long", ttl_s=600)
        journal.append_many([b"many"] * 2, ttl_s=7)
        journal.flush()
        now[0] = 1061.0
        assert [one.expires_at for one in journal.read()] == [1005, 1600, 1007, 1007]


def test_chores_and_interval_syncs_are_done_although_there_is_always_something_to_write(place):
    done = threading.Event()
    with Journal(place, sync=Interval(0.01), segment_bytes=65536) as journal:

        def produce() -> None:
            while not done.is_set():
                journal.append_soon(b"x" * 1000)

        producer = threading.Thread(target=produce)
        producer.start()
        eventually(
            lambda: journal.ack_to(journal.next_id - 1) >= 0 and journal.counters.deleted > 3
        )
        eventually(lambda: journal.counters.fsyncs > 3)
        done.set()
        producer.join()


def test_a_callback_that_fails_stops_nothing_and_one_that_would_deadlock_is_told(place):
    told: list[BaseException] = []
    with Journal(place) as journal:

        def waits(*_: Any) -> None:
            for use in (lambda: journal.append(b"from within"), journal.flush, journal.close):
                try:
                    use()
                except errors.WouldDeadlock as error:
                    told.append(error)
            journal.append_soon(b"in turn")
            raise RuntimeError("of the user")

        journal.append_soon(b"x", waits)
        eventually(lambda: journal.depth == 2)
        assert [type(error) for error in told] == [errors.WouldDeadlock] * 3
        assert "have another thread do that" in str(told[0])
        closing = threading.Thread(target=journal.close)
        journal.append_soon(b"last", lambda *_: closing.start())
        eventually(lambda: not journal._lock.is_held)
        closing.join()
    assert reopened(place) == [b"x", b"in turn", b"last"]


def test_a_forked_child_neither_writes_nor_keeps_the_lock(place):
    journal = Journal(place)

    def refused() -> None:
        with pytest.raises(JournalClosed):
            journal.append(b"from the child")
        journal.close()

    in_child(refused)
    assert journal.append(b"from the parent") == 1
    journal.close()
    assert reopened(place) == [b"from the parent"]


def test_a_journal_stays_where_it_is_though_its_process_changes_its_directory(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with Journal("relative", segment_bytes=4096) as journal:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        ids = [journal.append(b"x" * 1000) for _ in range(10)]
    with Journal(tmp_path / "relative", segment_bytes=4096) as journal:
        assert [record.id for record in journal.read()] == ids
