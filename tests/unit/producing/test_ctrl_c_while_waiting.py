"""Ctrl-C at any step of a call that waits: it raises that and nothing else, and lets go of no lock that is not its own."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from interrupting import interrupted_at
from scripted_sink import Make, ScriptedSink, is_away, takes

from leaderq.errors import BufferFull, JournalSlow
from leaderq.producing import NO_SYNC, Block, Journal, WhenFull, door
from leaderq.producing.journal import committer
from leaderq.producing.journal import journal as journal_module
from leaderq.producing.journal.disk import Disk
from leaderq.testing import eventually

_FILES = ("/threading.py", "producing/door.py", "producing/stock.py", "journal/batch.py", "journal/waiting.py")


def interrupted_at_every_step(call: Callable[[], object], lock: threading.Lock, *files: str) -> int:
    """Interrupt ``call``, which waits in vain, at each of its steps; gives how many it has. If ``lock`` is free at that step
    somebody else takes it at that very moment, and must still have it when the call has raised."""
    for step in itertools.count(1):
        took: list[bool] = []
        came_so_far = interrupted_at(step, call, *files, before=lambda took=took: took.append(lock.acquire(blocking=False)))
        if any(took):
            assert lock.locked(), f"step {step}: the call let go of a lock that another holds"
            lock.release()
        assert lock.acquire(timeout=30), f"step {step}: the lock is held for ever"
        lock.release()
        if not came_so_far:
            return step - 1
    raise AssertionError


def full(call: Callable[[], object]) -> Callable[[], object]:
    """The call, which finds no room."""

    def refused() -> None:
        with pytest.raises((BufferFull, JournalSlow)):
            call()

    return refused


def test_ctrl_c_at_any_step_of_a_wait_for_room_raises_it_and_takes_nothing(producer: Make, sink: ScriptedSink) -> None:
    sink.now(is_away)
    one = producer(max_items=1, when_full=Block(0.01))
    one.send("a")
    assert interrupted_at_every_step(full(lambda: one.send("b")), one._stock.lock, *_FILES) > 4
    assert len(one._stock.room) <= 4  # one for each step at which it may have been waiting, until there is room again
    balance = one.snapshot().balance
    assert balance.is_exact
    assert (balance.accepted, balance.pending) == (1, 1)
    sink.now(takes)
    one.send("c", timeout_s=60.0)
    assert one.flush(60)
    assert sink.confirmed == ["a", "c"]
    assert not len(one._stock.room)


def test_ctrl_c_at_any_step_of_a_flush_raises_it_and_stops_nothing(producer: Make, sink: ScriptedSink) -> None:
    sink.now(is_away)
    one = producer()
    one.send("a")
    assert interrupted_at_every_step(lambda: one.flush(0.01), one._stock.lock, *_FILES) > 4
    sink.now(takes)
    assert one.flush(60)
    assert sink.confirmed == ["a"]


def test_who_waits_in_vain_for_room_or_the_end_leaves_nothing_behind(producer: Make, sink: ScriptedSink) -> None:
    sink.now(is_away)
    one = producer(max_items=1, when_full=Block(0.001))
    one.send("a")
    for _ in range(3):
        full(lambda: one.send("b"))()
        assert not one.flush(0.001)
    assert (len(one._stock.room), len(one._stock._over)) == (0, 0)


def test_ctrl_c_between_the_wakes_of_two_who_wait_costs_neither_its_own(producer: Make, sink: ScriptedSink) -> None:
    for step in itertools.count(1):
        sink.now(is_away)
        one = producer()
        one.send(step)
        flushed: list[bool] = []
        waiting = [threading.Thread(target=lambda one=one, f=flushed: f.append(one.flush(60)), daemon=True) for _ in "ab"]
        for thread in waiting:
            thread.start()

        def wakes_both(one: Any = one) -> bool:
            with one._stock.lock:
                are_there = len(one._stock._over._signals) == 2  # the sender wakes them too; then they look, and come again
                if are_there:
                    one._stock._over.wake()
                return are_there

        came_so_far = interrupted_at(step, lambda wakes=wakes_both: eventually(wakes), "journal/waiting.py")
        sink.now(takes)
        for thread in waiting:
            thread.join(30)
        assert flushed == [True, True], f"after an interrupt at step {step}"
        if not came_so_far:
            break
    assert step > 4


def test_ctrl_c_at_any_step_of_waking_the_sender_leaves_that_to_the_next_call(producer: Make, sink: ScriptedSink) -> None:
    one = producer()
    for step in itertools.count(1):
        eventually(lambda: one._stock._wanted == 1)  # the sender waits
        came_so_far = interrupted_at(step, lambda step=step: one.send((step, "first")), "/threading.py")
        one.send((step, "second"))
        assert one.flush(30), f"after an interrupt at step {step}"
        if not came_so_far:
            break
    assert step > 2
    assert sink.confirmed == [(number, word) for number in range(1, step + 1) for word in ("first", "second")]


class _SlowDisk(Disk):
    """A disk whose writes wait while ``goes_on`` is not set."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = threading.Event()

    def write(self, fd: int, data: Any, offset: int) -> int:
        self.goes_on.wait(60)
        return super().write(fd, data, offset)


@pytest.fixture
def crowded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Journal, _SlowDisk]]:
    """A journal that has so much to write that the next has to wait."""
    monkeypatch.setattr(committer, "WAITING_BYTES", 1000)
    monkeypatch.setattr(journal_module, "WAITING_BYTES", 1000)
    disk = _SlowDisk()
    disk.goes_on.set()
    with Journal(tmp_path, sync=NO_SYNC, disk=disk) as journal:
        disk.goes_on.clear()
        for _ in range(2):
            journal.append_soon(b"x" * 600)
        assert journal._committer.is_crowded
        yield journal, disk
        disk.goes_on.set()


@pytest.mark.parametrize(
    "call",
    [
        lambda journal: journal.append_soon(b"more", timeout_s=0.01),
        lambda journal: journal.append(b"more", timeout_s=0.01),
        lambda journal: journal.append_many([b"more", b"still"], timeout_s=0.01),
        lambda journal: journal.flush(timeout_s=0.01),
    ],
    ids=["append_soon", "append", "append_many", "flush"],
)
def test_ctrl_c_at_any_step_of_a_wait_for_the_journals_disk_raises_it_and_stores_nothing(
    crowded: tuple[Journal, _SlowDisk], call: Callable[[Journal], object]
) -> None:
    journal, disk = crowded
    files = ("/threading.py", "journal/journal.py", "journal/committer.py", "journal/batch.py", "journal/waiting.py")
    assert interrupted_at_every_step(full(lambda: call(journal)), journal._gate, *files) > 4
    disk.goes_on.set()
    assert journal.append(b"last", timeout_s=60) == 3
    assert [entry.payload[:4] for entry in journal.read()] == [b"xxxx", b"xxxx", b"last"]
    assert not len(journal._committer.room)


def test_who_waits_for_the_journals_disk_goes_on_when_it_does(crowded: tuple[Journal, _SlowDisk]) -> None:
    journal, disk = crowded
    calls = (lambda: journal.append_soon(b"y"), lambda: journal.append(b"y"), lambda: journal.append_many([b"y"] * 2))
    waiting = [threading.Thread(target=call, daemon=True) for call in calls]
    for thread in waiting:
        thread.start()
    eventually(lambda: len(journal._committer.room) == 3)
    disk.goes_on.set()
    for thread in waiting:
        thread.join(30)
    journal.flush()
    assert [entry.payload[:1] for entry in journal.read()] == [b"x"] * 2 + [b"y"] * 4


def test_ctrl_c_at_any_step_of_a_send_that_the_disk_keeps_waiting_raises_it_and_takes_nothing(
    producer: Make, sink: ScriptedSink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committer, "WAITING_BYTES", 1000)
    monkeypatch.setattr(journal_module, "WAITING_BYTES", 1000)
    monkeypatch.setattr(door, "_CROWDED_S", 0.01)
    sink.now(is_away)
    disk = _SlowDisk()
    disk.goes_on.set()
    with Journal(tmp_path, sync=NO_SYNC, disk=disk) as journal:
        one = producer(journal=journal, persistence=NO_SYNC, when_full=WhenFull.RAISE)
        disk.goes_on.clear()
        for letter in "ab":
            one.send(letter * 600)
        lock, files = one._stock.lock, ("/threading.py", "journal/batch.py", "journal/waiting.py")
        assert interrupted_at_every_step(full(lambda: one.send("c" * 600)), lock, *files) > 4
        disk.goes_on.set()
        sink.now(takes)
        assert one.flush(60)
        assert [record[0] for record in sink.confirmed] == ["a", "b"]
        one.close()
