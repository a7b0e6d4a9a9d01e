"""A career on a cluster of three, each of which is killed, frozen or restarted: no term fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from typing import Any

import pytest
from driving import Driver, Recorder
from kafka_roles import group_coordinator, transaction_coordinator
from producer_contract import Output
from test_confluent_producer import ConfluentMember

from leaderq.kafka import Partition, Record
from leaderq.kafka.clients import confluent_producer
from leaderq.kafka.clients.confluent_producer import ConfluentProducer
from leaderq.kafka.clients.consumer import BatchLost, KafkaAway
from leaderq.kafka.clients.producer import ProducerSettings
from leaderq.kafka.topics import committed, create_topics, end_offsets, produce
from leaderq.term import Term
from leaderq.testing import eventually

Drive = Callable[..., Driver]
FROZEN_S = 3.0


@pytest.fixture
def kafka_broker(kafka_cluster: Any) -> Any:
    """Three in the place of one."""
    return kafka_cluster


@pytest.fixture
def four_partitions(kafka_cluster: Any, topic_name: str) -> str:
    """A topic of 4 partitions, and one for results, with a copy on each broker."""
    create_topics(kafka_cluster.address, {topic_name: 4, f"{topic_name}-out": 1}, replication=3)
    return topic_name


def kill(member: Any) -> None:
    member.kill()
    member.start()


def freeze(member: Any) -> None:
    member.freeze()
    time.sleep(FROZEN_S)
    member.thaw()


def restart(member: Any) -> None:
    member.stop(keep_data=True)
    member.start()


class Rough:
    """Feeds a topic while one broker after the other fails."""

    def __init__(self, cluster: Any, topic: str, faults: Sequence[Callable[[Any], None]]) -> None:
        self._cluster, self._topic, self._faults = cluster, topic, faults
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._feed, self._fail)]
        self.values: list[bytes] = []

    def __enter__(self) -> Rough:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _feed(self) -> None:
        while not self._is_over.is_set():
            chunk = [b"%d" % number for number in range(len(self.values), len(self.values) + 50)]
            produce(self._cluster.address, self._topic, ((value, value) for value in chunk))
            self.values.extend(chunk)
            self._is_over.wait(0.2)

    def _fail(self) -> None:
        try:
            for member, fault in zip(self._cluster.members, self._faults, strict=True):
                fault(member)
        finally:
            self._is_over.set()

    def is_handled(self) -> bool:
        """Whether it is over, and all is committed."""
        if any(thread.is_alive() for thread in self._threads):
            return False
        done = committed(self._cluster.address, self._topic, self._topic)
        return sum(done.values()) == sum(end_offsets(self._cluster.address, self._topic).values())


class Producing(Recorder):
    """Produces what it was given, where the offsets go with it."""

    def handle(self, records: Sequence[Record], term: Term) -> None:
        super().handle(records, term)
        if self.offsets == "transaction":
            for record in records:
                self.produce(f"{record.topic}-out", record.value)


@pytest.mark.parametrize(
    ("client", "offsets", "faults"),
    [
        ("kafka-python", "transaction", (kill, freeze, restart)),
        ("confluent", "transaction", (freeze, restart, kill)),
        ("confluent", "kafka", (restart, kill, freeze)),
    ],
)
def test_each_broker_of_three_may_fail_in_turn_and_no_term_does(
    drive: Drive,
    kafka_cluster: Any,
    four_partitions: str,
    client: str,
    offsets: str,
    faults: Sequence[Callable[[Any], None]],
) -> None:
    leader = drive(Producing, offsets=offsets, client=client, max_records=50).begin()
    with Rough(kafka_cluster, four_partitions, faults) as rough:
        leader.run_until(rough.is_handled, within_s=150)  # raises what would fail the term
    output = Output(kafka_cluster.address, f"{four_partitions}-out")
    results = output.read() if offsets == "transaction" else list(dict.fromkeys(leader.career.values()))
    assert sorted(results, key=int) == rough.values


def test_a_coordinator_that_librdkafka_has_forgotten_is_not_waited_for_without_end(
    kafka_cluster: Any, four_partitions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def producer(name: str) -> ConfluentProducer:
        settings = ProducerSettings(address=kafka_cluster.address, transactional_id=name)
        made = cleanup.enter_context(closing(ConfluentProducer(settings)))
        made.open()
        eventually(lambda: made.fence(1.0), timeout_s=30, message="the producer is fenced in")
        return made

    def commit(by: ConfluentProducer, offset: int) -> None:
        by.begin()
        for _attempt in range(100):
            with suppress(KafkaAway):
                return by.commit({Partition(four_partitions, 0): offset}, member.metadata(), 1.0)
        raise AssertionError("Kafka stays away")

    with ExitStack() as cleanup:
        member = cleanup.enter_context(closing(ConfluentMember(kafka_cluster.address, four_partitions)))
        group = group_coordinator(kafka_cluster, four_partitions)
        for number in range(100):
            stuck = producer(name := f"{four_partitions}-{number}")
            if transaction_coordinator(kafka_cluster, name) is not group:
                break
        commit(stuck, 1)
        group.stop(keep_data=True)
        eventually(lambda: len(stuck._producer.list_topics(timeout=5).brokers) == 2, timeout_s=30)
        monkeypatch.setattr(confluent_producer, "_LATE_S", 0.5)
        with pytest.raises(BatchLost, match="takes too long"):
            commit(stuck, 2)
        stuck.close()
        monkeypatch.undo()
        commit(producer(name), 2)
        assert committed(kafka_cluster.address, four_partitions, four_partitions) == {0: 2}
