"""Offsets in the user's database, stored in the transaction that holds the results: exactly once,
for work outside Kafka.

Who is authoritative: the career's *office* row in the table of offsets. It holds the newest term
that has loaded the offsets. :meth:`DatabaseOffsets.load` raises it and reads, and every transaction
begins by comparing its own term with it, by an ``UPDATE``. So the row's lock is taken first and
kept to the end: a successor's ``load`` waits for a transaction that is under way and then sees what
it stored; once ``load`` has returned, every transaction of an older term finds a higher number and
is rolled back whole. This holds at PostgreSQL's default READ COMMITTED (an ``UPDATE`` that waited
looks at the row again) and in SQLite (one writer).

Two things a database does by itself, and what to set against them:

* a leader that is frozen in mid-transaction keeps its locks, and its successor's ``load`` waits for
  them. PostgreSQL ends its session after ``idle_in_transaction_session_timeout`` (default: never):
  set it. Measured with PostgreSQL 15 and psycopg 3.3: that time is not counted after an
  ``executemany``, which is a pipeline, until the next ``execute``; PostgreSQL 17's
  ``transaction_timeout`` does not look at idleness. SQLite waits for the frozen process, for the
  connection's ``timeout``, then raises. A successor whose ``load`` fails stands again, until the
  frozen process goes on or is killed.
* an answer to COMMIT that is lost leaves the outcome open. The next try of the same batch finds its
  offsets stored, and raises :class:`~leaderq.errors.AlreadyStored` instead of doing the work twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from leaderq.errors import AlreadyStored, Deposed
from leaderq.kafka.record import Partition, Record
from leaderq.kafka.stores import database_statements as sql
from leaderq.kafka.stores.database_connection import Connection, Cursor, Database
from leaderq.term import OpenTerm, Reason, Term

log = logging.getLogger(__name__)


class DatabaseOffsets:
    """Offsets of ``career`` in a table of any DB-API 2 database; tried with ``sqlite3`` and
    ``psycopg``.

    A career that stores each click in the same transaction as the offset after it, and so stores
    each once::

        class Clicks(KafkaLeaderCareer):
            topics = "clicks"
            offsets = "external"

            def prepare(self):
                self.store = DatabaseOffsets(
                    lambda: psycopg.connect(
                        "dbname=clicks", options="-c lock_timeout=20s -c idle_in_transaction_session_timeout=10s"
                    ),
                    career="clicks",
                )
                self.store.create_table()
                super().prepare()

            def load_offsets(self, term):
                return self.store.load(term)

            def handle(self, records, term):
                with self.store.transaction(records, term) as cursor:
                    for record in records:
                        cursor.execute("INSERT INTO clicks (body) VALUES (%s)", (record.value,))

            def retire(self):
                super().retire()
                self.store.close()

    ``connect`` opens a connection (then each :meth:`load` begins with a fresh one, so a broken one
    does not outlive its term), or is one. Transactions are begun here, whatever the connection's
    autocommit says: PEP 249's own, psycopg's ``autocommit=True``, every ``isolation_level`` of
    ``sqlite3``, and its ``autocommit`` of Python 3.12. ``paramstyle`` is the driver module's unless
    given. Use it on one thread, where the connection may be used.

    *Guarantees:* the writes made through the cursor and the offsets are stored together or not at
    all; none by a term older than the newest that has loaded.
    *Not guaranteed:* anything for writes outside the ``with`` block, or for what commits by itself
    (DDL in some databases); a bound on waiting for locks, which the connection's own settings give.
    Errors of the driver pass through as they are, unless the term is over by then: that is
    :class:`~leaderq.errors.Deposed`, with the driver's error as its cause.
    """

    def __init__(
        self,
        connect: Callable[[], Connection] | Connection,
        *,
        career: str,
        table: str = "leaderq_offsets",
        paramstyle: str | None = None,
    ) -> None:
        self._database = Database(connect, paramstyle)
        self._career = career
        self._table = sql.checked_table(table)

    def create_table(self) -> None:
        """Make the table of offsets if it is not there; any number of processes may do it at once."""
        try:
            self._create_table()
        except self._database.error:
            # PostgreSQL's IF NOT EXISTS fails where two create at once; the second time it is
            # there. A true error comes again.
            self._create_table()

    def load(self, term: Term) -> dict[Partition, int]:
        """Refuse all terms before ``term`` from now on, and give the offsets at which to read on;
        {} before the first batch.

        Waits for a transaction of an older term that is under way. Raises
        :class:`~leaderq.errors.Deposed` if a newer term has loaded.
        """
        term.check()
        self._database.renew()
        with self._explained(term):
            try:
                return self._load(term)
            except self._database.integrity_error:
                # Two terms met at a career's very first load, and the other has founded the office
                # meanwhile.
                return self._load(term)

    @contextmanager
    def transaction(self, records: Sequence[Record], term: Term) -> Iterator[Cursor]:
        """A transaction for the results of ``records``: gives a cursor, stores the offset after the
        last of each partition, commits.

        Rolled back whole if the block raises. Raises :class:`~leaderq.errors.Deposed` if a newer
        term has loaded, and :class:`~leaderq.errors.AlreadyStored` if an offset past the first
        record of a partition is stored; the block is not entered then.
        """
        term.check()
        with self._explained(term), self._database.transaction() as cursor:
            self._take_office(cursor, term)
            firsts, ends = _range_of(records)
            stored = {where: self._stored(cursor, where) for where in firsts}
            for where, first in firsts.items():
                if (offset := stored[where]) is not None and offset > first:
                    raise AlreadyStored(where, stored=offset, first=first)
            yield cursor
            self._database.check_still_open()
            for where, end in ends.items():
                self._store(cursor, term, where, end, known=stored[where] is not None)

    def close(self) -> None:
        """Close the connection, if it was opened here. May be called twice."""
        self._database.close()

    def _create_table(self) -> None:
        with self._database.transaction() as cursor:
            self._execute(cursor, sql.CREATE)

    def _load(self, term: Term) -> dict[Partition, int]:
        with self._database.transaction() as cursor:
            self._take_office(cursor, term)
            self._execute(cursor, sql.OFFSETS)
            return {Partition(topic, int(number)): int(offset) for topic, number, offset in cursor.fetchall()}

    def _take_office(self, cursor: Cursor, term: Term) -> None:
        if self._execute(cursor, sql.TAKE_OFFICE, term=term.number).rowcount == 1:
            return
        # Not only a newer term: the row may be missing, and some drivers count no row that keeps
        # its value.
        holder = self._holder(cursor)
        if holder is None:
            self._execute(cursor, sql.FOUND_OFFICE, term=term.number)
            return
        if holder < term.number:
            # An older term founded the office between the two statements: there was no row yet to
            # be locked.
            self._execute(cursor, sql.TAKE_OFFICE, term=term.number)
            holder = self._holder(cursor)
        if holder != term.number:
            self._refuse(term, f"term {holder} has taken office there")

    def _holder(self, cursor: Cursor) -> int | None:
        row = self._execute(cursor, sql.HOLDER).fetchone()
        return None if row is None else int(row[0])

    def _stored(self, cursor: Cursor, where: Partition) -> int | None:
        row = self._execute(cursor, sql.OFFSET, topic=where.topic, partition=where.number).fetchone()
        return None if row is None else int(row[0])

    def _store(self, cursor: Cursor, term: Term, where: Partition, end: int, *, known: bool) -> None:
        statement = sql.ADVANCE if known else sql.BEGIN_AT
        values = {"topic": where.topic, "partition": where.number, "next_offset": end, "term": term.number}
        # 0 rows: another term's row, or one that vanished under the lock of the office. -1: the
        # driver cannot tell.
        if self._execute(cursor, statement, **values).rowcount == 0:
            self._refuse(term, f"the offset of {where} could not be stored under it")

    def _refuse(self, term: Term, why: str) -> None:
        log.warning(
            "the table %s of offsets refuses term %d of %r: %s; if ZooKeeper was set up anew, raise the floor of its term numbers",
            self._table,
            term.number,
            self._career,
            why,
        )
        if isinstance(term, OpenTerm):
            term.wind_up(Reason.FENCED)
        raise Deposed(term=term.number, reason=Reason.FENCED)

    def _execute(self, cursor: Cursor, statement: str, **values: Any) -> Cursor:
        text, parameters = sql.in_style(self._database.paramstyle, statement, {"career": self._career, **values})
        text = text.replace("{table}", self._table)
        if parameters:
            cursor.execute(text, parameters)
        else:
            cursor.execute(text)
        return cursor

    @contextmanager
    def _explained(self, term: Term) -> Iterator[None]:
        """A database that ended the session of a leader frozen in mid-transaction raises some error
        of its own.
        """
        try:
            yield
        except self._database.error as exc:
            try:
                term.check()
            except Deposed as deposed:
                raise deposed from exc
            raise


def _range_of(records: Sequence[Record]) -> tuple[Mapping[Partition, int], Mapping[Partition, int]]:
    """For each partition of ``records`` the first offset, and the offset after the last."""
    firsts: dict[Partition, int] = {}
    ends: dict[Partition, int] = {}
    for record in records:
        where = Partition(record.topic, record.partition)
        firsts.setdefault(where, record.offset)
        ends[where] = record.offset + 1
    return firsts, ends
