"""What every ``ProducerClient`` must do on a real broker; inherit it, give ``factory``, that of
consumers of the same library, and the causes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import pytest
from surroundings import RealKafka

from leaderq.base import clock
from leaderq.errors import KafkaError, KafkaFenced, ServersUnreachable, UnknownTopic
from leaderq.kafka.clients.consumer import (
    BatchLost,
    ConsumerClient,
    ConsumerFactory,
    ConsumerSettings,
    EffectRefused,
    KafkaAway,
    MembershipLost,
    MessageInvalid,
)
from leaderq.kafka.clients.producer import (
    Message,
    ProducerClient,
    ProducerFactory,
    ProducerSettings,
)
from leaderq.kafka.record import Partition
from leaderq.testing import eventually
from leaderq.testing.ports import lease_port

Make = Callable[..., ProducerClient]
WAIT_S = 30.0


def _sent(producer: ProducerClient, messages: list[Message]) -> bool:
    try:
        return producer.send_all(messages, 15.0) == len(messages)
    except ServersUnreachable:
        return False


class Output:
    """A topic of one partition to produce to, and what a careful reader sees of it."""

    def __init__(self, address: str, topic: str, kafka: type[RealKafka] = RealKafka) -> None:
        self.address, self.topic, self._kafka = address, topic, kafka
        kafka.create_topics(address, {topic: 1})

    def read(self) -> list[bytes]:
        """The values that a reader is given until it has reached the end of what is stable."""
        return self._kafka.read(self.address, self.topic)

    def shows(self, values: list[bytes]) -> None:
        """Once readers are given as many, they are exactly these: a broker writes the end of a
        transaction after it has promised to.
        """
        seen: list[bytes] = []

        def enough() -> bool:
            seen[:] = self.read()
            return len(seen) >= len(values)

        eventually(enough, timeout_s=60, message=f"readers are given {len(values)} messages")
        assert seen == values

    @property
    def is_stable(self) -> bool:
        which = self.address, self.topic
        return self._kafka.log_ends(*which) == self._kafka.end_offsets(*which)


class Stage:
    """What a test of a producer works with: producers, their output, and a member of the group that
    is named like the topic.
    """

    def __init__(
        self, make: Make, output: Output, group: ConsumerClient, kafka: type[RealKafka]
    ) -> None:
        self.make, self.output, self.group, self._kafka = make, output, group, kafka
        self.topic = output.topic.removesuffix("-out")
        self.where = Partition(self.topic, 0)

    def commit(self, producer: ProducerClient, offset: int) -> None:
        for _ in range(20):
            try:
                producer.commit({self.where: offset}, self.group.group_metadata(), 5.0)
            except KafkaAway:
                continue
            return
        raise AssertionError("the commit did not come to an end")

    def begin(self, producer: ProducerClient, value: bytes) -> None:
        producer.begin()
        producer.produce(Message(self.output.topic, value))

    def transact(self, producer: ProducerClient, value: bytes, offset: int) -> None:
        self.begin(producer, value)
        self.commit(producer, offset)

    def begun(self, value: bytes, **changes: Any) -> ProducerClient:
        producer = self.make(**changes)
        self.begin(producer, value)
        eventually(lambda: not self.output.is_stable, message="the broker has it")
        return producer

    def offsets(self) -> dict[int, int]:
        return self._kafka.committed(self.output.address, self.topic, self.topic)

    def shows(self, values: list[bytes], offset: int) -> None:
        """Readers and the group see these, once the broker has written the end of a
        transaction.
        """
        self.output.shows(values)
        eventually(lambda: self.offsets() == {0: offset})


class ProducerContract:
    factory: ProducerFactory
    consumers: ConsumerFactory
    kafka: type[RealKafka] = RealKafka
    fenced_causes: tuple[str, ...]
    """What the broker's error is called by the library, for a producer that was fenced."""

    @pytest.fixture
    def make_producer(self, kafka_broker, topic_name):
        made: list[ProducerClient] = []

        def make(*, fenced: bool = True, **changes: Any) -> ProducerClient:
            words = {"address": kafka_broker.address, "transactional_id": topic_name, **changes}
            producer = type(self).factory(ProducerSettings(**words))
            made.append(producer)
            producer.open()
            if fenced:
                eventually(lambda: producer.fence(1.0), timeout_s=WAIT_S)
            return producer

        yield make
        for producer in made:
            producer.close()

    @pytest.fixture
    def output(self, kafka_broker, topic_name):
        return Output(kafka_broker.address, f"{topic_name}-out", self.kafka)

    @pytest.fixture
    def group(self, kafka_broker, four_partitions):
        with self.joined(kafka_broker.address, four_partitions) as member:
            yield member

    @classmethod
    @contextmanager
    def joined(cls, address: str, topic: str) -> Iterator[ConsumerClient]:
        settings = ConsumerSettings(address=address, topics=(topic,), group=topic, member="leader")
        with closing(cls.consumers(settings)) as consumer:
            consumer.open()
            eventually(lambda: consumer.join(lambda: None, 1.0), timeout_s=WAIT_S)
            yield consumer

    @pytest.fixture
    def stage(self, make_producer, output, group):
        return Stage(make_producer, output, group, self.kafka)

    def assert_refused_by_broker(self, error: BaseException) -> None:
        told = f"{error} {error.__cause__!r}"
        assert any(name in told for name in type(self).fenced_causes), told

    def test_outputs_and_offsets_appear_together(self, stage):
        producer = stage.make()
        producer.begin()
        values, now_ms = [b"%d" % n for n in range(50)], clock.now_ms()
        for n, value in enumerate(values):
            # not older: a broker that has run for a while deletes what its retention is over for
            words = {"key": b"k", "headers": [("n", value)], "timestamp_ms": now_ms - n}
            producer.produce(Message(stage.output.topic, value, **words))
        assert (stage.output.read(), stage.offsets()) == ([], {})
        stage.commit(producer, 7)
        stage.shows(values, 7)

    def test_what_is_aborted_is_never_read(self, stage):
        producer = stage.make()
        stage.begin(producer, b"aborted")
        producer.abort(WAIT_S)
        producer.abort(WAIT_S)
        stage.transact(producer, b"committed", 3)
        stage.shows([b"committed"], 3)

    def test_opening_a_producer_fences_nobody(self, stage):
        producer = stage.begun(b"leader's")
        stage.make(fenced=False)
        stage.commit(producer, 1)
        stage.shows([b"leader's"], 1)

    def test_a_zombies_messages_are_refused_and_its_successor_is_not_disturbed(self, stage):
        zombie = stage.begun(b"zombie's first")
        successor = stage.make()
        successor.begin()
        with pytest.raises(KafkaFenced) as refused:
            for n in range(1000):
                zombie.produce(Message(stage.output.topic, b"zombie's later %d" % n))
            stage.commit(zombie, 5)
        self.assert_refused_by_broker(refused.value)
        zombie.close()
        successor.produce(Message(stage.output.topic, b"successor's"))
        stage.commit(successor, 2)
        stage.shows([b"successor's"], 2)

    def test_fencing_aborts_the_zombies_open_transaction_at_once(self, stage):
        stage.begun(b"zombie's", transaction_timeout_s=600.0)
        stage.make()
        eventually(lambda: stage.output.is_stable, message="readers need not wait")
        assert stage.output.read() == []

    def test_a_replaced_members_offsets_are_refused(self, stage):
        producer = stage.make()
        stale = stage.group.group_metadata()
        with self.joined(stage.output.address, stage.topic):
            stage.begin(producer, b"of a replaced member")
            with pytest.raises(KafkaFenced, match=r"FENCED_INSTANCE_ID|FencedInstanceId"):
                producer.commit({stage.where: 4}, stale, WAIT_S)
            producer.abort(WAIT_S)
        assert (stage.output.read(), stage.offsets()) == ([], {})

    def test_a_former_generations_offsets_are_refused_and_the_producer_goes_on(self, stage):
        producer, other = stage.make(), Partition(stage.topic, 1)
        group, joins = stage.group, stage.group.joins
        stale = group.group_metadata()
        group.rejoin()
        eventually(lambda: (group.attend(1.0), group.joins > joins)[1], timeout_s=WAIT_S)
        stage.begin(producer, b"of a former generation")
        with pytest.raises(MembershipLost):
            producer.commit(dict.fromkeys((stage.where, other), 4), stale, WAIT_S)
        producer.abort(WAIT_S)
        stage.transact(producer, b"of this generation", 5)
        stage.shows([b"of this generation"], 5)

    @pytest.mark.parametrize("where", ["no-such-topic", "small"])
    def test_a_message_that_is_refused_fails_the_transaction_and_not_the_producer(
        self, stage, where
    ):
        told = "no-such-topic"
        if where == "small":
            where, told = f"{stage.topic}-small", r"max\.message\.bytes"
            configs = {"max.message.bytes": "5000"}
            self.kafka.create_topics(stage.output.address, {where: 1}, configs=configs)
        producer = stage.make()
        producer.begin()
        with pytest.raises((UnknownTopic, EffectRefused), match=told):
            producer.produce(Message(where, b"x" * 6000))
            stage.commit(producer, 1)
        producer.abort(WAIT_S)
        stage.transact(producer, b"found", 1)
        stage.shows([b"found"], 1)

    def test_nobody_there_is_said_when_opening(self, make_producer):
        port = lease_port()
        with pytest.raises(ServersUnreachable):
            make_producer(address=port.address, open_timeout_s=0.5)
        port.release()

    @pytest.mark.parametrize("stage_of_it", ["before sending", "after sending"])
    def test_a_commit_is_completed_after_the_broker_was_away(
        self, stage, kafka_broker, stage_of_it
    ):
        producer = stage.make()
        stage.transact(producer, b"first", 1)
        stage.shows([b"first"], 1)  # its end was written: the next is accepted at once
        producer.begin()
        if stage_of_it == "after sending":
            producer.produce(Message(stage.output.topic, b"second"))
            eventually(lambda: not stage.output.is_stable, message="it was sent")
        kafka_broker.kill()
        if stage_of_it == "before sending":
            producer.produce(Message(stage.output.topic, b"second"))
        with pytest.raises(KafkaAway):
            producer.commit({stage.where: 2}, stage.group.group_metadata(), 1.0)
        kafka_broker.start()
        stage.commit(producer, 2)
        stage.shows([b"first", b"second"], 2)

    def test_what_is_sent_apart_from_a_transaction_waits_for_the_broker_or_says_so(
        self, make_producer, output, kafka_broker
    ):
        producer = make_producer(transactional_id=None, fenced=False)
        assert producer.send_all([Message(output.topic, b"before")], 15.0) == 1
        kafka_broker.kill()
        with pytest.raises((KafkaAway, BatchLost)):
            producer.send_all([Message(output.topic, b"meanwhile")], 1.0)
        kafka_broker.start()
        after = [Message(output.topic, b"after")]
        eventually(lambda: _sent(producer, after), timeout_s=60)
        output.shows([b"before", b"after"])

    def test_closing_needs_no_broker(self, make_producer, output, kafka_broker):
        before = set(threading.enumerate())
        producer = make_producer()
        producer.begin()
        producer.produce(Message(output.topic, b"sent"))
        kafka_broker.kill()
        producer.produce(Message(output.topic, b"not sent"))
        producer.close()
        producer.close()
        eventually(lambda: set(threading.enumerate()) <= before, message="its threads end")
        with pytest.raises(KafkaError, match="not open"):
            producer.produce(Message(output.topic, b"too late"))


class RealProducerContract(ProducerContract):
    def test_a_message_without_a_key_is_refused_by_a_compacted_topic(self, stage):
        where, configs = f"{stage.topic}-compacted", {"cleanup.policy": "compact"}
        self.kafka.create_topics(stage.output.address, {where: 1}, configs=configs)
        producer = stage.make()
        producer.begin()
        with pytest.raises(EffectRefused) as refused:
            producer.produce(Message(where, b"it has no key"))
            stage.commit(producer, 1)
        assert isinstance(refused.value.error, MessageInvalid)
        producer.abort(WAIT_S)

    def test_any_thread_may_produce(self, stage):
        producer = stage.make()
        producer.begin()

        def work(name: int) -> None:
            for n in range(100):
                producer.produce(Message(stage.output.topic, b"%d-%d" % (name, n)))

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(work, range(4)))
        stage.commit(producer, 1)
        # A broker writes the end of a transaction after it has promised to.
        read = eventually(lambda: len(found := stage.output.read()) >= 400 and found, timeout_s=60)
        assert len(read) == 400
        for name in range(4):
            assert [value for value in read if value.startswith(b"%d-" % name)] == [
                b"%d-%d" % (name, n) for n in range(100)
            ]
