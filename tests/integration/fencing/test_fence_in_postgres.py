"""The fence in a real PostgreSQL: two terms in every order, at every isolation level."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from leaderq.errors import ConfigurationError, Deposed
from leaderq.fencing import FencedRows, FencingToken, SqlFence
from leaderq.testing import check_fencing

FENCE = SqlFence("bills")
NINE, TEN = FencingToken("c", 9), FencingToken("c", 10)
QUICK: Any = {"threads": 2, "writes": 5, "blocked_after_s": 0.2}
LEVELS = ["read committed", "repeatable read", "serializable"]


@pytest.fixture
def connect(postgres) -> Iterator[Callable[..., Any]]:
    opened = []

    def connect(level: str = LEVELS[0], **options: Any) -> Any:
        quoted = level.replace(" ", "\\ ")
        set_to = f"-c default_transaction_isolation={quoted} -c lock_timeout=20s"
        opened.append(postgres.connect(options=set_to, **options))
        return opened[-1]

    with connect() as connection:
        FENCE.create_table(connection)
        connection.execute("CREATE TABLE register (name TEXT PRIMARY KEY, value TEXT, term BIGINT)")
    yield connect
    for one in opened:
        one.close()


def a_fence(connection: Any, name: str, term: FencingToken, value: str) -> None:
    SqlFence(name).hold(connection, term)
    connection.execute(
        "INSERT INTO register VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET value = %s",
        (name, value, value),
    )


def rows(connection: Any, name: str, term: FencingToken, value: str) -> None:
    FencedRows("register", key="name").put(connection, term, {"name": name, "value": value})


def held_late(connection: Any, name: str, term: FencingToken, value: str) -> None:
    connection.execute("SELECT 1")  # the snapshot of the stricter levels
    a_fence(connection, name, term, value)


def stores(connect: Callable[..., Any], level: str, how: Callable[..., None]) -> tuple[Any, Any]:
    @contextmanager
    def write(name: str, term: FencingToken, value: str) -> Iterator[None]:
        with connect(level) as connection:
            how(connection, name, term, value)
            yield

    def read(name: str) -> object:
        with connect() as connection:
            found = connection.execute("SELECT value FROM register WHERE name = %s", (name,))
            return (found.fetchone() or (None,))[0]

    return write, read


@pytest.mark.parametrize(
    ("level", "how"),
    [
        *((LEVELS[0], how) for how in (a_fence, rows, held_late)),
        (LEVELS[1], rows),
        (LEVELS[2], held_late),
    ],
    ids=lambda one: getattr(one, "__name__", one),
)
def test_an_older_term_is_refused_or_blocked_in_every_order(connect, level, how):
    report = check_fencing(*stores(connect, level, how), **QUICK)
    assert report.holds, report


def test_a_transaction_that_began_first_and_comes_late_is_refused_and_failures_are_passed_on(
    connect,
):
    import psycopg

    for level in LEVELS:
        older, newer = connect(level), connect(level)
        older.execute("SELECT 1")  # its transaction begins before the newer one's
        with newer:
            FENCE.hold(newer, TEN)
        if level != LEVELS[0]:
            with pytest.raises(psycopg.errors.SerializationFailure):
                FENCE.hold(older, NINE)
            older.rollback()
        with pytest.raises(Deposed):
            FENCE.hold(older, NINE)
        older.rollback()
        with connect() as connection:
            connection.execute("DELETE FROM leaderq_fences")


def test_a_connection_in_autocommit_needs_a_transaction(connect):
    connection = connect(autocommit=True)
    with pytest.raises(ConfigurationError, match="begin a transaction first"):
        FENCE.hold(connection, NINE)
    with connection.transaction():
        FENCE.hold(connection, TEN)
    with pytest.raises(Deposed), connection.transaction():
        FENCE.hold(connection.cursor(), NINE)


def test_an_asynchronous_connection_is_told_what_to_do(postgres):
    import asyncio

    import psycopg

    async def hold() -> None:
        where = f"host=127.0.0.1 port={postgres.port} user=leaderq dbname={postgres.name}"
        async with await psycopg.AsyncConnection.connect(where) as connection:
            await connection.execute(FENCE.definition)
            with pytest.raises(ConfigurationError, match="is asynchronous"):
                FENCE.hold(connection, NINE)
            for token in (TEN, NINE):
                await connection.execute(*FENCE.statement(token, "pyformat"))
                row = await (await connection.execute(*FENCE.stored("pyformat"))).fetchone()
                FENCE.judge(token, row)

    with pytest.raises(Deposed):
        asyncio.run(hold())
