"""The fence in SQLite: what is refused, in which kinds of connection, and what is not executed."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from terms import open_term

from leaderq.errors import ConfigurationError, Deposed
from leaderq.fencing import FencedRows, FencingToken, ParamStyle, SqlFence

FENCE = SqlFence("bills")
ROWS = FencedRows("reports", key="name")
Connect = Callable[..., Any]


def token(number: int, career: str = "c") -> FencingToken:
    return FencingToken(career, number)


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[Connect]:
    opened = []

    def connect(**options: Any) -> sqlite3.Connection:
        opened.append(sqlite3.connect(tmp_path / "store", timeout=0.1, **options))
        return opened[-1]

    with closing(connect()) as connection, connection:
        FENCE.create_table(connection)
        FENCE.create_table(connection)
        connection.execute("CREATE TABLE bills (amount)")
        connection.execute("CREATE TABLE reports (name PRIMARY KEY, text, term BIGINT)")
    yield connect
    for one in opened:
        one.close()


def as_dict(cursor: sqlite3.Cursor, row: Any) -> dict[str, Any]:
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}


@pytest.mark.parametrize("row_factory", [None, sqlite3.Row, as_dict])
@pytest.mark.parametrize("through", ["connection", "cursor"])
def test_an_older_term_is_refused_and_an_equal_one_is_not(connect, row_factory, through):
    connection, term = connect(), open_term(9)
    connection.row_factory = row_factory
    given = connection if through == "connection" else connection.cursor()
    for number in (9, 9, 10, 10):
        with connection:
            FENCE.hold(given, token(number))
            connection.execute("INSERT INTO bills VALUES (?)", (number,))
    told = "resource 'bills' in table leaderq_fences"
    with pytest.raises(Deposed, match=told) as refused, connection:
        connection.execute("INSERT INTO bills VALUES (99)")
        FENCE.hold(given, term)
    assert refused.value.newest == 10
    with pytest.raises(Deposed):
        term.check()
    connection.row_factory = None
    assert [*connection.execute("SELECT amount FROM bills")] == [(9,), (9,), (10,), (10,)]


def test_a_resource_belongs_to_one_career(connect):
    connection = connect()
    FENCE.hold(connection, token(1))
    with pytest.raises(ConfigurationError, match="belongs to career 'c'"):
        FENCE.hold(connection, token(2, "other"))
    SqlFence("others").hold(connection, token(2, "other"))


def test_the_drivers_own_transaction_is_used_and_not_ended(connect):
    connection, other = connect(), connect()
    FENCE.hold(connection, token(1))
    with pytest.raises(sqlite3.OperationalError, match="locked"):  # what the driver says passes
        FENCE.hold(other, token(2))
    connection.rollback()
    FENCE.hold(other, token(2))


def test_a_connection_that_commits_each_statement_is_refused_outside_a_transaction(connect):
    connection = connect(isolation_level=None)
    with pytest.raises(ConfigurationError, match="begin a transaction first"):
        FENCE.hold(connection, token(1))
    connection.execute("BEGIN IMMEDIATE")
    FENCE.hold(connection, token(1))
    connection.execute("ROLLBACK")


async def work() -> None: ...


@pytest.mark.parametrize(
    ("methods", "told"),
    [
        ({}, "it is not known how"),
        ({"commit": work}, "is asynchronous"),
        ({"execute": work}, "is asynchronous"),
    ],
)
def test_an_unknown_driver_and_an_asynchronous_one_are_told_what_to_do(methods, told):
    given = SimpleNamespace(cursor=lambda: closing(None), **methods)
    with pytest.raises(ConfigurationError, match=rf"{told}.* statement\(\) and stored\(\) return"):
        FENCE.hold(given, token(1))


def test_only_a_number_of_a_term_reaches_the_database(connect):
    term = SimpleNamespace(career="c", number="7")
    connection = connect()
    for write, *given in ((FENCE.hold,), (ROWS.put, {"name": "a"})):
        with pytest.raises(ConfigurationError, match="give the number of a term, 1 to 9223372036"):
            write(connection, term, *given)
    assert not connection.in_transaction


@pytest.mark.parametrize("row", [None, ("c", 4)])
def test_a_table_that_keeps_nothing_lets_nothing_through(row):
    with pytest.raises(ConfigurationError, match="does not keep what was written"):
        FENCE.judge(token(5), row)


def test_the_statements_are_written_in_each_style():
    texts = {style: FENCE.stored(style.value) for style in ParamStyle}
    assert {style.name: text.text.rpartition("= ")[2] for style, text in texts.items()} == {
        "QMARK": "?", "FORMAT": "%s", "NAMED": ":resource", "PYFORMAT": "%(resource)s",
    }  # fmt: skip
    assert texts[ParamStyle.QMARK].parameters == ("bills",)
    assert texts[ParamStyle.NAMED].parameters == {"resource": "bills"}
    assert FENCE.statement(token(7), "qmark").parameters == ("bills", "c", 7)
    with pytest.raises(ConfigurationError, match="give one of 'qmark', 'format', 'named'"):
        FENCE.stored("numeric")


@pytest.mark.parametrize("name", ["", "a b", 'a"b', "a.b.c", ".a", "1a", "täble", "a\n", 3])
def test_a_name_that_could_be_more_than_a_name_is_refused(name):
    for make in (
        lambda: SqlFence("r", table=name),
        lambda: FencedRows(name, key="id"),
        lambda: FencedRows("t", key="id", column=name),
        lambda: FencedRows("t", key=[name]),
        lambda: FencedRows("t", key="id").statement(token(1), {"id": 1, name: 2}, "named"),
    ):
        with pytest.raises(ConfigurationError, match="cannot be a"):
            make()


def test_a_resource_is_a_name():
    with pytest.raises(ConfigurationError, match=r"resource=.*give a text of 1 to 255"):
        SqlFence("a\0")


def reports(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
    return connection.execute("SELECT name, text, term FROM reports").fetchall()


@pytest.mark.parametrize("isolation_level", ["", None])
def test_a_row_is_written_unless_a_newer_term_has_written_it(connect, isolation_level):
    connection = connect(isolation_level=isolation_level)
    connection.execute("INSERT INTO reports VALUES ('a', 'from before there were terms', NULL)")
    for number, text in ((9, "x"), (9, "y"), (10, "z")):
        ROWS.put(connection, token(number), {"name": "a", "text": text})
    with pytest.raises(Deposed, match=r"row \['a'\] of table reports has seen term 10"):
        ROWS.put(connection, token(9), {"text": "late", "name": "a"})
    ROWS.put(connection, token(9), {"name": "b", "text": "its own fence"})
    assert reports(connection) == [("a", "z", 10), ("b", "its own fence", 9)]


@pytest.mark.parametrize("stored", ["", "INSERT INTO reports VALUES ('a', '', NULL)"])
def test_a_row_that_is_not_kept_is_not_taken_for_written(connect, stored):
    connection = connect()
    connection.execute(stored)
    connection.execute("CREATE TRIGGER t BEFORE INSERT ON reports BEGIN SELECT RAISE(IGNORE); END")
    with pytest.raises(ConfigurationError, match="does not keep what was written to it"):
        ROWS.put(connection, token(9), {"name": "a"})


def test_a_row_is_one_statement_with_each_column_once():
    rows = FencedRows("s.t", key=["a", "b"], column="epoch")
    assert rows.statement(token(7), {"a": 1, "c": 3, "b": 2}, "qmark") == (
        "INSERT INTO s.t AS kept (a, b, c, epoch) VALUES (?, ?, ?, ?) ON CONFLICT (a, b) DO UPDATE"
        " SET c = excluded.c, epoch = excluded.epoch WHERE COALESCE(kept.epoch, 0) <="
        " excluded.epoch",
        (1, 2, 3, 7),
    )


def test_a_row_without_its_key_or_with_a_term_of_its_own_is_refused(connect):
    with pytest.raises(ConfigurationError, match="row has no 'name'; row has 'term', which"):
        ROWS.put(connect(), token(1), {"text": "x", "term": 4})


@pytest.mark.parametrize("through", ["connection", "session"])
def test_sqlalchemys_term_is_refused_if_it_is_older_and_a_transaction_is_needed(tmp_path, through):
    sqlalchemy = pytest.importorskip("sqlalchemy", reason="pip install -e '.[dev]'")
    orm = pytest.importorskip("sqlalchemy.orm")
    older, newer, rows = token(9), token(10), FencedRows("rows", key="id")
    engine: Any = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'store'}")
    opened = engine.connect if through == "connection" else lambda: orm.Session(engine)
    with opened() as given:
        FENCE.create_table(given)
        given.execute(sqlalchemy.text("CREATE TABLE rows (id INTEGER PRIMARY KEY, term BIGINT)"))
        for one in (older, newer, newer):
            FENCE.hold(given, one)
            rows.put(given, one, {"id": 1})
        given.commit()
        for refuse in (lambda: FENCE.hold(given, older), lambda: rows.put(given, older, {"id": 1})):
            with pytest.raises(Deposed):
                refuse()
    autocommit = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
    with autocommit as given, pytest.raises(ConfigurationError, match="begin a transaction first"):
        FENCE.hold(given, newer)
    with pytest.raises(ConfigurationError, match="is not a database connection"):
        FENCE.hold(engine, newer)
    engine.dispose()
