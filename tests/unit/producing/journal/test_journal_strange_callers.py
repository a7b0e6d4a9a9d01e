"""A journal called from where it cannot serve: the writer's own callbacks, and a forked child."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest
from faulty_disk import payloads

from leaderq.errors import JournalClosed, WouldDeadlock
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
