"""The check of a store that compares terms: what we ship passes it, and each store that does not
fence, or not in one step, is told what it let through.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from leaderq.errors import ConfigurationError, Deposed, Reason
from leaderq.fencing import FencingToken, SqlFence
from leaderq.testing import check_fencing
from leaderq.testing.fencing import WriteOrder

QUICK: Any = {"threads": 2, "writes": 3, "blocked_after_s": 0.2}
# Where nobody waits for anybody: a write is done, or hangs.
UNHURRIED = {**QUICK, "blocked_after_s": 10.0}


class Database:
    def __init__(
        self, path: Path, hold: Callable[..., object] | None = None, *, in_two_steps: bool = False
    ) -> None:
        self._path = path / "store"
        self._in_two_steps = in_two_steps
        self._hold = hold or (lambda connection, name, term: SqlFence(name).hold(connection, term))
        with closing(self._connection()) as connection, connection:
            SqlFence("-").create_table(connection)
            connection.execute("CREATE TABLE register (name PRIMARY KEY, value)")

    def _connection(self, **options: Any) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=30, **options)

    @contextmanager
    def write(self, name: str, term: FencingToken, value: str) -> Iterator[None]:
        with closing(self._connection()) as connection, connection:
            self._hold(connection, name, term)
            if self._in_two_steps:
                connection.commit()
                yield
            connection.execute("INSERT OR REPLACE INTO register VALUES (?, ?)", (name, value))
            if not self._in_two_steps:
                yield

    def read(self, name: str) -> object:
        with closing(self._connection()) as connection:
            row = connection.execute("SELECT value FROM register WHERE name = ?", (name,))
            return next(iter(row.fetchall()), (None,))[0]


def test_a_fenced_database_passes(tmp_path):
    store = Database(tmp_path)
    report = check_fencing(store.write, store.read, **QUICK)
    assert report.holds, report
    assert str(report).splitlines() == [f"{order.value}: as it must be" for order in WriteOrder]


def compared_as_text(connection: sqlite3.Connection, name: str, term: FencingToken) -> None:
    SqlFence(name).hold(connection, FencingToken(term.career, 1))
    row = connection.execute("SELECT term FROM leaderq_fences WHERE resource = ?", (name,))
    if str(row.fetchone()[0]) > str(term.number):
        raise Deposed(term=term.number, reason=Reason.FENCED)
    connection.execute("UPDATE leaderq_fences SET term = ?", (term.number,))


def equal_is_refused(connection: sqlite3.Connection, name: str, term: FencingToken) -> None:
    SqlFence(name).hold(connection, FencingToken(term.career, term.number))
    SqlFence(name).hold(connection, FencingToken(term.career, term.number + 1))


@pytest.mark.parametrize(
    ("hold", "orders"),
    [
        (lambda *_: None, {WriteOrder.AFTER}),
        (compared_as_text, {WriteOrder.AFTER}),
        (equal_is_refused, {WriteOrder.EQUAL}),
    ],
)
def test_a_database_that_does_not_fence_is_found_out(tmp_path, hold, orders):
    store = Database(tmp_path, hold)
    report = check_fencing(store.write, store.read, **QUICK)
    assert orders <= set(report.problems)
    assert not report.holds


def test_a_fence_that_is_committed_before_the_write_is_found_out(tmp_path):
    store = Database(tmp_path, in_two_steps=True)
    problems = check_fencing(store.write, store.read, **UNHURRIED).problems
    assert {WriteOrder.FIRST_OLDER, WriteOrder.OLDER_OPEN} <= set(problems)
    assert problems[WriteOrder.OLDER_OPEN] == (
        "LET THROUGH: 'older' stands in the store, and must be 'newer'"
    )
    assert WriteOrder.AFTER not in problems


def test_a_store_that_hangs_or_never_writes_is_told_and_waited_for_no_longer_than_asked():
    @contextmanager
    def hangs(_name: str, term: FencingToken, _value: str) -> Iterator[None]:
        threading.Event().wait(None if term.number == 10 else 0)
        yield

    @contextmanager
    def fails(*_: object) -> Iterator[None]:
        yield
        raise error

    report = check_fencing(hangs, lambda _: "older", timeout_s=0.05, blocked_after_s=0.01)
    assert "hangs: nothing for 0.05 s" in report.problems[WriteOrder.EQUAL]
    for error in (OSError("no disk"), pytest.fail.Exception("by the user's own code")):
        report = check_fencing(fails, lambda _: None, timeout_s=2, blocked_after_s=0.01)
        said = f"is not let in: {type(error).__name__}: {error}"
        assert said in report.problems[WriteOrder.AFTER]


def test_arguments_that_cannot_be_used_are_refused():
    with pytest.raises(ConfigurationError, match=r"write=5.*read is None.*timeout_s=0.*threads=0"):
        check_fencing(5, None, timeout_s=0, threads=0)
