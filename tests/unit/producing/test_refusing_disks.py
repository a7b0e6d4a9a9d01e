"""A disk that refuses what a journal has already taken, and a crash at any moment after."""

from __future__ import annotations

import errno
import random
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from full_disk import FullDisk
from scripted_sink import Make, ScriptedSink, is_away, takes

from leaderq.errors import BufferFull
from leaderq.producing import (
    EVERY_ITEM,
    NO_SYNC,
    PLAIN,
    BufferState,
    Interval,
    Journal,
    WhenFull,
)
from leaderq.producing.journal.disk import Disk
from leaderq.producing.journal.inspection import entries
from leaderq.testing import eventually

UNWANTED = b"unwanted"


class PickyDisk(Disk):
    """A disk with no room for what has ``UNWANTED`` in it, which it finds out after a while."""

    def __init__(self) -> None:
        self.is_asked, self.knows = threading.Event(), threading.Event()

    def write(self, fd: int, data: Any, offset: int) -> int:
        if UNWANTED in bytes(data):
            self.is_asked.set()
            self.knows.wait(30)
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(fd, data, offset)


def numbers_in(place: Path) -> list[int]:
    """What a producer would read there if this process were killed now."""
    return [PLAIN.deserialize(record.payload)[0] for record in entries(place)]


def test_what_a_caller_knows_to_be_on_the_disk_outlasts_a_refusal_before_it_and_a_crash(
    producer: Make, sink: ScriptedSink, tmp_path: Path
) -> None:
    sink.now(is_away)
    disk = PickyDisk()
    with Journal(tmp_path, sync=EVERY_ITEM, disk=disk) as journal:
        one = producer(journal=journal, persistence=EVERY_ITEM, max_items=1)
        one.send((0, b""))
        one.submit((1, UNWANTED))  # taken, and refused by the disk: not told to anybody
        assert disk.is_asked.wait(30)
        told: list[tuple[int, BaseException | None]] = []
        for number in range(2, 10):
            one.send(
                (number, b""),
                on_durable=lambda error, number=number: told.append((number, error)),
            )
        disk.knows.set()
        eventually(lambda: len(told) == 8)
        assert one.snapshot().balance.is_exact
        promised = {number for number, error in told if error is None}
        sink.now(takes)
        eventually(lambda: journal.counters.acked)
        journal.flush()  # the cursor is saved, as it is each half second
        stored = set(numbers_in(tmp_path))
        assert promised <= stored | {number for number, _ in sink.confirmed}
        assert not promised, "what came behind the refused one was stored before it"
        one.close(0.0)


@pytest.mark.parametrize(
    "persistence", [None, Interval(0.01), EVERY_ITEM], ids=["None", "Interval", "EVERY_ITEM"]
)
@pytest.mark.parametrize("seed", range(3))
def test_a_disk_full_now_and_then_keeps_order_and_promises_over_a_crash_at_any_moment(
    producer: Make, sink: ScriptedSink, tmp_path: Path, persistence: Any, seed: int
) -> None:
    luck, disk = random.Random(seed), FullDisk()
    sink.now(is_away)
    with Journal(tmp_path, sync=persistence or NO_SYNC, disk=disk) as journal:
        one = producer(
            journal=journal, persistence=persistence, max_items=20, when_full=WhenFull.RAISE
        )
        taken: list[int] = []
        promised: list[int] = []
        refused: list[int] = []

        def tell(number: int, error: BaseException | None) -> None:
            (promised if error is None else refused).append(number)

        for number in range(300):
            disk.is_full = luck.random() < 0.3
            with suppress(BufferFull):
                if persistence is None or luck.random() < 0.5:
                    one.submit((number,))
                else:
                    one.send((number,), on_durable=partial(tell, number))
                taken.append(number)
            if luck.random() < 0.1:
                known = list(promised)
                stored = numbers_in(tmp_path)
                assert stored == sorted(stored)
                assert set(known) <= set(stored)
            if luck.random() < 0.05:
                disk.is_full = False
                eventually(lambda: one.state is not BufferState.BLOCKED)
        disk.is_full = False
        taken += eventually(lambda: one.submit((300,))) and [300]
        if persistence is not None:  # what the disk refused is there when it has room again
            eventually(lambda: set(taken) - set(refused) <= set(numbers_in(tmp_path)))
        sink.now(takes)
        assert one.flush(30).pending == 0
        sent = [number for (number,) in sink.confirmed]
        assert sent == [one for one in taken if one in set(sent)]
        assert set(taken) - set(sent) <= set(refused)
        assert one.close(30).pending == 0
