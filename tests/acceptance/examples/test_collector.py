"""The collector: by its README, and killed while Kafka is away."""

from __future__ import annotations

import http.client
import json
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from following_readmes import EXAMPLES, Reader, Terminal, commands
from own_broker import own_broker  # noqa: F401  (in place of the session's: it is killed here)

from leaderq.kafka.topics import create_topics, end_offsets
from leaderq.testing import KafkaBroker, eventually
from leaderq.testing.ports import lease_port

Read = Callable[[Path], Reader]
LINE = '{client} - - [17/May/2015:10:05:03 +0000] "GET /{number} HTTP/1.1" 200 10 "-" "Mozilla/5.0"'


@pytest.fixture
def port() -> Iterator[int]:
    # out of reach of all that is given any port, also while the collector is down
    leased = lease_port()
    yield leased.number
    leased.release()


def stats(port: int) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/stats", timeout=10) as answer:
        return json.load(answer)


@pytest.mark.timeout(300)
def test_the_collector_does_what_its_readme_says(reader: Read, tmp_path: Path, port: int) -> None:
    servers, feed, collect, visit, look = commands(EXAMPLES / "collector" / "README.rst")
    user = reader(EXAMPLES)
    user.starts_servers(servers)
    assert user.types(feed) == "fed 8000 records; clicks holds 8000\n"
    # A port and a folder of the test's own; a reader has those of the text.
    collector = user.opens(f"{collect} --port {port} --journal {tmp_path / 'journal'}")
    collector.wait_for(rf"collecting on port {port}; 0 clicks found")
    assert user.types(f"{visit} --port {port}") == "1000 clicks of 1000 were taken\n"
    eventually(
        lambda: '"confirmed": 1000' in user.types(look.replace("8080", str(port))), timeout_s=30
    )
    assert sum(end_offsets(user.environment["LEADERQ_KAFKA"], "clicks").values()) == 9000
    assert post(port, b"no log line")[0] == 400
    assert post(port, b"", "/elsewhere")[0] == 404
    assert collector.interrupt() == 0
    assert "stopped; 0 clicks are left" in collector.printed


def post(port: int, body: bytes, path: str = "/clicks") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=15)
    try:
        connection.request("POST", path, body)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


class Visitor(threading.Thread):
    """One client that clicks and clicks; ``taken`` are the numbers of the clicks answered with 202,
    in order.
    """

    def __init__(self, name: str, port: int) -> None:
        super().__init__(daemon=True)
        self.client = name
        self.taken: list[int] = []
        self._port = port
        self._over = threading.Event()

    def run(self) -> None:
        number = 0
        while not self._over.is_set():
            try:
                status, _ = post(
                    self._port, LINE.format(client=self.client, number=number).encode()
                )
            except (OSError, http.client.HTTPException):
                self._over.wait(0.05)  # it was killed; whether it took the click, nobody knows
            else:
                if status == 202:
                    self.taken.append(number)
            number += 1

    def stop(self) -> None:
        self._over.set()
        self.join()


@pytest.fixture
def visitors(port: int) -> Iterator[list[Visitor]]:
    made = [Visitor(f"10.0.0.{number}", port) for number in range(4)]
    yield made
    for visitor in made:
        if visitor.is_alive():
            visitor.stop()


@pytest.mark.timeout(300)
def test_nothing_answered_with_202_is_lost_when_the_collector_is_killed_while_kafka_is_away(
    reader: Read,
    kafka_broker: KafkaBroker,
    topic_name: str,
    tmp_path: Path,
    port: int,
    visitors: list[Visitor],
) -> None:
    create_topics(kafka_broker.address, {topic_name: 4})
    user = reader(EXAMPLES)
    command = (
        f"python -m collector.collect --kafka {kafka_broker.address} --topic {topic_name} --port"
        f" {port} --journal {tmp_path / 'journal'}"
    )
    collector = user.opens(command)
    collector.wait_for("collecting on port")
    for visitor in visitors:
        visitor.start()

    def more(count: int) -> None:
        wanted = [len(visitor.taken) + count for visitor in visitors]
        eventually(
            lambda: all(
                len(visitor.taken) >= least for visitor, least in zip(visitors, wanted, strict=True)
            ),
            timeout_s=60,
        )

    more(50)
    kafka_broker.kill()
    more(100)  # taken all the same
    kill(collector)
    collector = user.opens(command)
    found = collector.wait_for(r"collecting on port \d+; (\d+) clicks found")
    assert int(found[1]) >= 400 - 4
    more(50)
    kafka_broker.start()
    more(50)
    for visitor in visitors:
        visitor.stop()
    eventually(
        lambda: stats(port)["balance"]["pending"] == 0, timeout_s=60, message="all is confirmed"
    )
    assert collector.interrupt() == 0

    stored = numbers_on(kafka_broker.address, topic_name)
    for visitor in visitors:
        first_seen = list(dict.fromkeys(stored[visitor.client]))
        assert set(visitor.taken) <= set(first_seen)
        assert first_seen == sorted(first_seen)


def kill(terminal: Terminal) -> None:
    terminal._process.kill()
    terminal._process.wait()


def numbers_on(address: str, topic: str) -> dict[str, list[int]]:
    """The numbers of each client's clicks, in the order of the topic."""
    # after leaderq.kafka, which keeps a warning of this import quiet
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=address)
    try:
        places = [TopicPartition(topic, number) for number in range(4)]
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        ends = consumer.end_offsets(places)
        found: dict[str, list[int]] = {}
        while any(consumer.position(place) < ends[place] for place in places):
            for records in consumer.poll(timeout_ms=500, max_records=10_000).values():
                for record in records:
                    number = record.value.split(b"GET /", 1)[1].split(b" ", 1)[0]
                    found.setdefault(record.key.decode(), []).append(int(number))
        return found
    finally:
        consumer.close()
