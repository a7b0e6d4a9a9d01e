"""Producers whose process is killed."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from numbering import KEYS
from own_broker import own_broker  # noqa: F401  (in place of the session's: it is killed here)
from reading_topics import read_all

from leaderq.kafka.record import Record
from leaderq.kafka.sink import KafkaSink
from leaderq.kafka.topics import create_topics
from leaderq.producing import BufferedProducer, Journal
from leaderq.producing.codec import PLAIN
from leaderq.testing import KafkaBroker, eventually

PARTITIONS = 3


class Numbering:
    """The process of ``numbering.py``, and what it says."""

    def __init__(
        self,
        broker: KafkaBroker,
        topic: str,
        journal: Path,
        policy: str,
        max_items: int,
        first: int,
    ) -> None:
        self._process = subprocess.Popen(
            [
                sys.executable,
                str(Path(__file__).with_name("numbering.py")),
                broker.address,
                topic,
                str(journal),
                policy,
                str(max_items),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdin is not None
        self._process.stdin.write(b"%d\n" % first)
        self._process.stdin.close()
        self.accepted: list[int] = []
        self.states: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word = line.decode().strip()
            if word.startswith("state "):
                self.states.append(word.removeprefix("state "))
            elif line.endswith(b"\n"):
                self.accepted.append(int(word))

    def kill(self) -> int:
        """``kill -9``; gives the number it would send next, a few left out that it may have sent
        without saying so.
        """
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
        return self.accepted[-1] + 10 if self.accepted else 0


@pytest.fixture
def topic(kafka_broker: KafkaBroker, topic_name: str) -> str:
    create_topics(kafka_broker.address, {topic_name: PARTITIONS})
    return topic_name


def first_seen(records: list[Record]) -> dict[bytes, list[int]]:
    """The numbers of each key in the order in which they came first; repeats are left out."""
    found: dict[bytes, dict[int, None]] = {}
    for record in records:
        found.setdefault(record.key, {})[int(record.value)] = None
    return {key: list(numbers) for key, numbers in found.items()}


def finish(broker: KafkaBroker, topic: str, journal: Path) -> dict[bytes, list[int]]:
    """What is on the topic once a producer has sent all that was left in the journal."""
    with BufferedProducer(
        KafkaSink(broker.address, topic), journal=journal, key=lambda request: request[0]
    ) as producer:
        assert producer.flush(90), producer.snapshot()
    return first_seen(read_all(broker.address, topic))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("policy", ["every item", "every 100", "interval", "no sync"])
def test_what_a_killed_producer_had_written_ahead_is_sent_in_order(
    kafka_broker, topic, tmp_path, policy
):
    """With ``every item`` that is all that ``send`` returned for; with the others all but the last,
    still on their way to the file.
    """
    accepted: list[list[int]] = []
    first = 0
    for number in range(4):
        if number == 1:
            kafka_broker.kill()  # from now on it spills
        process = Numbering(kafka_broker, topic, tmp_path, policy, 200, first)
        least = random.Random(number).randint(300, 900)
        eventually(
            lambda process=process, least=least: len(process.accepted) >= least, timeout_s=60
        )
        if number >= 1:
            eventually(lambda process=process: "spilling" in process.states, timeout_s=60)
        first = process.kill()
        accepted.append(process.accepted)
        if number == 2:
            kafka_broker.start()
    seen = finish(kafka_broker, topic, tmp_path)
    for numbers in seen.values():
        assert numbers == sorted(numbers)
    there = {number for numbers in seen.values() for number in numbers}
    for of_a_life in accepted:
        missing = [number for number in of_a_life if number not in there]
        assert len(missing) <= {"every item": 0, "every 100": 100}.get(policy, len(of_a_life))
        for key in range(KEYS):
            lost = [number for number in missing if number % KEYS == key]
            sent = [number for number in of_a_life if number % KEYS == key]
            # the end of its life, and nothing before that
            assert lost == sent[len(sent) - len(lost) :]


@pytest.mark.timeout(300)
def test_a_producer_killed_while_it_spills_leaves_no_hole_behind(kafka_broker, topic, tmp_path):
    """Without write-ahead too: memory goes into the journal before anything younger does."""
    process = Numbering(kafka_broker, topic, tmp_path, "none", 500, 0)
    eventually(lambda: len(process.accepted) > 1000, timeout_s=60)
    kafka_broker.kill()
    eventually(lambda: "spilling" in process.states, timeout_s=60)
    spilled_from = len(process.accepted)
    eventually(lambda: len(process.accepted) > spilled_from + 2000, timeout_s=60)
    process.kill()
    with Journal(tmp_path) as journal:
        left = [
            int(PLAIN.deserialize(entry.payload)[1])
            for entry in journal.read(0, max_items=10**6, max_bytes=10**9)
        ]
    assert left == list(range(left[0], left[0] + len(left)))
    kafka_broker.start()
    seen = finish(kafka_broker, topic, tmp_path)
    numbers = sorted(number for each in seen.values() for number in each)
    assert numbers == list(range(len(numbers)))
    assert numbers[-1] >= spilled_from
    for key in range(KEYS):
        assert seen[b"key-%d" % key] == sorted(seen[b"key-%d" % key])
