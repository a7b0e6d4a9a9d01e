"""A producer whose process is killed while it spills. With other ways to persist, and at any
moment: ``tests/simulation/test_producer_promises.py``.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from pathlib import Path

from own_broker import own_broker  # noqa: F401  (in place of the session's: it is killed here)
from reading_topics import read_all

from leaderq.kafka.sink import KafkaSink
from leaderq.kafka.topics import create_topics
from leaderq.producing import BufferedProducer
from leaderq.testing import KafkaBroker, eventually


class Numbering:
    """The process of ``numbering.py``, and what it says."""

    def __init__(self, broker: KafkaBroker, topic: str, journal: Path, first: int) -> None:
        program = [sys.executable, str(Path(__file__).with_name("numbering.py"))]
        self._process = subprocess.Popen(
            [*program, broker.address, topic, str(journal)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._process.stdin.write(b"%d\n" % first)
        self._process.stdin.close()
        self.accepted: list[int] = []
        self.states: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
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
        self._process.stdout.close()
        return self.accepted[-1] + 10 if self.accepted else 0


def test_what_a_killed_producer_had_written_ahead_is_sent_in_order(
    kafka_broker, topic_name, tmp_path
):
    create_topics(kafka_broker.address, {topic_name: 3})
    accepted: list[int] = []
    first = 0
    for number in range(4):
        if number == 1:
            kafka_broker.kill()  # from now on it spills
        process = Numbering(kafka_broker, topic_name, tmp_path, first)
        least = random.Random(number).randint(300, 900)
        eventually(
            lambda process=process, least=least: len(process.accepted) >= least, timeout_s=60
        )
        if number >= 1:
            eventually(lambda process=process: "spilling" in process.states, timeout_s=60)
        first = process.kill()
        accepted += process.accepted
        if number == 2:
            kafka_broker.start()
    sink = KafkaSink(kafka_broker.address, topic_name)
    with BufferedProducer(sink, journal=tmp_path, key=lambda request: request[0]) as producer:
        assert producer.flush(90), producer.snapshot()
    seen: dict[bytes, dict[int, None]] = {}
    for record in read_all(kafka_broker.address, topic_name):
        seen.setdefault(record.key, {})[int(record.value)] = None  # repeats are left out
    for numbers in map(list, seen.values()):
        assert numbers == sorted(numbers)
    assert set(accepted) <= {number for numbers in seen.values() for number in numbers}
