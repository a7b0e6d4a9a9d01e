"""The ledger: what was billed, in which order, by whom and in which term, in a SQLite file.

Who is authoritative: the row of table ``fences`` (:class:`leaderq.fencing.SqlFence`). It holds the
newest term that has taken office here, and every transaction begins by comparing its own term with
it, in the same transaction as the bills. So a leader that was deposed without noticing (it was
frozen, say) cannot add anything: its transaction is refused as a whole.

Why nothing is billed twice: a bill is stored together with the place of its record (topic,
partition, offset), and that place is the primary key. If a batch is handed out again after a change
of leader, its bills are there already and none is added. Why nothing is lost: the transaction is on
disk before :meth:`Ledger.post` returns, and only then is the batch committed to Kafka.

A process that is stopped (SIGSTOP) in the middle of a transaction keeps the file locked until it
continues or is killed: that is how SQLite works. Others wait for it for ``LOCK_WAIT_S``. A database
server would end that transaction by itself.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from leaderq import Term
from leaderq.fencing import SqlFence

FENCE = SqlFence("ledger", table="fences")
LOCK_WAIT_S = 30.0
_LOCK_SLICE_S = 0.2

_SCHEMA = f"""
{FENCE.definition};
CREATE TABLE IF NOT EXISTS deliveries (
    one         INTEGER PRIMARY KEY CHECK (one = 1),
    redelivered INTEGER NOT NULL DEFAULT 0
);
INSERT OR IGNORE INTO deliveries (one) VALUES (1);
CREATE TABLE IF NOT EXISTS billed (
    topic     TEXT    NOT NULL,
    partition INTEGER NOT NULL,
    "offset"  INTEGER NOT NULL,
    number    INTEGER,
    client    TEXT    NOT NULL,
    resource  TEXT    NOT NULL,
    charge    INTEGER NOT NULL,
    term      INTEGER NOT NULL,
    candidate TEXT    NOT NULL,
    billed_at REAL    NOT NULL,
    PRIMARY KEY (topic, partition, "offset")
);
CREATE VIEW IF NOT EXISTS bills AS
    SELECT client, COUNT(*) AS clicks, SUM(charge) AS charge FROM billed GROUP BY client;
"""


class Entry(NamedTuple):
    """What an audit looks at in one bill."""

    number: int | None
    partition: int
    offset: int
    term: int
    billed_at: float


class Bill(NamedTuple):
    """One record billed: where it came from (``number`` is its feeder's count), who pays, for what,
    and how much.
    """

    topic: str
    partition: int
    offset: int
    number: int | None
    client: str
    resource: str
    charge: int


class Ledger:
    """The ledger in ``path``, made if it is not there; for one thread. Raises ``sqlite3.Error`` if
    it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, timeout=LOCK_WAIT_S, isolation_level=None)
        try:
            self._set_up()
        except sqlite3.Error:
            self._connection.close()
            raise

    def _set_up(self) -> None:
        # WAL: readers (`leaderq demo`, `ad_billing.audit`) never stand in the leader's way. FULL:
        # on disk when COMMIT returns.
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
        # From now on a wait for the lock is cut into slices, between which the leader looks whether
        # it still leads.
        self._connection.execute(f"PRAGMA busy_timeout = {int(_LOCK_SLICE_S * 1000)}")

    def take_office(self, term: Term) -> None:
        """Refuse all terms before ``term`` from now on. Errors: see :meth:`post`."""
        with self._transaction(term):
            pass

    def post(self, bills: Sequence[Bill], term: Term) -> int:
        """Add ``bills`` in one transaction, in their order; return how many were new. On disk when
        it returns.

        While another process locks the ledger it waits, at most until the term is over. Raises
        :class:`~leaderq.errors.Deposed` then, and if a newer term has taken office;
        ``sqlite3.Error`` if the file cannot be written; nothing was added then.
        """
        with self._transaction(term) as connection:
            now = time.time()
            before = connection.total_changes
            connection.executemany(
                "INSERT INTO billed VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                [(*bill, term.number, term.candidate, now) for bill in bills],
            )
            added = connection.total_changes - before
            if added < len(bills):
                connection.execute(
                    "UPDATE deliveries SET redelivered = redelivered + ?", (len(bills) - added,)
                )
        return added

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    @contextmanager
    def _transaction(self, term: Term) -> Iterator[sqlite3.Connection]:
        connection = self._connection
        self._lock(term)
        try:
            FENCE.hold(connection, term)
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _lock(self, term: Term) -> None:
        end = time.monotonic() + LOCK_WAIT_S
        while True:
            term.check()
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as exc:
                if "locked" not in str(exc) or time.monotonic() >= end:
                    raise
