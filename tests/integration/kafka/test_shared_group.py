"""A leader whose group others join and leave: each record counts once, whoever handles it."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import confluent_kafka
import pytest
from driving import Recorder
from kafka import KafkaConsumer, OffsetAndMetadata
from producer_contract import Output

from leaderq.cli.doctor import Verdict, check_kafka_career
from leaderq.errors import Deposed, KafkaError
from leaderq.kafka import Record
from leaderq.kafka.groups import Deployment
from leaderq.kafka.topics import committed, end_offsets, stored_offsets
from leaderq.term import Term
from leaderq.testing import eventually


class PlainConsumer:
    """A consumer of a group that knows nothing of leaderq: reads, then commits what it has read."""

    def __init__(self, address: str, topic: str) -> None:
        self.values: list[bytes] = []
        self.has_joined = threading.Event()
        self._is_over = threading.Event()
        own = {"enable_auto_commit": False, "auto_offset_reset": "earliest"}
        self._client: Any = KafkaConsumer(topic, bootstrap_servers=address, group_id=topic, **own)
        self._thread = threading.Thread(target=self._run, name="plain-consumer")
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.is_set():
            polled = self._client.poll(timeout_ms=100)
            self.values += [row.value for rows in polled.values() for row in rows]
            ends = {at: rows[-1].offset + 1 for at, rows in polled.items()}
            if ends:
                self._client.commit({at: OffsetAndMetadata(ends[at], "", -1) for at in ends})
            if self._client.assignment():
                self.has_joined.set()
        self._client.close()

    def leave(self) -> None:
        """Leave the group; may be called twice."""
        self._is_over.set()
        self._thread.join(30)


@pytest.fixture
def join_plainly(kafka_broker, four_partitions):
    """Let a plain consumer join the career's group; all leave after the test."""
    made: list[PlainConsumer] = []

    def join() -> PlainConsumer:
        made.append(PlainConsumer(kafka_broker.address, four_partitions))
        return made[-1]

    yield join
    for consumer in made:
        consumer.leave()


class Producing(Recorder):
    """Produces what it reads, if its store can; does something amid its first batch."""

    output: Output
    max_wait_s = 1.0
    during_batch: Callable[[], None] | None = None
    first_batch: Sequence[Record] = ()

    def handle(self, records: Sequence[Record], term: Term) -> None:
        super().handle(records, term)
        for record in records if self.offsets == "transaction" else ():
            self.produce(self.output.topic, record.value)
        during, self.during_batch = self.during_batch, None
        if during is not None:
            self.first_batch = list(records)
            during()


@pytest.fixture
def has_caught_up(kafka_broker, four_partitions):
    """Whether the group has committed all there is."""

    def told() -> bool:
        ends = end_offsets(kafka_broker.address, four_partitions)
        stored = committed(kafka_broker.address, four_partitions, four_partitions)
        return sum(stored.values()) == sum(ends.values())

    return told


@pytest.mark.parametrize(
    ("client", "offsets"), [("kafka-python", "transaction"), ("confluent", "kafka")]
)
def test_a_plain_consumer_that_joins_amid_a_batch_and_leaves_again_costs_and_doubles_nothing(
    drive, feed, join_plainly, has_caught_up, kafka_broker, topic_name, client, offsets, caplog
):
    def join() -> None:
        joined.append(join_plainly())
        eventually(joined[0].has_joined.is_set, timeout_s=60)

    output = Output(kafka_broker.address, f"{topic_name}-out")
    joined: list[PlainConsumer] = []
    values = feed(0, 200)
    leader = drive(Producing, offsets=offsets, client=client, output=output).begin()
    leader.career.during_batch = join
    leader.run_until(lambda: bool(joined) and has_caught_up(), within_s=90)
    joined[0].leave()
    values += feed(200, 280)
    leader.run_until(has_caught_up, within_s=90)
    assert joined[0].values
    ours = output.read() if offsets == "transaction" else leader.career.values()
    results = Counter(ours + joined[0].values)
    assert results.keys() == set(values)
    # At least once: what was in hand may be there twice.
    in_hand = leader.career.first_batch if offsets == "kafka" else ()
    assert not results - Counter(values) - Counter(record.value for record in in_hand)
    assert "Kafka client failed" not in caplog.text


@pytest.mark.parametrize("client", ["kafka-python", "confluent"])
def test_b1_members_with_another_assignor_are_named_by_the_error_and_by_doctor(
    drive, feed, kafka_broker, four_partitions, client
):
    feed(0, 10)
    options = {
        "bootstrap.servers": kafka_broker.address,
        "group.id": four_partitions,
        "client.id": "their-app",
        "partition.assignment.strategy": "cooperative-sticky",
    }
    with closing(confluent_kafka.Consumer(options)) as other:
        other.subscribe([four_partitions])
        eventually(lambda: other.poll(0.2) is None and bool(other.assignment()), timeout_s=60)
        leader = drive(client=client)
        wanted = "'cooperative-sticky': 'their-app' at .*stop those others"
        with pytest.raises(KafkaError, match=wanted):
            leader.begin().run_until(lambda: False, within_s=60)
        career, settings = leader.career, leader.career.settings
        found = list(check_kafka_career(career, four_partitions, settings))
    (group,) = (one for one in found if one.check == "group")
    assert group.verdict is Verdict.FAILED
    assert re.search(wanted, group.detail)


@pytest.mark.parametrize(
    ("client", "offsets"),
    [("kafka-python", "kafka"), ("confluent", "kafka"), ("confluent", "transaction")],
)
def test_b2_a_leader_of_another_deployment_in_the_same_group_is_told_apart(
    drive, feed, has_caught_up, kafka_broker, client, offsets, four_partitions, znode_root, caplog
):
    feed(0, 10)
    where = kafka_broker.address, four_partitions
    leader = drive(client=client, offsets=offsets).begin()
    leader.run_until(has_caught_up)
    there = f"{znode_root}/another"
    rival = drive(settings={"root": there}, client=client, offsets=offsets).begin()
    assert "another leaderq deployment has led this group" in caplog.text
    assert f"root={znode_root}" in caplog.text
    feed(10, 20)
    rival.run_until(lambda: has_caught_up() and there in str(stored_offsets(*where)))
    with pytest.raises(Deposed):
        leader.run_until(lambda: False, within_s=30)
    told = f"another leaderq deployment, root '{there}', leads this group"
    eventually(lambda: told in caplog.text, message="the log names the other")
    here = Deployment.of(leader.career.session, znode_root)
    career, settings = leader.career, leader.career.settings
    found = list(check_kafka_career(career, four_partitions, settings, here))
    assert any(told in one.detail for one in found)
