"""What is promised of buffered producers, in simulated time; the journal's files are real, and what
lies in them when a process is killed is what the next one finds. Disks, and power cuts:
``tests/unit/producing``.
"""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from leaderq import producing
from leaderq.base import clock
from leaderq.errors import BufferFull, SinkAway
from leaderq.producing import EVERY_ITEM, NO_SYNC, BufferedProducer, Interval, Journal, WhenFull
from leaderq.producing.journal.disk import Disk
from leaderq.threads import Retry
from simulation.scenarios import Scene, scene

POLICIES = pytest.mark.parametrize(
    "persistence", [EVERY_ITEM, Interval(0.05), NO_SYNC], ids=["every item", "interval", "no sync"]
)


class FarSink:
    """Takes 2 ms for a batch, is away now and then, and loses answers."""

    def __init__(self, s: Scene) -> None:
        self._draw = s.world.faults
        self.confirmed: list[int] = []
        self.is_away = False

    def send(self, batch: Sequence[Any], timeout_s: float) -> producing.BatchOutcome:
        clock.sleep(0.002)
        drawn = self._draw()
        if self.is_away or drawn < 0.2:
            raise SinkAway("a scenario wants it")
        self.confirmed += [number for (number,) in batch]
        if drawn > 0.9:
            raise SinkAway("and its answer was lost")
        return producing.ALL_CONFIRMED

    def close(self, timeout_s: float) -> None:
        pass


class TestedDisk(Disk):
    """Full as long as a test wants; nobody waits for a platter: no power is cut."""

    is_full = False

    def sync(self, fd: int) -> None:
        pass

    def write(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(fd, data, offset)


RETRY = Retry(first_s=0.01, most_s=0.1)


@POLICIES
@scene(10)
def test_a_buffered_producer_is_killed_and_what_it_had_accepted_is_sent_in_order(
    s, tmp_path, persistence
):
    a, b = s.guests("ab")
    sink, accepted = FarSink(s), list[int]()
    place = Path(tempfile.mkdtemp(dir=tmp_path))

    def produce() -> None:
        journal = Journal(place / "a", sync=persistence, disk=TestedDisk())
        given = {"journal": journal, "retry": RETRY, "persistence": persistence, "max_items": 20}
        made = BufferedProducer(sink, **given)
        for number in range(10_000):
            made.send((number,))
            accepted.append(number)
            clock.sleep(0.001 * s.world.faults())

    a.begin(produce)
    s.run(0.1 + 0.4 * s.world.faults())
    a.process.kill()
    shutil.copytree(place / "a", place / "b")

    def drain() -> None:
        with BufferedProducer(sink, journal=place / "b", retry=RETRY) as again:
            assert again.flush(30.0).pending == 0

    b.do(drain)
    once = [*dict.fromkeys(sink.confirmed)]
    assert once == sorted(once)
    assert set(accepted) <= set(once)
    assert len(accepted) > 50


@pytest.mark.parametrize("when_full", [WhenFull.RAISE, WhenFull.DROP_NEWEST])
@scene(10)
def test_the_disk_of_its_journal_is_full_and_nothing_goes_without_a_word(s, tmp_path, when_full):
    (a,) = s.guests("a")
    sink, disk, place = FarSink(s), TestedDisk(), Path(tempfile.mkdtemp(dir=tmp_path))
    lost: list[int] = []
    refused: list[int] = []

    def produce() -> None:
        with (
            Journal(place, disk=disk) as journal,
            BufferedProducer(
                sink,
                journal=journal,
                retry=RETRY,
                max_items=20,
                when_full=when_full,
                dropped_listener=lambda one: lost.append(one.request[0]),
            ) as made,
        ):
            for number in range(300):
                sink.is_away = disk.is_full = 100 <= number < 200
                try:
                    made.send((number,))
                except BufferFull:
                    refused.append(number)
                clock.sleep(0.0001)
            assert made.flush(30.0).pending == 0
            balance = made.snapshot().balance
            assert balance.is_exact
            assert sum(balance.dropped.values()) == len(lost)

    a.do(produce, 120.0)
    once = [*dict.fromkeys(sink.confirmed)]
    assert sorted({*once, *lost, *refused}) == [*range(300)]
    assert once == sorted(once)
    assert refused if when_full is WhenFull.RAISE else lost
