"""Coroutines that drain a real Kafka: planned changes repeat nothing, kills lose nothing."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from reading_topics import read_all

from leaderq.kafka.topics import committed as stored
from leaderq.kafka.topics import create_topics, end_offsets
from leaderq.testing import eventually
from leaderq.testing.candidate_process import CandidateProcess

CAREER = """
import asyncio
import os

from leaderq import AsyncKafkaLeaderCareer


class Drain(AsyncKafkaLeaderCareer):
    topics = os.environ["TOPIC"]
    group = os.environ["TOPIC"]
    name = os.environ["TOPIC"]
    offsets = "transaction"
    order = "key"
    concurrency = 40
    max_records = 120
    auto_offset_reset = "earliest"

    async def handle_record(self, record, term):
        await asyncio.sleep(0.02)
        self.produce(os.environ["TOPIC"] + "-out", record.value, partition=record.partition)
        with open(os.environ["NOTES"], "a") as notes:
            print(term.number, record.partition, record.offset, record.key.decode(), file=notes)
"""


def handled(notes: Path) -> list[tuple[int, int, int, str]]:
    if not notes.exists():
        return []
    rows = [line.split() for line in notes.read_text().splitlines()]
    return [(int(row[0]), int(row[1]), int(row[2]), row[3]) for row in rows]


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_what_coroutines_produce_is_there_once_whoever_ends_them(
    end: signal.Signals,
    kafka_broker: Any,
    zookeeper_server: Any,
    four_partitions: str,
    feed: Any,
    znode_root: str,
    tmp_path: Path,
) -> None:
    topic, notes = four_partitions, tmp_path / "notes"
    create_topics(kafka_broker.address, {f"{topic}-out": 4})
    values = feed(0, 1200)
    (tmp_path / "draining.py").write_text(CAREER)

    def candidate(name: str) -> CandidateProcess:
        return CandidateProcess(
            "draining:Drain",
            id=name,
            zookeeper=zookeeper_server.address,
            kafka=kafka_broker.address,
            cwd=tmp_path,
            arguments=["--root", znode_root],
            environment={"TOPIC": topic, "NOTES": str(notes)},
        )

    with candidate("a") as a, candidate("b") as b:
        eventually(lambda: len(handled(notes)) >= 300, timeout_s=60)
        leader, other = (a, b) if a.said("stage_began", stage="execution") else (b, a)
        if end is signal.SIGTERM:
            leader.terminate()
        else:
            leader.signal_worker(end)
        other.wait_for("stage_began", stage="execution")
        ends = end_offsets(kafka_broker.address, topic)
        eventually(lambda: stored(kafka_broker.address, topic, topic) == ends, timeout_s=90)

    seen = handled(notes)
    by_key: dict[tuple[int, str], list[int]] = {}
    for _term, partition, offset, key in dict.fromkeys(seen):
        by_key.setdefault((partition, key), []).append(offset)
    out = read_all(kafka_broker.address, f"{topic}-out", isolation="read_committed")
    assert sorted(int(record.value) for record in out) == sorted(map(int, values))
    times = Counter((partition, offset) for _term, partition, offset, _key in seen)
    assert len(times) == len(values)
    if end is signal.SIGTERM:
        assert set(times.values()) == {1}, "a planned change repeats nothing"
        assert all(offsets == sorted(offsets) for offsets in by_key.values())
    else:
        assert sum(times.values()) <= len(values) + 120
