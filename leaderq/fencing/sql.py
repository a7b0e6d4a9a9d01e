"""Fencing in a database: the highest term stands in a row, and one statement compares and locks.

The row is authoritative. Every write of a term is one upsert that changes the row only if the
stored number is not higher. On PostgreSQL an upsert locks the row even if it changes nothing, waits
for the transaction that has it locked, and then looks at the row as that transaction has left it.
The lock is kept to the end of the transaction. So of two terms, whichever order they come in:

* the older one has the lock first: the newer one waits until the older one has committed or rolled
  back, and sees what it left;
* the newer one has it first: the older one waits, or comes later, and changes no row. That is
  :class:`~leaderq.errors.Deposed`;
* both come first: one inserts, the other one waits for it, and updates.

At REPEATABLE READ and SERIALIZABLE PostgreSQL answers the one that waited with a serialization
failure. That reaches you, like every error of the driver: begin the transaction again. SQLite has
one writer. SQLite must be 3.24 or newer, PostgreSQL 9.5 or newer; databases without ``ON CONFLICT``
cannot be used.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from enum import Enum
from importlib import import_module
from inspect import iscoroutinefunction
from typing import Any, NamedTuple

from leaderq.base.arguments import is_text, require
from leaderq.errors import ConfigurationError
from leaderq.fencing.fencing_token import (
    FencingToken,
    TermLike,
    check_comparable,
    judge,
    name_problem,
)

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_TABLE_NAME = re.compile(rf"{_NAME}(\.{_NAME})?", re.ASCII)
_COLUMN_NAME = re.compile(_NAME, re.ASCII)
_MARK = re.compile(rf":({_NAME})", re.ASCII)


class ParamStyle(Enum):
    """How a statement marks its parameters: ``paramstyle`` of PEP 249, of your driver's module.

    ``sqlite3`` takes QMARK and NAMED, ``psycopg`` takes FORMAT and PYFORMAT, ``text`` of SQLAlchemy
    takes NAMED.
    """

    QMARK = "qmark"
    FORMAT = "format"
    NAMED = "named"
    PYFORMAT = "pyformat"


class SqlStatement(NamedTuple):
    """One statement with its parameters: ``cursor.execute(*statement)``, or in SQLAlchemy
    ``connection.execute(text(statement.text), statement.parameters)``.
    """

    text: str
    parameters: Any


class SqlFence:
    """One row of ``table`` that keeps the highest term that has written to ``resource``.

    ``resource`` is a name, of 1 to 255 characters, for what only one leader may write. It belongs
    to one career; the other careers are refused. Thread-safe; it keeps no connection.

    Guarantees: a transaction in which :meth:`hold` has returned commits only if no newer term has
    held the resource before; from then until its end, no other term holds it. An equal number is
    the same term. Not guaranteed: anything for what is written outside that transaction, in a
    savepoint that also held the fence and is rolled back, or by code that catches ``Deposed`` and
    commits. A newer term may also have to wait: a leader that is frozen in mid-transaction keeps
    the lock until the server ends its session (``idle_in_transaction_session_timeout``).
    """

    def __init__(self, resource: str, *, table: str = "leaderq_fences") -> None:
        require(name_problem("resource", resource))
        self._resource = resource
        self._table = checked_table(table)
        self._upsert = upsert(table, key=["resource"], values=[], same=["career"])

    @property
    def definition(self) -> str:
        """The statement that makes the table if it is not there, for your migrations."""
        return (
            f"CREATE TABLE IF NOT EXISTS {self._table} (resource VARCHAR(255) NOT NULL PRIMARY KEY,"
            " career VARCHAR(255) NOT NULL, term BIGINT NOT NULL)"
        )

    def create_table(self, connection: Any) -> None:
        """Make the table if it is not there, in the transaction of ``connection``. If several
        processes do so at once, PostgreSQL may refuse all of them except one: call it again.
        """
        with _executing(connection) as (_, execute):
            execute(SqlStatement(self.definition, ()))

    def hold(self, connection: Any, term: TermLike) -> None:
        """Refuse all terms before ``term`` from now on, and lock the resource until your
        transaction ends. Call it first in each transaction, before any other row is locked.

        ``connection`` is yours: a connection or a cursor of ``sqlite3`` or ``psycopg``, a
        ``Connection`` or ``Session`` of SQLAlchemy. This begins a transaction where the driver does
        that by itself; it never commits or rolls back.

        :raises Deposed: a newer term has held the resource; the term is over. Roll back.
        :raises ConfigurationError: the connection commits each statement by itself, or is
          asynchronous (see :meth:`statement`); the resource belongs to another career.
        :raises Exception: what the driver raises: a lock that was waited for too long, a
          serialization failure, a transaction that has failed before. Roll back.
        """
        with _executing(connection) as (style, execute):
            if execute(self.statement(term, style)).rowcount <= 0:  # -1: the driver cannot tell
                self.judge(term, execute(self.stored(style)).fetchone())
        if _is_in_transaction(connection) is False:
            raise ConfigurationError(
                f"the connection commits each statement by itself, so nothing would keep an older"
                f" term out of {self._where} until your own writes are committed; begin a"
                " transaction first, or open the connection without autocommit"
            )

    def statement(self, term: TermLike, style: ParamStyle | str) -> SqlStatement:
        """The statement that :meth:`hold` executes, for callers that must execute it themselves,
        such as on an asynchronous connection. After it, execute :meth:`stored`, and pass its row to
        :meth:`judge`.
        """
        check_comparable(term)
        values = {"resource": self._resource, "career": term.career, "term": term.number}
        return written(self._upsert, style, values)

    def stored(self, style: ParamStyle | str) -> SqlStatement:
        """The query for what is stored: one row with a career and a number, or none."""
        text = f"SELECT career, term FROM {self._table} WHERE resource = :resource"
        return written(text, style, {"resource": self._resource})

    def judge(self, term: TermLike, row: Any) -> None:
        """Return if ``row`` belongs to ``term``. Read the row after :meth:`statement`, in the same
        transaction.

        :raises Deposed: the row belongs to a newer term.
        :raises ConfigurationError: the row belongs to another career or to an older term, or there
            is no row.
        """
        values = None if row is None else values_of(row, "career", "term")
        if values is not None:
            judge(term, FencingToken(values[0], int(values[1])), self._where)
        if values is None or int(values[1]) < term.number:
            raise ConfigurationError(
                f"{self._where} does not keep what was written to it: {row!r} instead of term"
                f" {term.number}; is there a trigger, or a policy for rows, on the table?"
            )

    @property
    def _where(self) -> str:
        return f"resource {self._resource!r} in table {self._table}"


class FencedRows:
    """A column beside the data: each row of ``table`` keeps the number of the term that wrote it.

    ``key``: the columns of its primary key, or of another unique constraint. ``column``: a BIGINT;
    NULL means that no term has written the row. Use it where rows are written whole and one by one.

    Guarantees: :meth:`put` changes no row that a newer term has written, with autocommit too. Not
    guaranteed: anything for rows that the newer term has not written yet, or has deleted; that two
    careers are told apart. Where that matters, use :class:`SqlFence`.
    """

    def __init__(self, table: str, *, key: str | Sequence[str], column: str = "term") -> None:
        self._table = checked_table(table)
        self._key = [key] if isinstance(key, str) else [*key]
        self._column = column
        _check_columns(*self._key, column)

    def put(self, connection: Any, term: TermLike, row: Mapping[str, Any]) -> None:
        """Insert ``row`` (values by column, those of the key among them), or update the one with
        its key, unless a newer term has written that row.

        :raises Deposed: a newer term has written the row; the term is over. Roll back.
        :raises ConfigurationError: ``row`` lacks a column of the key, or has the column of the
            term.
        :raises Exception: what the driver raises.
        """
        with _executing(connection) as (style, execute):
            if execute(self.statement(term, row, style)).rowcount > 0:
                return
            found = execute(self.stored(row, style)).fetchone()
        stored = None if found is None else values_of(found, self._column)[0]
        where = f"row {[row[name] for name in self._key]} of table {self._table}"
        if stored is None or int(stored) < term.number:
            raise ConfigurationError(f"{where} does not keep what was written to it")
        judge(term, FencingToken(term.career, int(stored)), where)

    def statement(
        self, term: TermLike, row: Mapping[str, Any], style: ParamStyle | str
    ) -> SqlStatement:
        """The statement that :meth:`put` executes. It changes one row, or none if a newer term has
        written it.
        """
        check_comparable(term)
        _check_columns(*row)
        problems = [f"row has no {name!r}" for name in self._key if name not in row]
        if self._column in row:
            problems.append(f"row has {self._column!r}, which the term decides; leave it out")
        require(*problems)
        values = [name for name in row if name not in self._key]
        text = upsert(self._table, key=self._key, values=values, column=self._column)
        return written(text, style, {**row, self._column: term.number})

    def stored(self, row: Mapping[str, Any], style: ParamStyle | str) -> SqlStatement:
        """The query for the number of the row with this key."""
        same = " AND ".join(f"{name} = :{name}" for name in self._key)
        text = f"SELECT {self._column} FROM {self._table} WHERE {same}"
        return written(text, style, {name: row[name] for name in self._key})


# -- statements ------------------------------------------------------------------------------------


def upsert(
    table: str,
    *,
    key: Sequence[str],
    values: Sequence[str],
    same: Sequence[str] = (),
    column: str = "term",
) -> str:
    """The statement that writes one row, unless the stored row has a higher ``column``, or another
    value in one of the columns ``same``. Its parameters are named after the columns: ``:column``.
    """
    columns = [*key, *same, *values, column]
    changes = ", ".join(f"{name} = excluded.{name}" for name in [*values, column])
    holds = [f"kept.{name} = excluded.{name}" for name in same]
    holds.append(f"COALESCE(kept.{column}, 0) <= excluded.{column}")
    return (
        f"INSERT INTO {table} AS kept ({', '.join(columns)})"
        f" VALUES ({', '.join(f':{name}' for name in columns)})"
        f" ON CONFLICT ({', '.join(key)}) DO UPDATE SET {changes} WHERE {' AND '.join(holds)}"
    )


def written(text: str, style: ParamStyle | str, values: Mapping[str, Any]) -> SqlStatement:
    """Convert ``text``, whose parameters look like ``:name``, to ``style``, and add the values."""
    try:
        style = ParamStyle(style)
    except ValueError:
        known = ", ".join(repr(one.value) for one in ParamStyle)
        raise ConfigurationError(f"style={style!r}: give one of {known}") from None
    names = [found[1] for found in _MARK.finditer(text)]
    if style in (ParamStyle.QMARK, ParamStyle.FORMAT):
        mark = "?" if style is ParamStyle.QMARK else "%s"
        return SqlStatement(_MARK.sub(mark, text), tuple(values[name] for name in names))
    named = text if style is ParamStyle.NAMED else _MARK.sub(r"%(\1)s", text)
    return SqlStatement(named, {name: values[name] for name in names})


def checked_table(name: str) -> str:
    """Return ``name`` if it is the name of a table, with or without that of its schema. Anything
    else is refused, because the name becomes a part of statements.
    """
    if not is_text(name) or not _TABLE_NAME.fullmatch(name):
        raise ConfigurationError(
            f"{name!r} cannot be a table; use letters, digits and '_', such as 'leaderq_fences' or"
            " 'billing.fences'"
        )
    return name


def _check_columns(*names: str) -> None:
    require(
        *(
            f"{name!r} cannot be a column; use letters, digits and '_'"
            for name in names
            if not is_text(name) or not _COLUMN_NAME.fullmatch(name)
        )
    )


# -- the user's own connection ---------------------------------------------------------------------

_Execute = Callable[[SqlStatement], Any]


@contextmanager
def _executing(given: Any) -> Iterator[tuple[ParamStyle, _Execute]]:
    """Yields the parameter style of ``given``, and a function that executes a statement in its
    transaction.
    """
    if any(iscoroutinefunction(getattr(given, name, None)) for name in ("execute", "commit")):
        raise ConfigurationError(
            f"{given!r:.100} is asynchronous; execute what statement() and stored() return on it"
            " yourself, and pass the row to judge()"
        )
    if _is_of("sqlalchemy", given) and hasattr(given, "execute"):
        text = import_module("sqlalchemy").text
        yield (
            ParamStyle.NAMED,
            lambda statement: given.execute(text(statement.text), statement.parameters or None),
        )
        return
    connection = _connection_of(given)
    style = _style_of(connection)
    with closing(connection.cursor()) as cursor:  # its own: yours may hold rows

        def execute(statement: SqlStatement) -> Any:
            cursor.execute(*statement)
            return cursor

        yield style, execute


def _connection_of(given: Any) -> Any:
    connection = given if hasattr(given, "cursor") else getattr(given, "connection", None)
    if not hasattr(connection, "cursor"):
        raise ConfigurationError(
            f"{given!r:.100} is not a database connection; give one of sqlite3, psycopg or"
            " SQLAlchemy, or a cursor"
        )
    return connection


def _style_of(connection: Any) -> ParamStyle:
    for base in type(connection).__mro__:
        module = sys.modules.get(base.__module__.partition(".")[0])
        for style in ParamStyle:
            if getattr(module, "paramstyle", None) == style.value:
                return style
    raise ConfigurationError(
        f"it is not known how {type(connection)!r} marks parameters; execute what statement() and"
        " stored() return on it yourself, and pass the row to judge()"
    )


def _is_in_transaction(given: Any) -> bool | None:
    if not _is_of("sqlalchemy", given):
        return is_in_transaction(_connection_of(given))
    found = given.connection  # a method of a Session, a property of a Connection
    proxy = found().connection if callable(found) else found
    return is_in_transaction(getattr(proxy, "driver_connection", None))


def is_in_transaction(connection: Any) -> bool | None:
    """Whether a transaction is open; ``None`` where the driver cannot tell."""
    if is_sqlite(connection):
        return bool(connection.in_transaction)
    status = getattr(getattr(connection, "info", None), "transaction_status", None)
    return None if status is None else int(status) != 0


def is_sqlite(connection: Any) -> bool:
    return _is_of("sqlite3", connection)


def _is_of(package: str, given: Any) -> bool:
    return any(base.__module__.partition(".")[0] == package for base in type(given).__mro__)


def values_of(row: Any, *names: str) -> list[Any]:
    """The values of ``row`` in the order of ``names``. A row is a sequence, or a mapping if the
    connection makes such rows.
    """
    return [row[name if isinstance(row, Mapping) else at] for at, name in enumerate(names)]
