"""A process that writes to a journal is killed at random points: nothing it was told is stored is
lost, and all is in order.

``LEADERQ_TEST_FAULTS=1000`` (or what ``make faults`` gives) is the number of points; the ordinary
run does fewer. The journal is the same from point to point, so crashes come upon what crashes left;
every other time the next process is the first to open it again.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from leaderq.producing.journal import Journal, JournalRecord
from leaderq.producing.journal.inspection import entries

WRITER = Path(__file__).parent / "journal_writer.py"
POINTS = int(os.environ.get("LEADERQ_TEST_FAULTS", "12"))
SEED = int(os.environ.get("LEADERQ_TEST_SEED", "0")) or random.SystemRandom().randrange(1 << 30)
SERIALS_A_ROUND = 1_000_000


class Books:
    """What the killed processes were told, and whether the journal agrees."""

    def __init__(self) -> None:
        self.told: dict[int, bytes] = {}
        self.done: set[int] = set()
        self.seen: dict[int, bytes] = {}
        self.checked = 0

    def note(self, lines: list[bytes]) -> None:
        for line in lines:
            words = line.split()
            if words[0] == b"done":
                self.done.add(int(words[1]))
            elif len(words) == 3:
                name = b" ".join(words[:2])
                assert self.told.setdefault(int(words[2]), name) == name, "an id is given once"

    def check(self, found: list[JournalRecord]) -> None:
        ids = [entry.id for entry in found]
        assert ids == sorted(set(ids)), "read in the order of ids"
        there = {entry.id: b" ".join(entry.payload.split(b" ", 2)[:2]) for entry in found}
        lost = {record_id for record_id in self.told.keys() - self.done if record_id not in there}
        assert not lost, (
            f"{len(lost)} records that were acknowledged are lost, among them {sorted(lost)[:5]}"
        )
        last: dict[bytes, int] = {}
        for record_id, name in there.items():
            assert self.told.get(record_id, name) == name, "an id still stands for its record"
            assert self.seen.setdefault(record_id, name) == name, "an id is given once"
            thread, serial = name.split()
            assert last.get(thread, -1) < int(serial), "each thread's records are in its order"
            last[thread] = int(serial)
        self.checked += len(self.told.keys() - self.done)


def run_and_kill(directory: Path, policy: str, number: int, chance: random.Random) -> list[bytes]:
    """One process, killed at a point: while it opens the journal, or after it was told so many
    things.
    """
    lines, wanted = [], chance.choice((1, 1, 2, 3, 10, 100, 400, 1000))
    command = [sys.executable, str(WRITER), str(directory), policy, str(number * SERIALS_A_ROUND)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        while len(lines) < wanted and (line := process.stdout.readline()):
            lines.append(line)
        assert process.poll() is None, "the writer died by itself"
        until = time.perf_counter() + chance.uniform(0, 0.01)
        while time.perf_counter() < until:
            pass
        process.send_signal(signal.SIGKILL)
        return lines + process.stdout.readlines()


@pytest.mark.timeout(120 + 10 * POINTS)
def test_nothing_that_was_acknowledged_is_lost_whenever_the_process_is_killed(tmp_path):
    chance, books, place = random.Random(SEED), Books(), tmp_path / "journal"
    slowest_s = 0.0
    for number in range(1, POINTS + 1):
        policy = ("item", "every", "interval", "none")[number % 4]
        print(f"point {number} with LEADERQ_TEST_SEED={SEED}")
        books.note(run_and_kill(place, policy, number, chance))
        if place.exists() and chance.random() < 0.5:
            with Journal(place, segment_bytes=16384) as journal:
                slowest_s = max(slowest_s, journal.report.took_s)
                assert not journal.report.damages
                found = journal.read(max_items=1 << 30, max_bytes=1 << 40)
                books.check(found)
                if len(found) > 20_000:
                    journal.ack_many(ids := [entry.id for entry in found])
                    books.done.update(ids)
        elif list(place.glob("*.seg")):
            books.check(list(entries(place)))
    print(f"{len(books.told)} told, {books.checked} looked for, opened in {slowest_s:.3f} s")
    assert len(books.told) > POINTS
