"""The simulated clients on a network that loses requests and answers; time passes by hand."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
from simulated_time import ManualTime, ScriptedNetwork

from leaderq.errors import KafkaFenced, OffsetOutOfRange
from leaderq.kafka import Partition
from leaderq.kafka.clients.consumer import ConsumerSettings, KafkaAway, LogTruncated
from leaderq.kafka.clients.producer import Message, ProducerSettings
from leaderq.kafka.record import Offset
from leaderq.testing.simulation.kafka.cluster import ClusterSettings
from leaderq.testing.simulation.kafka.consumer import SimulatedConsumer
from leaderq.testing.simulation.kafka.network import Passage, SimulatedKafka
from leaderq.testing.simulation.kafka.producer import SimulatedProducer

WHERE = Partition("t", 0)
NEVER_ARRIVES, NO_ANSWER = Passage(there_s=inf), Passage(back_s=inf)


class Scene:
    """A cluster, and clients of it."""

    def __init__(self, time: ManualTime) -> None:
        self.time = time
        self.network = ScriptedNetwork()
        settings = ClusterSettings(initial_rebalance_delay_s=0.0, marker_s=0.0)
        self.kafka = SimulatedKafka(settings, self.network, now=time)
        self.cluster = self.kafka.cluster
        self.cluster.create_topic("t", 1)

    def consumer(self, **changes: Any) -> SimulatedConsumer:
        """An open one."""
        words = {"topics": ("t",), "group": "g", "member": "leader", **changes}
        made = SimulatedConsumer(self.kafka, ConsumerSettings(self.kafka.address, **words))
        made.open()
        return made

    def member(self, **changes: Any) -> SimulatedConsumer:
        """One that has joined, and reads from the beginning."""
        made = self.consumer(**changes)
        assert made.join(lambda: None, 5.0)
        made.seek(dict.fromkeys(made.assigned(), 0))
        return made

    def producer(self, **changes: Any) -> SimulatedProducer:
        made = SimulatedProducer(self.kafka, ProducerSettings(self.kafka.address, "id", **changes))
        made.open()
        return made

    def feed(self, *values: bytes) -> None:
        sender = SimulatedProducer(self.kafka, ProducerSettings(self.kafka.address))
        sender.send_all([Message("t", value) for value in values], 10.0)

    @property
    def stored(self) -> int | None:
        """What the group has committed."""
        found = self.cluster.group("g").offsets.get(WHERE)
        return None if found is None else found.offset

    @property
    def seen(self) -> list[bytes]:
        return [row.value for row in self.cluster.log_of(WHERE).read(0, 1000).records]


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    time = ManualTime()
    time.install(monkeypatch)
    return Scene(time)


# ---- commits


def test_a_late_commit_overtakes_nothing_that_a_newer_member_has_committed(scene: Scene) -> None:
    former = scene.member()
    scene.network.script = [Passage(there_s=10.0)]
    late = former.commit({WHERE: 5}, "")
    newer = scene.member()
    assert newer.commit({WHERE: 7}, "").done(1.0)
    scene.time.pass_(20)
    with pytest.raises(KafkaFenced, match="FENCED_INSTANCE_ID"):
        late.done(1.0)
    assert scene.stored == 7


# ---- reading


def test_a_position_that_is_gone_is_an_error_each_time(scene: Scene) -> None:
    scene.feed(b"1", b"2")
    consumer = scene.member()
    scene.kafka.acts(lambda cluster: cluster.delete_records(WHERE, 1))
    for _ in range(2):
        with pytest.raises(OffsetOutOfRange):
            consumer.poll(1.0, 10)
    consumer.seek({WHERE: 1})
    assert [row.value for row in consumer.poll(1.0, 10)[WHERE]] == [b"2"]


def test_a_log_that_was_cut_off_before_the_position_is_told_with_the_partition(
    scene: Scene,
) -> None:
    scene.feed(b"1", b"2", b"3")
    consumer = scene.member()
    assert len(consumer.poll(1.0, 10)[WHERE]) == 3
    epoch = consumer.positions()[WHERE].epoch  # type: ignore[attr-defined]
    scene.kafka.acts(lambda cluster: cluster.cut_off(WHERE, 1))
    scene.feed(b"x", b"y", b"z")
    with pytest.raises(LogTruncated) as cut:
        consumer.poll(1.0, 10)
    assert cut.value.partitions == {WHERE}
    consumer.seek({WHERE: Offset(2, epoch)})
    with pytest.raises(LogTruncated):
        consumer.poll(1.0, 10)


@pytest.fixture
def three_brokers(scene: Scene) -> Scene:
    settings = ClusterSettings(brokers=3, initial_rebalance_delay_s=0.0, failover_s=1.0)
    scene.kafka = SimulatedKafka(settings, scene.network, now=scene.time)
    scene.cluster = scene.kafka.cluster
    scene.cluster.create_topic("t", 1)
    scene.feed(b"1", b"2")
    return scene


def test_what_two_leaders_return_for_one_position_is_read_once(three_brokers: Scene) -> None:
    consumer, cluster = three_brokers.member(), three_brokers.cluster
    leader = cluster.leader_of(WHERE)
    assert leader is not None
    three_brokers.network.script = [Passage(0.0, 3.0)]  # the answer is on its way for long
    assert consumer.poll(0.0, 10) == {}
    three_brokers.kafka.acts(lambda cluster: cluster.stop(leader))
    assert len(consumer.poll(2.0, 10)[WHERE]) == 2
    three_brokers.time.pass_(5.0)
    assert consumer.poll(1.0, 10) == {}
    assert consumer.positions() == {WHERE: 2}


# ---- producing


def test_a_transaction_open_for_too_long_is_refused_with_the_reason(scene: Scene) -> None:
    consumer = scene.member()
    producer = scene.producer(transaction_timeout_s=5.0)
    assert producer.fence(1.0)
    producer.begin()
    producer.produce(Message("t", b"1"))
    scene.time.pass_(6.0)
    with pytest.raises(KafkaFenced, match="transaction_timeout_s"):
        producer.commit({WHERE: 3}, consumer.group_metadata(), 1.0)
    assert (scene.seen, scene.stored) == ([], None)


def test_a_message_that_may_be_under_way_is_not_taken_into_the_next_transaction(
    scene: Scene,
) -> None:
    producer = scene.producer()
    assert producer.fence(1.0)
    producer.begin()
    scene.network.script = [Passage(there_s=30.0)]
    producer.produce(Message("t", b"late"))
    with pytest.raises(KafkaAway):
        producer.abort(1.0)
    producer.close()
    successor = scene.producer()
    assert successor.fence(1.0)
    scene.time.pass_(60)
    scene.cluster.advance()
    assert scene.cluster.log_of(WHERE).end == 0
