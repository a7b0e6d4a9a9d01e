"""A DB-API 2 connection that can be relied on to begin, commit and roll back, whatever its driver
calls these.

Drivers differ in who begins a transaction. PEP 249: the first statement does, and ``commit`` ends
it. ``sqlite3`` begins one only before some statements, unless told otherwise in one of three ways;
a connection in *autocommit* begins none, and its ``commit`` may do nothing. So where the connection
does not begin by itself, ``BEGIN``, ``COMMIT`` and ``ROLLBACK`` are sent as statements; in SQLite
``BEGIN IMMEDIATE``, which takes the lock for writing at once, so that it is waited for instead of
missed later.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, Protocol, cast

from leaderq.errors import ConfigurationError
from leaderq.kafka.stores.database_statements import checked_paramstyle

log = logging.getLogger(__name__)


class Cursor(Protocol):
    """What is used of a DB-API cursor."""

    @property
    def rowcount(self) -> int: ...
    def execute(self, statement: Any, parameters: Any = ..., /) -> Any: ...
    def executemany(self, statement: Any, parameters: Any, /) -> Any: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> Any: ...
    def close(self) -> Any: ...


class Connection(Protocol):
    """What is used of a DB-API connection."""

    def cursor(self) -> Any: ...
    def commit(self) -> Any: ...
    def rollback(self) -> Any: ...
    def close(self) -> Any: ...


class Database:
    """One connection, opened by ``connect`` when it is first needed, or given. For one thread.

    Raises :class:`~leaderq.errors.ConfigurationError` if ``connect`` gives something else, or a
    driver without ``paramstyle``.
    """

    def __init__(self, connect: Callable[[], Connection] | Connection, paramstyle: str | None) -> None:
        # Not callable(): a connection of sqlite3 can be called, too.
        is_given = hasattr(connect, "cursor")
        if not is_given and not callable(connect):
            raise ConfigurationError(f"{connect!r} is neither a database connection nor a function that opens one")
        self._connect = None if is_given else cast("Callable[[], Connection]", connect)
        self._paramstyle = checked_paramstyle(paramstyle) if paramstyle is not None else None
        self._connection: Connection | None = cast("Connection", connect) if is_given else None
        # Kept apart from the connection: its errors must be known for what they are after it was
        # given up.
        self._classes: tuple[type, ...] = type(connect).__mro__ if is_given else ()

    @property
    def connection(self) -> Connection:
        """The connection; opened now if it is not open."""
        if self._connection is None:
            assert self._connect is not None
            connection = self._connect()
            if not hasattr(connection, "cursor"):
                raise ConfigurationError(
                    f"the function that opens the database gave {connection!r}; it must give a DB-API connection"
                )
            self._connection, self._classes = connection, type(connection).__mro__
        return self._connection

    @property
    def paramstyle(self) -> str:
        """How the driver marks parameters."""
        if self._paramstyle is None:
            style = getattr(self._driver("paramstyle"), "paramstyle", None)
            if style is None:
                raise ConfigurationError(
                    f"the driver of {self.connection!r} does not say its paramstyle; give it as paramstyle=..."
                )
            self._paramstyle = checked_paramstyle(style)
        return self._paramstyle

    @property
    def error(self) -> type[Exception]:
        """The root of the driver's errors; of nothing, if it has none."""
        return self._error("Error")

    @property
    def integrity_error(self) -> type[Exception]:
        """What the driver raises when a key is taken."""
        return self._error("IntegrityError")

    def renew(self) -> None:
        """Open the connection anew, if we opened it; end a transaction left open on it otherwise."""
        if self._connect is not None:
            self.close()
        elif self._begin is None or self._is_in_transaction():
            self._end("ROLLBACK")

    def close(self) -> None:
        """Close the connection, if we opened it. Never raises for one that is broken."""
        if self._connect is None or self._connection is None:
            return
        connection, self._connection = self._connection, None
        try:
            connection.close()
        except Exception as exc:  # noqa: BLE001  (whatever a driver raises for a broken connection: it is given up)
            log.debug("a broken database connection did not close: %r", exc)

    @contextmanager
    def transaction(self) -> Iterator[Cursor]:
        """Begin, give a cursor, and commit; roll back whatever is raised, at whatever point."""
        if self._begin is not None and self._is_in_transaction():
            raise ConfigurationError(
                "a transaction is open on the database connection already; commit or roll it back before this one is begun"
            )
        with closing(self.connection.cursor()) as cursor:
            try:
                if self._begin is not None:
                    cursor.execute(self._begin)
                yield cursor
                self._end("COMMIT", cursor)
            except BaseException:
                self._abandon()
                raise

    def check_still_open(self) -> None:
        """Raise :class:`~leaderq.errors.ConfigurationError` if the transaction was ended by the
        code inside it, where that shows.
        """
        if self._is_in_transaction() is False:
            raise ConfigurationError(
                "the transaction was committed or rolled back inside the 'with' block; leave that to the block's end"
            )

    @property
    def _begin(self) -> str | None:
        """The statement that begins a transaction; ``None``: the first statement of any kind does."""
        autocommit = getattr(self.connection, "autocommit", None)
        if self._is_sqlite():
            return None if autocommit is False else "BEGIN IMMEDIATE"
        return "BEGIN" if autocommit is True else None

    def _end(self, how: str, cursor: Cursor | None = None) -> None:
        if self._begin is None:
            if how == "COMMIT":
                self.connection.commit()
            else:
                self.connection.rollback()
        elif cursor is not None:
            cursor.execute(how)
        else:
            # A cursor of its own: the user's may hold rows, or be closed.
            with closing(self.connection.cursor()) as own:
                own.execute(how)

    def _abandon(self) -> None:
        try:
            if self._begin is None or self._is_in_transaction() is not False:
                self._end("ROLLBACK")
        except Exception as exc:  # noqa: BLE001  (the first error is the one to raise; the server rolls a lost session back itself)
            log.warning("the database transaction could not be rolled back (%r); its connection is given up", exc)
            self.close()

    def _is_in_transaction(self) -> bool | None:
        """Whether a transaction is open; ``None`` where the driver cannot tell."""
        if self._is_sqlite():
            return bool(cast("Any", self.connection).in_transaction)
        status = getattr(getattr(self.connection, "info", None), "transaction_status", None)
        return None if status is None else int(status) != 0

    def _is_sqlite(self) -> bool:
        return any(base.__module__ == "sqlite3" for base in self._classes)

    def _driver(self, name: str) -> Any:
        """The module of the connection's class, or of one it derives from, that has ``name``."""
        roots = (base.__module__.partition(".")[0] for base in self._classes)
        return next((module for root in roots if hasattr(module := sys.modules.get(root), name)), None)

    def _error(self, name: str) -> type[Exception]:
        found = getattr(self._driver(name), name, None)
        return found if isinstance(found, type) and issubclass(found, Exception) else _NoError


class _NoError(Exception):
    """Never raised: stands for an error class that a driver lacks."""
