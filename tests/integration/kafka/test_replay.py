"""Letters go back to where they came from, each once, also if two replays are begun; on a real
broker. A replay that is killed: ``tests/acceptance/cli/test_dead.py``.
"""

from __future__ import annotations

import pytest
from letters import Letters
from reading_topics import read_all
from surroundings import RealKafka

from leaderq.errors import RequestRefused
from leaderq.kafka.dead_letters.replay import DeadLetterReplay
from leaderq.kafka.record import Record
from leaderq.testing import eventually

COUNT = 12


@pytest.fixture
def letters(kafka_broker, topic_name):
    return Letters(kafka_broker.address, topic_name, COUNT, partitions=2)


def replaying(letters: Letters, rate_per_s: float = 0.0) -> DeadLetterReplay:
    return DeadLetterReplay(letters.address, letters.topic, letters.career, rate_per_s=rate_per_s)


def arrived(letters: Letters) -> list[Record]:
    which = letters.address, letters.origin
    found: list[Record] = eventually(
        lambda: (
            letters.sent() == sum(RealKafka.log_ends(*which).values())  # all are stable
            and read_all(*which, isolation="read_committed")
        )
    )
    return sorted(found, key=lambda row: int(row.value[6:]))


def test_each_letter_goes_back_as_it_was_saying_which_letter_it_was(letters):
    with replaying(letters) as replay:
        replay.run(lambda _: None)
    assert (replay.sent, replay.foreign, replay.remaining()) == (COUNT, 0, (0, 0))
    rows = arrived(letters)
    assert [(row.partition, row.key, row.value) for row in rows] == [
        (n % 2, b"k%d" % n, b"order %d" % n) for n in range(COUNT)
    ]
    said = {name.removeprefix("leaderq-replayed-"): value for name, value in rows[0].headers}
    assert said.keys() == {"trace", "from", "times", "timestamp"}
    assert said["from"].decode().startswith(f"{letters.topic}-")
    assert (said["times"], said["timestamp"]) == (b"1", b"1700000000000")


def test_of_two_replays_at_once_the_later_one_goes_on_and_the_earlier_one_ends(letters):
    def overtaken(_: float) -> None:
        with replaying(letters) as later:
            later.run(lambda _: None)
            assert later.sent > 0

    with replaying(letters, rate_per_s=0.25) as earlier:
        with pytest.raises(RequestRefused, match=r"another replay of group .* has begun"):
            earlier.run(overtaken)
        assert 0 < earlier.sent < COUNT
    assert [row.value for row in arrived(letters)] == [b"order %d" % n for n in range(COUNT)]
