"""Results and offsets in one transaction of a database. ``offsets="external"``."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping
from typing import Any

from paced import Paced

from leaderq import Term
from leaderq.kafka import Partition, Record
from leaderq.kafka.stores.database_offsets import DatabaseOffsets

DATABASE = os.environ["RESULTS"]
POSTGRES = "-c lock_timeout=20s -c idle_in_transaction_session_timeout=" + os.environ.get(
    "IDLE_TIMEOUT", "10s"
)


def opened() -> Any:
    if DATABASE.endswith(".sqlite3"):
        return sqlite3.connect(DATABASE, timeout=20)
    import psycopg

    return psycopg.connect(DATABASE, options=POSTGRES)


class Stored(Paced):
    offsets = "external"
    store: DatabaseOffsets
    insert = "INSERT INTO results (number, offset_, term) VALUES " + (
        "(?, ?, ?)" if DATABASE.endswith(".sqlite3") else "(%s, %s, %s)"
    )

    def prepare(self) -> None:
        self.store = DatabaseOffsets(opened, career=self.name)
        self.store.create_table()
        super().prepare()

    def load_offsets(self, term: Term) -> Mapping[Partition, int]:
        return self.store.load(term)

    def handle(self, records: list[Record], term: Term) -> None:
        with self.store.transaction(records, term) as cursor:
            self.cursor = cursor
            super().handle(records, term)

    def do(self, records: list[Record], term: Term) -> None:
        # Not executemany: after psycopg's pipeline PostgreSQL does not count how long the
        # transaction is idle.
        for row in records:
            self.cursor.execute(self.insert, (row.partition, row.offset, term.number))

    def retire(self) -> None:
        super().retire()
        self.store.close()


class Abandoned(Stored):
    """All or nothing by itself: a batch may be abandoned at any instruction."""

    atomic = True
