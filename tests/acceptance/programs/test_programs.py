"""Three programs, written from the docstrings alone: each is typed strictly, and runs as it
stands.
"""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from leaderq.kafka.topics import create_topics
from leaderq.producing import BufferedProducer, KafkaSink
from leaderq.testing import eventually
from leaderq.testing.candidate_process import CandidateProcess

HERE = Path(__file__).parent


def run(program: str, *arguments: str) -> str:
    command = [sys.executable, "-X", "dev", "-W", "error", str(HERE / program), *arguments]
    return subprocess.run(
        command, check=True, text=True, stdout=subprocess.PIPE, timeout=150
    ).stdout


def test_a_block_and_a_loop_lead(zookeeper_server, znode_root):
    said = run("report.py", zookeeper_server.address + znode_root, "a")
    assert said == "a wrote report 1\na leads term 2\n"


def test_a_service_on_asyncio_renders_each_page_and_not_each_wish(zookeeper_server, znode_root):
    said = run("service.py", zookeeper_server.address, f"{znode_root}/pages", "30")
    wanted, rendered, pages = (int(part.split()[0]) for part in said.split(", "))
    assert (wanted, pages) == (30, 3)
    assert 3 <= rendered <= 30


def test_payments_are_booked_once_and_what_is_none_is_set_aside(
    zookeeper_server, kafka_broker, znode_root, tmp_path
):
    create_topics(kafka_broker.address, {"payments": 2})
    good = [b'{"account": "a%d", "cents": %d}' % (number % 7, number) for number in range(200)]
    with BufferedProducer(KafkaSink(kafka_broker.address, "payments")) as producer:
        for value in (*good[:100], b"no JSON", b'{"account": "a1"}', *good[100:]):
            producer.send((b"key", value))
    database = tmp_path / "booked.sqlite3"
    (tmp_path / "leaderq.toml").write_text(f"[careers.payments.options]\ndatabase = '{database}'\n")
    process = CandidateProcess(
        "payments:Payments",
        id="a",
        zookeeper=zookeeper_server.address + znode_root,
        kafka=kafka_broker.address,
        cwd=tmp_path,
        environment={"PYTHONPATH": f"{HERE}:{Path(__file__).parents[3]}"},
    ).start()
    try:
        eventually(lambda: booked(database) == (200, sum(range(200))), timeout_s=60)
        process.process.send_signal(signal.SIGTERM)
        assert process.process.wait(60) == 0
    finally:
        process.stop()
    assert booked(database) == (200, sum(range(200)))
    said = [str(line.get("message")) for line in process.lines]
    assert sum("record set aside" in line and "topic=payments-dead" in line for line in said) == 2


def booked(database: Path) -> tuple[int, int]:
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as reading:
        found: tuple[int, int] = reading.execute(
            "SELECT COUNT(*), SUM(cents) FROM booked"
        ).fetchone()
    return found
