"""Workers that write results and offsets into one database at the same time."""

from __future__ import annotations

import threading
from collections import Counter

from terms import open_term

from leaderq.kafka.record import Partition, Record
from leaderq.kafka.stores.database_offsets import DatabaseOffsets

WORKERS, BATCHES, RECORDS = 4, 12, 5


def write_with_workers(store: DatabaseOffsets, insert: str) -> dict[Partition, int]:
    """Let each worker store its partition's records with ``insert`` (a partition, an offset), each
    batch after an attempt that fails with half of it written; returns the offsets then stored.
    """
    term = open_term(1)
    store.load(term)
    ready = threading.Barrier(WORKERS)
    errors: list[BaseException] = []

    def attempt(batch: list[Record], fails: bool) -> None:
        with store.transaction(batch, term) as cursor:
            for at, record in enumerate(batch):
                if fails and at > len(batch) // 2:
                    raise ZeroDivisionError
                cursor.execute(insert, (record.partition, record.offset))

    def work(number: int) -> None:
        try:
            ready.wait(30)
            for at in range(0, BATCHES * RECORDS, RECORDS):
                offsets = range(at, at + RECORDS)
                batch = [Record("t", number, offset, -1, None, b"") for offset in offsets]
                try:
                    attempt(batch, fails=True)
                except ZeroDivisionError:
                    attempt(batch, fails=False)
        except BaseException as exc:
            errors.append(exc)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    return store.load(open_term(2))


def check_once_each(rows: list[tuple[int, int]], stored: dict[Partition, int]) -> None:
    """Each record below a stored offset has one row, and there is no other."""
    wanted = [(where.number, offset) for where, end in stored.items() for offset in range(end)]
    assert Counter(rows) == Counter(wanted)
    assert len(rows) == WORKERS * BATCHES * RECORDS
