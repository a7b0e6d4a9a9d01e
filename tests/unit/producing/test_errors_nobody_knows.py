"""A store that is down, read-only, full, forbidden or just closed, behind its real client: an error
that nobody named costs no record.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from scripted_sink import Make

from leaderq.producing import EVERY_ITEM, CallableSink
from leaderq.testing import eventually

RECORDS = 200


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
    producer: Make,
    tmp_path: Path,
    breaks: Callable[[Path], sqlite3.Connection],
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = tmp_path / "store"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table t (number integer)")
    stored: list[Any] = []
    errors: list[sqlite3.Error] = []
    is_out = True

    def store(batch: list[Any]) -> None:
        if not is_out:
            stored.extend(batch)
            return
        try:
            with closing(breaks(path)) as connection:
                connection.executemany("insert into t values (?)", [(one,) for one in batch])
        except sqlite3.Error as exc:
            errors.append(exc)
            raise
        raise AssertionError("the outage let a batch pass")

    one = producer(
        CallableSink(store), journal=tmp_path / "journal", persistence=EVERY_ITEM, max_items=50
    )
    for number in range(RECORDS):
        one.send(number, on_durable=lambda error: None)
    eventually(lambda: len(errors) >= 3 and one.snapshot().sink_error is not None)
    balance = one.snapshot().balance
    assert (balance.failed, balance.dropped, balance.pending) == ({}, {}, RECORDS)
    assert "sink takes nothing, requests are kept" in caplog.text
    assert type(errors[-1]).__name__ in caplog.text
    is_out = False
    assert one.flush(60)
    assert stored == list(range(RECORDS))
