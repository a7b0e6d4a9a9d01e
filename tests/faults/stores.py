"""Where the careers under faults leave their results, and how the tests read them without leaderq's
help.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

from kafka import KafkaConsumer, TopicPartition
from verdicts import Handled, Result

from leaderq.config import KafkaSecurity
from leaderq.kafka.clients.kafka_python_connection import connected, connection_options


class Results(Protocol):
    """The results of one career."""

    target: str
    environment: Mapping[str, str]

    def results(self) -> list[Result]:
        """Those there are now, in the order in which they were stored."""


class HandledFiles:
    """The files of ``handled_career``; results are in no order between processes."""

    target = "handled_career:Handled"

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self.environment = {"RESULTS": str(folder)}

    def handled(self) -> list[Handled]:
        """Each handling, in order within its term."""
        found = []
        for path in sorted(self._folder.glob("*.jsonl")):
            for line in path.read_text().splitlines():
                one = json.loads(line)
                found += [Handled(one["term"], one["batch"], *place) for place in one["rows"]]
        return found

    def results(self) -> list[Result]:
        return [Result(one.partition, one.offset, one.term) for one in self.handled()]


class OutputTopic:
    """The topic to which ``transaction_career`` produces, as a read_committed consumer sees it."""

    target = "transaction_career:Transformed"

    def __init__(self, kafka: str, topic: str, partitions: int) -> None:
        self.environment = {"OUTPUT": topic}
        self._seen: list[Result] = []
        # Made by leaderq, as one made plainly leaves a socket behind at each attempt while the
        # broker is away.
        options = connection_options(kafka, KafkaSecurity())
        reading = {
            "isolation_level": "read_committed",
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
        }
        self._consumer: Any = connected(KafkaConsumer, kafka, {**options, **reading})
        self._partitions = [TopicPartition(topic, number) for number in range(partitions)]
        self._consumer.assign(self._partitions)

    def results(self) -> list[Result]:
        self._read()
        return list(self._seen)

    def all_results(self) -> list[Result]:
        """All that will ever be, once nobody produces any more: read to the end of every partition,
        open transactions included.
        """
        ends = self._consumer.end_offsets(self._partitions)
        while any(self._consumer.position(where) < end for where, end in ends.items()):
            self._read()
        return list(self._seen)

    def _read(self) -> None:
        for rows in self._consumer.poll(timeout_ms=50, max_records=5000).values():
            self._seen += [Result(*json.loads(row.value)) for row in rows]

    def close(self) -> None:
        self._consumer.close()


class SqliteTable:
    """The table of ``database_career`` in a SQLite file; nothing in it is unique, so repetitions
    show.
    """

    target = "database_career:Stored"

    def __init__(self, path: Path) -> None:
        self._path = path
        self.environment = {"RESULTS": str(path)}
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(
                "CREATE TABLE results (number INTEGER, offset_ INTEGER, term INTEGER, id INTEGER"
                " PRIMARY KEY AUTOINCREMENT)"
            )

    def results(self) -> list[Result]:
        with closing(sqlite3.connect(self._path, timeout=20)) as connection:
            rows = connection.execute(
                "SELECT number, offset_, term FROM results ORDER BY id"
            ).fetchall()
        return [Result(*row) for row in rows]


class PostgresTable:
    """The same in PostgreSQL."""

    target = "database_career:Stored"

    def __init__(self, database: Any) -> None:
        self._database = database
        self.environment = {"RESULTS": database.conninfo}
        with database.connect(autocommit=True) as connection:
            connection.execute(
                "CREATE TABLE results (number INTEGER, offset_ BIGINT, term BIGINT, id BIGSERIAL)"
            )

    def results(self) -> list[Result]:
        with self._database.connect() as connection:
            rows = connection.execute(
                "SELECT number, offset_, term FROM results ORDER BY id"
            ).fetchall()
        return [Result(*row) for row in rows]
