"""Stores that are down, read-only, full, forbidden or just closed, behind their real clients: an
error that nobody named costs no record."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from outages import Outage, loses_nothing

from leaderq.producing import CallableSink


class Sqlite(Outage):
    """``breaks`` returns the connection that fails, to a file with the table in it."""

    def __init__(self, path: Path, breaks: Callable[[Path], sqlite3.Connection]) -> None:
        super().__init__()
        self.path, self.breaks = path, breaks
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("create table t (number integer)")

    def fail(self, batch: list[Any]) -> None:
        connection = self.breaks(self.path)
        try:
            connection.executemany("insert into t values (?)", [(number,) for number in batch])
        finally:
            connection.close()


def read_only(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{path}?mode=ro", uri=True)


def full(path: Path) -> sqlite3.Connection:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table if not exists fill (data blob)")
        pages = connection.execute("pragma page_count").fetchone()[0]
        connection.execute(f"pragma max_page_count={pages}")
        connection.execute("insert into fill values (zeroblob(8000))")
    raise AssertionError("not reached")


def closed(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path)
    connection.close()
    return connection


def locked(path: Path) -> sqlite3.Connection:
    with (
        closing(sqlite3.connect(path, isolation_level=None)) as holder,
        closing(sqlite3.connect(path, timeout=0)) as connection,
    ):
        holder.execute("begin exclusive")
        connection.execute("insert into t values (0)")
    raise AssertionError("not reached")


def absent(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path.parent / "nowhere" / "file")


@pytest.mark.parametrize("breaks", [read_only, full, closed, locked, absent])
def test_sqlite_costs_no_record(
    tmp_path: Path, breaks: Callable[[Path], sqlite3.Connection], caplog: pytest.LogCaptureFixture
) -> None:
    outage = Sqlite(tmp_path / "store", breaks)
    loses_nothing(CallableSink(outage), outage, tmp_path / "journal", caplog)
    assert isinstance(outage.error, sqlite3.Error)
