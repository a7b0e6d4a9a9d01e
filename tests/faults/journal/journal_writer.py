"""A process that uses a journal from three threads until it is killed, and says on standard output
what it was told.

``a SERIAL ID``: thread ``a`` appended the record with this serial number, and was told that it is
durable; ``done ID``: this record is about to be acknowledged. A line goes out in one write, so the
one who kills the process reads whole lines.
"""

from __future__ import annotations

import itertools
import os
import random
import sys
import threading
from functools import partial

from leaderq.producing.journal import EVERY_ITEM, NO_SYNC, Every, Interval, Journal

POLICIES = {"item": EVERY_ITEM, "every": Every(20), "interval": Interval(0.01), "none": NO_SYNC}


def say(line: str) -> None:
    os.write(1, line.encode() + b"\n")


def payload(thread: str, serial: int, chance: random.Random) -> bytes:
    return b"%s %d " % (thread.encode(), serial) + chance.randbytes(
        chance.choice((0, 10, 200, 1500))
    )


def several(journal: Journal, serials: itertools.count[int], chance: random.Random) -> None:
    while True:
        mine = list(itertools.islice(serials, chance.choice([1, 1, 1, 4])))
        payloads = [payload("a", serial, chance) for serial in mine]
        ids = journal.append_many(payloads) if mine[1:] else [journal.append(*payloads)]
        for serial, record_id in zip(mine, ids, strict=True):
            say(f"a {serial} {record_id}")


def in_the_background(journal, serials, chance):
    slots = threading.Semaphore(50)

    def told(serial: int, record_id: int | None, error: Exception | None) -> None:
        slots.release()
        if error is None:
            say(f"b {serial} {record_id}")

    for serial in serials:
        slots.acquire()
        journal.append_soon(payload("b", serial, chance), partial(told, serial))


def consume(journal: Journal, chance: random.Random) -> None:
    after = 0
    while True:
        entries = journal.read(after, max_items=20)
        ids = [entry.id for entry in entries if chance.random() < 0.5]
        chance.shuffle(ids)
        for record_id in ids:
            say(f"done {record_id}")
        journal.ack_many(ids)
        after = entries[-1].id if entries else after


def main(directory: str, policy: str, base: int) -> None:
    chance = random.Random(base)
    say("opening")
    journal = Journal(directory, sync=POLICIES[policy], segment_bytes=16384)
    say("open")
    for work in (several, in_the_background):
        serials = itertools.count(base)
        threading.Thread(
            target=work, args=(journal, serials, random.Random(base)), daemon=True
        ).start()
    consume(journal, chance)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
