"""Real servers that are read-only, full, forbidden or just closed: no record is lost for it."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.security import READ_ACL_UNSAFE
from outages import RECORDS, Outage, loses_nothing
from postgres import Database
from reading_topics import Read

from leaderq.producing import EVERY_ITEM, BufferedProducer, CallableSink, KafkaSink
from leaderq.testing import eventually

SENT = [b"%d" % number for number in range(RECORDS)]


class Postgres(Outage):
    """``breaks`` prepares the connection on which the insert then fails."""

    def __init__(self, database: Database, breaks: Callable[[Any], object]) -> None:
        super().__init__()
        self.database, self.breaks = database, breaks
        with database.connect() as connection:  # type: ignore[attr-defined]
            connection.execute("create table t (number integer)")
            connection.execute("create role reader")
            connection.execute("grant select on t to reader")

    def fail(self, batch: list[Any]) -> None:
        with self.database.connect(autocommit=True) as connection:  # type: ignore[attr-defined]
            self.breaks(connection)
            with connection.cursor() as cursor:
                cursor.executemany("insert into t values (%s)", [(one,) for one in batch])


DISK_FULL = "do $$ begin raise exception using errcode = '53100'; end $$"


@pytest.mark.parametrize(
    ("breaks", "kind"),
    [
        (lambda one: one.close(), psycopg.OperationalError),
        (
            lambda one: one.execute("set default_transaction_read_only = on"),
            psycopg.errors.ReadOnlySqlTransaction,
        ),
        (lambda one: one.execute("set role reader"), psycopg.errors.InsufficientPrivilege),
        (lambda one: one.execute(DISK_FULL), psycopg.errors.DiskFull),
        (lambda one: one.execute("drop table if exists t"), psycopg.errors.UndefinedTable),
        (
            lambda one: one.execute("select pg_terminate_backend(pg_backend_pid())"),
            psycopg.OperationalError,
        ),
    ],
    ids=["closed", "read-only", "forbidden", "full", "no table", "terminated"],
)
def test_postgresql_costs_no_record(
    postgres: Database,
    breaks: Callable[[Any], object],
    kind: type[Exception],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    outage = Postgres(postgres, breaks)
    try:
        loses_nothing(CallableSink(outage), outage, tmp_path, caplog)
    finally:
        with postgres.connect(autocommit=True) as connection:  # type: ignore[attr-defined]
            connection.execute("drop table if exists t")
            connection.execute("drop role reader")
    assert isinstance(outage.error, kind)


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_kazoo_client_that_may_not_write_or_is_closed_costs_no_record(
    zookeeper_server: Any,
    znode_root: str,
    is_closed: bool,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = KazooClient(zookeeper_server.address)
    client.start(30)
    client.ensure_path(znode_root)
    client.create(f"{znode_root}/p", acl=[*READ_ACL_UNSAFE])

    class Kazoo(Outage):
        def fail(self, batch: list[Any]) -> None:
            client.create(f"{znode_root}/p/item", b"", sequence=True)

    if is_closed:
        client.stop()
        client.close()
    outage = Kazoo()
    loses_nothing(CallableSink(outage), outage, tmp_path, caplog)
    assert isinstance(outage.error, KazooException)
    if not is_closed:
        client.stop()
        client.close()


def test_a_kafka_that_is_down_costs_no_record(
    kafka_broker: Any, topic: str, stored: Read, tmp_path: Path
) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
    sink = KafkaSink(f"127.0.0.1:{port}", topic, open_timeout_s=0.2)
    producer = BufferedProducer(sink, journal=tmp_path, persistence=EVERY_ITEM)
    for value in SENT:
        producer.send((b"one key", value), on_durable=lambda error: None)
    eventually(lambda: producer.snapshot().retries >= 2)
    settlement = producer.close(0.1)
    assert (bool(settlement), settlement.journaled) == (True, RECORDS)
    with BufferedProducer(KafkaSink(kafka_broker.address, topic), journal=tmp_path) as second:
        assert second.flush(60)
    assert [one.value for one in stored()] == SENT
