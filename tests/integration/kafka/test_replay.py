"""Letters go back to where they came from, each once, also if a replay has died or two are begun;
on a real broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from reading_topics import read_all
from surroundings import RealKafka

from leaderq.errors import KafkaFenced, RequestRefused
from leaderq.kafka.clients.kafka_python_producer import KafkaPythonProducer
from leaderq.kafka.clients.producer import Message, ProducerSettings
from leaderq.kafka.dead_letters.format import new_dead_letter
from leaderq.kafka.dead_letters.replay import DeadLetterReplay, replay_group
from leaderq.kafka.record import Record
from leaderq.kafka.topics import create_topics, end_offsets, produce
from leaderq.testing import eventually

COUNT = 12


class Dead:
    """A career of the test's own, with letters about records 0 to 11 of a topic, in two
    partitions.
    """

    def __init__(self, address: str, name: str) -> None:
        self.address = address
        self.career = name
        self.origin, self.topic = f"{name}-origin", f"{name}-dead"
        create_topics(address, {self.origin: 2, self.topic: 2})
        self.write(range(COUNT))

    def write(
        self, numbers: Iterable[int], text: str | None = None, origin: str | None = None
    ) -> None:
        letters = [
            new_dead_letter(
                Record(
                    origin or self.origin,
                    n % 2,
                    n,
                    1_700_000_000_000 + n,
                    b"k%d" % n,
                    b"v%d" % n,
                    (("trace", b"t"),),
                ),
                ValueError(text or ("odd" if n % 2 else "even")),
                attempts=3,
                term=5,
                career=self.career,
                at_ms=1_790_000_000_000,
            )
            for n in numbers
        ]
        produce(
            self.address, self.topic, [(each.key, each.value, each.headers) for each in letters]
        )

    def replay(self, wait: Callable[[float], object] = lambda _: None, **options: Any) -> Any:
        with DeadLetterReplay(
            self.address, self.topic, self.career, **{"rate_per_s": 0.0, **options}
        ) as work:
            return work.run(wait)

    def arrived(self) -> list[Record]:
        """What a reader of committed records sees."""
        return eventually(
            lambda: (
                self.written()
                == sum(end_offsets(self.address, self.origin).values())  # all are stable
                and read_all(self.address, self.origin, isolation="read_committed")
            ),
            timeout_s=30,
        )

    def written(self) -> int:
        """How many records are on the brokers, committed or not."""
        return sum(RealKafka.log_ends(self.address, self.origin).values())

    def values(self) -> list[bytes]:
        return sorted((row.value for row in self.arrived()), key=lambda value: int(value[1:]))


@pytest.fixture
def dead(kafka_broker: Any, topic_name: str) -> Dead:
    return Dead(kafka_broker.address, topic_name)


def values(numbers: Iterable[int]) -> list[bytes]:
    return [b"v%d" % n for n in numbers]


def test_each_letter_goes_back_as_it_was_saying_which_letter_it_was(dead):
    counts = dead.replay()
    assert (counts.sent, counts.left, counts.foreign, counts.unseen) == (COUNT, 0, 0, 0)
    rows = dead.arrived()
    assert sorted((row.key, row.value) for row in rows) == sorted(
        (b"k%d" % n, b"v%d" % n) for n in range(COUNT)
    )
    assert all(row.partition == int(row.value[1:]) % 2 for row in rows)
    said = dict(rows[0].headers)
    assert set(said) == {
        "trace",
        "leaderq-replayed-from",
        "leaderq-replayed-times",
        "leaderq-replayed-timestamp",
    }
    assert said["leaderq-replayed-from"].decode().startswith(f"{dead.topic}-")
    assert (said["leaderq-replayed-times"], said["leaderq-replayed-timestamp"][:10]) == (
        b"1",
        b"1700000000",
    )


def test_an_open_transaction_of_a_replay_that_died_is_not_seen_and_its_letters_are_sent_again(dead):
    """As after ``kill -9``: all letters are on the broker, nothing is committed, nothing was
    aborted.
    """
    zombie = KafkaPythonProducer(
        ProducerSettings(dead.address, transactional_id=replay_group(dead.career))
    )
    zombie.open()
    eventually(lambda: zombie.fence(1.0), timeout_s=30)
    zombie.begin()
    for n in range(COUNT):
        zombie.produce(Message(dead.origin, b"v%d" % n, b"k%d" % n))
    eventually(lambda: dead.written() == COUNT)
    assert dead.replay().sent == COUNT
    assert dead.values() == values(range(COUNT))
    with pytest.raises(KafkaFenced):
        zombie.abort(10.0)
    zombie.close()


def test_of_two_replays_at_once_the_later_one_goes_on_and_the_earlier_one_ends(dead):
    def overtaken(_: float) -> None:
        assert dead.replay().sent > 0

    with DeadLetterReplay(dead.address, dead.topic, dead.career, rate_per_s=0.25) as earlier:
        with pytest.raises(RequestRefused, match=r"another replay of group .* has begun"):
            earlier.run(overtaken)
        assert 0 < earlier.counts.sent < COUNT
    assert dead.values() == values(range(COUNT))
