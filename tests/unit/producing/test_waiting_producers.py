"""Those who wait, for room or for the journal's disk: they leave nothing behind, and go on."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from scripted_sink import Make, ScriptedSink, is_away
from slow_disk import SlowDisk

from leaderq.errors import BufferFull
from leaderq.producing import NO_SYNC, Block, Journal
from leaderq.producing.journal import journal as journal_module
from leaderq.producing.journal import store
from leaderq.testing import eventually


def test_whoever_waits_in_vain_for_room_or_the_end_leaves_nothing_behind(
    producer: Make, sink: ScriptedSink
) -> None:
    sink.now(is_away)
    one = producer(max_items=1, when_full=Block(0.001))
    one.send("a")
    for _ in range(3):
        with pytest.raises(BufferFull):
            one.send("b")
        assert not one.flush(0.001)
    assert not one._buffer.awaiting_room
    assert not one._buffer._awaiting_end


def test_whoever_waits_for_the_journals_disk_goes_on_when_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "WAITING_BYTES", 1000)
    monkeypatch.setattr(journal_module, "WAITING_BYTES", 1000)
    disk = SlowDisk()
    with Journal(tmp_path, sync=NO_SYNC, disk=disk) as journal:
        disk.goes_on.clear()
        for _ in range(2):
            journal.append_soon(b"x" * 600)
        calls: Any = (
            lambda: journal.append_soon(b"y"),
            lambda: journal.append(b"y"),
            lambda: journal.append_many([b"y"] * 2),
        )
        waiting = [threading.Thread(target=call, daemon=True) for call in calls]
        for thread in waiting:
            thread.start()
        eventually(lambda: len(journal._committer.room._waiters) == 3)
        disk.goes_on.set()
        for thread in waiting:
            thread.join(30)
        journal.flush()
        assert [entry.payload[:1] for entry in journal.read()] == [b"x"] * 2 + [b"y"] * 4
