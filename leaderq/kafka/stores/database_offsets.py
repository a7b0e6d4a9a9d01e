"""Offsets in the user's database, stored in the transaction that holds the results: exactly once,
for work outside Kafka.

One table holds two kinds of row of a career: its *term row* (topic ``''``, partition -1), whose
``term`` is the newest that has loaded the offsets, and a row for each partition.

The term row is authoritative. :meth:`DatabaseOffsets.load` raises it and reads, and every
transaction begins by raising it to its own term, unless it is higher. Its lock is taken first and
kept to the end: a successor's ``load`` waits for a transaction that is under way and then sees what
it stored; after ``load``, every transaction of an older term finds a higher number and is rolled
back whole. This holds at PostgreSQL's default READ COMMITTED (``ON CONFLICT DO UPDATE`` that waited
looks at the row again) and in SQLite from 3.24 (one writer).

* A leader that is frozen in mid-transaction keeps its locks, and its successor's ``load`` waits.
  PostgreSQL ends its session after ``idle_in_transaction_session_timeout`` (default: never): set
  it. (With psycopg 3.3 that time is not counted after an ``executemany``, which is a pipeline,
  until the next ``execute``.) SQLite waits for the connection's ``timeout``, then raises. A
  successor whose ``load`` fails stands again.
* When the answer to COMMIT is lost, the next try of the same batch finds its offsets stored, and
  raises :class:`~leaderq.errors.AlreadyStored` instead of doing the work twice. Handling counts
  what is stored as handled (:mod:`leaderq.kafka.handling.batch_handler`).
* Workers are threads: each has a connection, so that none commits or rolls back another's work.

Transactions are begun and ended by statements (in SQLite ``BEGIN IMMEDIATE``, which waits for the
write lock at once). So that no driver begins one by itself, each connection that was opened is put
into *autocommit*.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from operator import attrgetter
from typing import Any

from leaderq.base.arguments import require_finished
from leaderq.errors import AlreadyStored, ConfigurationError, Deposed, told
from leaderq.fencing import FencedRows, ParamStyle
from leaderq.fencing.sql import (
    checked_table,
    is_in_transaction,
    is_sqlite,
    values_of,
    written,
)
from leaderq.kafka.record import Offset, Partition, Record, after, epoch_of
from leaderq.kafka.stores.handle_call import present_call
from leaderq.term import Term
from leaderq.threads import primitives

log = logging.getLogger(__name__)

CREATE_TABLE = (
    "CREATE TABLE IF NOT EXISTS {table} (career VARCHAR(255) NOT NULL, topic VARCHAR(249) NOT NULL,"
    " partition INTEGER NOT NULL, next_offset BIGINT NOT NULL, leader_epoch INTEGER NOT NULL,"
    " term BIGINT NOT NULL, PRIMARY KEY (career, topic, partition))"
)
ALL_OFFSETS = (
    "SELECT topic, partition, next_offset, leader_epoch FROM {table} WHERE career = :career"
    " AND partition >= 0"
)
ONE_OFFSET = (
    "SELECT next_offset FROM {table} WHERE career = :career AND topic = :topic AND partition ="
    " :partition"
)
_TERM_ROW = Partition("", -1)
_REMEMBERED = 8
_offset_of = attrgetter("offset")


class DatabaseOffsets:
    """Offsets of ``career`` in a table of SQLite (``sqlite3``) or PostgreSQL (``psycopg``).

    Used by four methods of a career (``docs/offset-stores.rst`` has a complete one): ``prepare``
    makes it and its table, ``load_offsets`` returns :meth:`load`, ``handle`` writes within
    :meth:`transaction`, ``retire`` closes it.

    ``connect`` opens a connection. Each thread has its own, and each :meth:`load` opens new ones,
    because the old ones may be broken. Any ``autocommit`` and ``isolation_level`` will do, because
    leaderq sets them; rows may be sequences or mappings. Workers take turns inside the ``with``
    block, because every transaction locks the career's term row; only the work outside the block is
    done in parallel.

    *Guarantees:* the writes made through the cursor and the offsets are stored together or not at
    all; none by a term older than the newest that has loaded. *Not guaranteed:* anything for writes
    outside the ``with`` block, or for what commits by itself (DDL in some databases); a bound on
    waiting for locks, which the connection's settings say. Errors pass through, unless the term is
    over by then: that is :class:`~leaderq.errors.Deposed`, with the error as its cause.
    """

    def __init__(
        self, connect: Callable[[], Any], *, career: str, table: str = "leaderq_offsets"
    ) -> None:
        # Not only callable(): a connection of sqlite3 can be called, too.
        if hasattr(connect, "cursor") or not callable(connect):
            raise ConfigurationError(
                f"{connect!r} is not a function that opens a database connection; give one, such as"
                " lambda: sqlite3.connect(path), so that each thread has a connection of its own"
            )
        self._connect = connect
        self._connections: dict[int, Any] = {}  # by thread
        self._closed: deque[Any] = deque(maxlen=_REMEMBERED)
        self._career = career
        self._table = checked_table(table)
        self._rows = FencedRows(table, key=("career", "topic", "partition"))
        # Else workers would wait for each other in the database, whose patience has limits.
        self._turn = primitives.RLock()

    def create_table(self) -> None:
        """Make the table of offsets if it is not there. Any number of processes may call it at the
        same time.
        """
        try:
            self._create_table()
        except Exception as exc:  # noqa: BLE001  (PostgreSQL's IF NOT EXISTS fails where two create at once; a true error comes again)
            log.debug("creating the table again error=%r", exc)
            self._create_table()

    def load(self, term: Term) -> dict[Partition, int]:
        """Refuse all terms before ``term`` from now on, and return the offsets at which to read on.
        Waits for a transaction of an older term; raises ``Deposed`` if a newer one has loaded.
        """
        term.check()
        self._turn = primitives.RLock()  # a worker of an earlier term may hang in its block
        self.close()
        with self._explained(term), self._begun() as cursor:
            self._put(term, _TERM_ROW, 0)
            found = self._execute(cursor, ALL_OFFSETS).fetchall()
        columns = "topic", "partition", "next_offset", "leader_epoch"
        return {
            Partition(topic, int(number)): Offset(int(offset), int(epoch))
            for topic, number, offset, epoch in (values_of(row, *columns) for row in found)
        }

    @contextmanager
    def transaction(self, records: Sequence[Record], term: Term) -> Iterator[Any]:
        """A transaction for the results of ``records``: yields a cursor, stores offsets, commits.

        Rolled back whole if the block raises. Raises :class:`~leaderq.errors.Deposed` if a newer
        term has loaded, and :class:`~leaderq.errors.AlreadyStored` if an offset past the first
        record of a partition is stored; the block is not entered then. Let ``AlreadyStored`` out of
        ``handle``: the records that are stored count as handled, and the others are handed over
        again.

        Give all records of a call of ``handle`` to one transaction, in any order, or one record
        after the other in theirs: an offset says that all records in front of it are done.
        """
        term.check()
        with self._turn, self._explained(term), self._begun() as cursor:
            self._put(term, _TERM_ROW, 0)
            firsts: dict[Partition, int] = {}
            lasts: dict[Partition, Record] = {}
            for record in records:  # which the user may have sorted
                partition, offset = record.topic_partition, record.offset
                firsts[partition] = min(offset, firsts.get(partition, offset))
                lasts[partition] = max(record, lasts.get(partition, record), key=_offset_of)
            for (topic, number), first in firsts.items():
                where = {"topic": topic, "partition": number}
                row = self._execute(cursor, ONE_OFFSET, **where).fetchone()
                stored = -1 if row is None else int(values_of(row, "next_offset")[0])
                if stored > first:
                    partition = Partition(topic, number)
                    _require_another_call(partition, first, stored)
                    raise AlreadyStored(partition, stored=stored, first=first)
            yield cursor
            if is_in_transaction(self._connection) is False:
                raise ConfigurationError(
                    "the transaction was committed or rolled back inside the 'with' block; leave"
                    " that to the block's end"
                )
            for partition, last in lasts.items():
                self._put(term, partition, after(last))
        if (call := present_call()) is not None:
            call.stored.update({partition: after(last) for partition, last in lasts.items()})

    def close(self) -> None:
        """Close the connections that were opened here. May be called twice. Never raises for a
        connection that is broken, or that only its own thread may close (``sqlite3``): such a
        connection ends when nothing uses it any more.
        """
        while self._connections:
            _thread, connection = self._connections.popitem()
            self._give_up(connection)

    def _create_table(self) -> None:
        with self._begun() as cursor:
            self._execute(cursor, CREATE_TABLE)

    def _put(self, term: Term, where: Partition, at: int) -> None:
        place = {"career": self._career, "topic": where.topic, "partition": where.number}
        row = {"next_offset": int(at), "leader_epoch": epoch_of(at)}
        self._rows.put(self._connection, term, {**place, **row})

    def _execute(self, cursor: Any, statement: str, **values: Any) -> Any:
        style = ParamStyle.NAMED if is_sqlite(self._connection) else ParamStyle.PYFORMAT
        text = statement.replace("{table}", self._table)
        cursor.execute(*written(text, style, {"career": self._career, **values}))
        return cursor

    @contextmanager
    def _explained(self, term: Term) -> Iterator[None]:
        """Within the block, raise ``Deposed`` for an error if the term is over: the server may have
        ended the session of a leader that was frozen.
        """
        try:
            yield
        except Deposed:
            raise
        except Exception as exc:
            try:
                term.check()
            except Deposed as deposed:
                raise deposed from exc
            raise

    @property
    def _connection(self) -> Any:
        """The connection of the calling thread, opened when it is first needed."""
        thread = primitives.get_ident()
        if (found := self._connections.get(thread)) is not None:
            return found
        connection = self._connect()
        if not hasattr(connection, "cursor"):
            raise ConfigurationError(
                f"the function that opens the database returned {connection!r}; it must return a"
                " DB-API connection"
            )
        try:  # to commit what the function has begun
            require_finished(connection.commit(), "commit() of the database connection")
        except Exception as exc:
            if not any(connection is one for one in self._closed):
                raise
            raise ConfigurationError(
                f"the function that opens the database returned {connection!r} again, which was"
                f" closed ({told(exc)}); it must open a new connection each time"
            ) from exc
        if hasattr(connection, "autocommit"):
            connection.autocommit = True
        else:  # sqlite3 before Python 3.12
            connection.isolation_level = None
        self._connections[thread] = connection
        return connection

    @contextmanager
    def _begun(self) -> Iterator[Any]:
        """Begin a transaction, yield a cursor of the thread's connection, then commit. Any error
        rolls the transaction back.
        """
        connection = self._connection
        if is_in_transaction(connection):
            raise ConfigurationError(
                "a transaction is open on the database connection already; commit or roll it back"
                " before this one is begun"
            )
        try:
            with closing(connection.cursor()) as cursor:
                cursor.execute("BEGIN IMMEDIATE" if is_sqlite(connection) else "BEGIN")
                yield cursor
                cursor.execute("COMMIT")
        except BaseException:
            self._abandon(connection)
            raise

    def _abandon(self, connection: Any) -> None:
        try:
            if is_in_transaction(connection) is not False:
                # A cursor of its own: the user's may hold rows, or be closed.
                with closing(connection.cursor()) as own:
                    own.execute("ROLLBACK")
        except Exception as exc:  # noqa: BLE001  (the first error is the one to raise; the server rolls a lost session back itself)
            what = "database transaction not rolled back, its connection is given up error=%r"
            log.warning(what, exc)
            if self._connections.pop(primitives.get_ident(), None) is not None:
                self._give_up(connection)

    def _give_up(self, connection: Any) -> None:
        self._closed.append(connection)
        try:
            connection.close()
        except Exception as exc:  # noqa: BLE001  (whatever a driver raises for a broken connection: it is given up)
            log.debug("broken database connection not closed error=%r", exc)


def _require_another_call(where: Partition, first: int, stored: int) -> None:
    """Raise ConfigurationError if the present call of ``handle`` has stored the offset itself:
    these records are not stored, and would be passed over.
    """
    call = present_call()
    if call is not None and call.stored.get(where) == stored:
        raise ConfigurationError(
            f"one call of handle has two transactions, and the first has stored offset {stored} of"
            f" {where}, past the record at {first} in the second; give all records of a call to one"
            " transaction"
        )
