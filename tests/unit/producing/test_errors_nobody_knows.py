"""Stores that are down, read-only, full, forbidden or just closed, behind their real clients: an
error that nobody named costs no record."""

from __future__ import annotations

import http.server
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import requests
from outages import Outage, loses_nothing

from leaderq.producing import CallableSink, Journal


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


@pytest.fixture
def refusing_server() -> Iterator[tuple[str, list[int]]]:
    """An HTTP server that answers with the last of the statuses, and how it says so."""
    statuses = [503]

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            if statuses[-1] == 0:
                return  # closes the connection without an answer
            self.send_response(statuses[-1])
            self.end_headers()

        def log_message(self, *words: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/", statuses
    server.shutdown()
    thread.join()
    server.server_close()


class Http(Outage):
    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url

    def fail(self, batch: list[Any]) -> None:
        requests.post(self.url, json=batch, timeout=5).raise_for_status()


@pytest.mark.parametrize("status", [503, 403, 401, 404, 429, 507, 0])
def test_a_refusing_http_server_costs_no_record(
    refusing_server: tuple[str, list[int]],
    status: int,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    url, statuses = refusing_server
    statuses.append(status)
    outage = Http(url)
    loses_nothing(CallableSink(outage), outage, tmp_path / "journal", caplog)
    assert isinstance(outage.error, requests.RequestException)


def test_a_journal_of_ours_that_is_closed_costs_no_record(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = Journal(tmp_path / "other")
    other.close()

    class Closed(Outage):
        def fail(self, batch: list[Any]) -> None:
            other.append_many([b"%d" % number for number in batch])

    outage = Closed()
    with caplog.at_level(logging.WARNING):
        loses_nothing(CallableSink(outage), outage, tmp_path / "journal", caplog)
    assert "JournalClosed" in caplog.text
