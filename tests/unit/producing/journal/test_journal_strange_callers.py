"""A journal called from where it cannot serve: the writer's own callbacks, and a forked child."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from faulty_disk import FaultyDisk, payloads

from leaderq.errors import ConfigurationError, JournalClosed, JournalSlow, WouldDeadlock
from leaderq.producing.journal import Journal
from leaderq.testing import eventually


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def test_a_callback_that_fails_stops_nothing_and_one_that_would_deadlock_is_told(place):
    faults: list[BaseException] = []
    with Journal(place) as journal:

        def waits(*_: Any) -> None:
            try:
                journal.append(b"from within")
            except WouldDeadlock as error:
                faults.append(error)
            journal.append_soon(b"in turn")
            raise RuntimeError("of the user")

        journal.append_soon(b"x", waits)
        eventually(lambda: journal.depth == 2)
        journal.flush()
        assert len(faults) == 1
        assert payloads(journal) == [b"x", b"in turn"]


def test_a_callback_that_closes_the_journal_is_told_and_the_journal_stays_open(place):
    told: list[BaseException] = []

    def closes(*_: Any) -> None:
        try:
            journal.close()
        except Exception as error:
            told.append(error)

    with Journal(place) as journal:
        journal.append_soon(b"x", closes)
        eventually(lambda: told)
        assert [type(error) for error in told] == [WouldDeadlock]
        assert "have another thread do that" in str(told[0])
        assert journal.append(b"y") == 2
        journal.append_soon(b"z", lambda *_: threading.Thread(target=closes).start())
        eventually(lambda: not journal._lock.is_held)
        assert len(told) == 1
    with Journal(place) as journal:
        assert payloads(journal) == [b"x", b"y", b"z"]


def test_a_callback_that_closes_the_journal_while_another_thread_does_keeps_nobody_waiting(place):
    disk, told = FaultyDisk(), []
    journal = Journal(place, disk=disk)

    def closes(*_: Any) -> None:
        try:
            journal.close()
        except Exception as error:
            told.append(type(error))

    disk.blocked.clear()
    journal.append_soon(b"x", closes)
    closer = threading.Thread(target=journal.close)
    closer.start()
    eventually(lambda: journal._closing.locked() and journal._closed)
    disk.blocked.set()
    closer.join(20)
    assert told == [WouldDeadlock]
    with Journal(place) as journal:
        assert payloads(journal) == [b"x"]


def test_a_read_that_a_close_overtakes_is_refused_and_opens_no_file(place, monkeypatch):
    journal = Journal(place)
    journal.append(b"x")
    asks = journal._refuse_if_closed

    def closed_then() -> None:
        asks()
        monkeypatch.undo()
        journal.close()  # as another thread does

    monkeypatch.setattr(journal, "_refuse_if_closed", closed_then)
    with pytest.raises(JournalClosed):
        journal.read()
    assert not list(open_files(place))


def open_files(place: Path) -> Iterator[str]:
    for one in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if (name := str(one.readlink())).startswith(str(place)):
                yield name


def test_a_forked_child_neither_writes_nor_keeps_the_lock(place):
    journal = Journal(place)
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        try:
            journal.append(b"from the child")
        except JournalClosed:
            os.write(writing, b"refused")
        journal.close()
        os._exit(0)
    assert os.read(reading, 100) == b"refused"
    os.waitpid(child, 0)
    assert journal.append(b"from the parent") == 1
    journal.close()
    with Journal(place) as again:
        assert payloads(again) == [b"from the parent"]
    os.close(reading), os.close(writing)


def test_a_child_forked_while_every_lock_was_held_is_refused_and_does_not_hang(place):
    with Journal(place, max_bytes=1 << 20) as journal:
        journal.append(b"from the parent")
        reading, writing = os.pipe()
        with journal._gate, journal._closing, journal._reader._reading:
            child = os.fork()
            if child == 0:
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(20)  # a child that hangs is killed
                try:
                    os.write(writing, in_a_forked_child(journal).encode())
                finally:
                    os._exit(0)
        os.close(writing)
        told = os.read(reading, 1000)
        assert os.waitpid(child, 0)[1] == 0, f"it hung after {told!r}"
        assert told == b"refused 8, (0, 1, 2, ()), closed"
        os.close(reading)
        assert journal.append(b"goes on") == 2


def in_a_forked_child(journal: Journal) -> str:
    refused = 0
    for use in (
        lambda: journal.append(b"x"),
        lambda: journal.append_many([b"x"]),
        lambda: journal.append_soon(b"x"),
        journal.flush,
        journal.read,
        lambda: journal.ack(1),
        lambda: journal.ack_many([1]),
        lambda: journal.ack_to(1),
    ):
        try:
            use()
        except JournalClosed:
            refused += 1
    looks = (journal.room_bytes, journal.depth, journal.next_id, journal.damages)
    journal.close()
    return f"refused {refused}, {looks}, closed"


@pytest.mark.parametrize("not_a_time", [-1.0, float("nan"), "soon", True])
def test_what_is_no_time_is_refused_by_all_that_take_one_and_nothing_is_stored(place, not_a_time):
    journal = Journal(place)
    for call in (
        partial(journal.append, b"x"),
        partial(journal.append_many, [b"x"]),
        partial(journal.append_soon, b"x"),
        journal.flush,
        journal.close,
    ):
        with pytest.raises(ConfigurationError, match="timeout_s"):
            call(timeout_s=not_a_time)
    assert journal.append(b"y", timeout_s=None) == 1  # it is open, and holds nothing
    journal.close(timeout_s=None)
    with pytest.raises(ConfigurationError, match="timeout_s"):
        journal.close(timeout_s=not_a_time)


def test_a_disk_that_is_too_slow_is_a_time_out_like_any_other(place):
    disk = FaultyDisk()
    with Journal(place, disk=disk) as journal:
        disk.blocked.clear()
        for call in (partial(journal.append, b"x"), journal.flush):
            with pytest.raises(TimeoutError) as raised:
                call(timeout_s=0.0)
            assert isinstance(raised.value, JournalSlow)
        disk.blocked.set()
