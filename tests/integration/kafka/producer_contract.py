"""What every ``TransactionalProducer`` must do on a real broker; inherit it, give ``factory``, a
member of a group, and the causes.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from surroundings import RealKafka

from leaderq.errors import KafkaError, KafkaFenced, ServersUnreachable, UnknownTopic
from leaderq.kafka.clients.consumer import KafkaAway, MembershipLost
from leaderq.kafka.clients.producer import (
    Message,
    ProducerFactory,
    ProducerSettings,
    TransactionalProducer,
)
from leaderq.kafka.record import Partition
from leaderq.testing import eventually
from leaderq.testing.ports import lease_port

Make = Callable[..., TransactionalProducer]
WAIT_S = 30.0


class Member(ABC):
    """A static member of the group named like the topic, made with the client library of the
    producer.
    """

    @abstractmethod
    def __init__(self, address: str, topic: str) -> None: ...

    @abstractmethod
    def metadata(self) -> Any:
        """The membership as it is now."""

    @abstractmethod
    def join_again(self) -> None:
        """Let the group come to another generation."""

    @abstractmethod
    def close(self) -> None: ...


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
        """Whether no open transaction holds readers up."""
        which = self.address, self.topic
        return self._kafka.log_ends(*which) == self._kafka.end_offsets(*which)


def stored(
    address: str, group: str, offsets: dict[int, int], kafka: type[RealKafka] = RealKafka
) -> None:
    """The group has these offsets, once the broker has written the end of the transaction."""
    eventually(
        lambda: kafka.committed(address, group, group) == offsets,
        timeout_s=30,
        message=f"the offsets are {offsets}",
    )


class ProducerContract:
    """One contract class for the port; each client inherits it."""

    factory: ProducerFactory
    member: type[Member]
    kafka: type[RealKafka] = RealKafka
    fenced_causes: tuple[str, ...]
    """What the broker's error is called by the library, for a producer that was fenced."""

    # ---- what the tests work with

    @pytest.fixture
    def make_producer(self, kafka_broker: Any, topic_name: str) -> Iterator[Make]:
        """Open a producer of the test's own transactional id; all are closed afterwards."""
        made: list[TransactionalProducer] = []

        def make(*, fenced: bool = True, **changes: Any) -> TransactionalProducer:
            words = {"address": kafka_broker.address, "transactional_id": topic_name, **changes}
            producer = type(self).factory(ProducerSettings(**words))
            made.append(producer)
            producer.open()
            if fenced:
                eventually(
                    lambda: producer.fence(1.0),
                    timeout_s=WAIT_S,
                    message="the producer is fenced in",
                )
            return producer

        yield make
        for producer in made:
            producer.close()

    @pytest.fixture
    def output(self, kafka_broker: Any, topic_name: str) -> Output:
        """A topic to produce to."""
        return Output(kafka_broker.address, f"{topic_name}-out", self.kafka)

    @pytest.fixture
    def group(self, kafka_broker: Any, four_partitions: str) -> Iterator[Member]:
        """The career's member of the group."""
        with self.joined(kafka_broker.address, four_partitions) as member:
            yield member

    @classmethod
    @contextmanager
    def joined(cls, address: str, topic: str) -> Iterator[Member]:
        member = cls.member(address, topic)
        try:
            yield member
        finally:
            member.close()

    @staticmethod
    def commit(producer: TransactionalProducer, topic: str, offset: int, group: Member) -> None:
        """Commit, as often as Kafka wants to be asked."""

        def committed() -> bool:
            try:
                producer.commit({Partition(topic, 0): offset}, group.metadata(), 5.0)
            except KafkaAway:
                return False
            return True

        for _ in range(20):
            if committed():
                return
        raise AssertionError("the commit did not come to an end")

    def assert_refused_by_broker(self, error: BaseException) -> None:
        """The cause is what the broker answered."""
        told = f"{error} {error.__cause__!r}"
        assert any(name in told for name in type(self).fenced_causes), told

    # ---- transactions

    def test_outputs_and_offsets_appear_together(
        self,
        make_producer: Make,
        output: Output,
        group: Member,
        kafka_broker: Any,
        four_partitions: str,
    ) -> None:
        producer = make_producer()
        producer.begin()
        for n in range(50):
            producer.produce(
                Message(
                    output.topic,
                    b"%d" % n,
                    key=b"k",
                    headers=[("n", b"%d" % n)],
                    timestamp_ms=1000 + n,
                )
            )
        assert output.read() == []
        assert self.kafka.committed(kafka_broker.address, four_partitions, four_partitions) == {}
        self.commit(producer, four_partitions, 7, group)
        output.shows([b"%d" % n for n in range(50)])
        stored(kafka_broker.address, four_partitions, {0: 7}, self.kafka)

    def test_one_transaction_follows_the_other(
        self,
        make_producer: Make,
        output: Output,
        group: Member,
        kafka_broker: Any,
        four_partitions: str,
    ) -> None:
        producer = make_producer()
        for n in range(10):
            producer.begin()
            if n % 2:
                producer.produce(Message(output.topic, b"%d" % n))
            self.commit(producer, four_partitions, n, group)
        output.shows([b"1", b"3", b"5", b"7", b"9"])
        stored(kafka_broker.address, four_partitions, {0: 9}, self.kafka)

    def test_messages_go_where_they_are_sent(
        self, make_producer: Make, group: Member, kafka_broker: Any, topic_name: str
    ) -> None:
        many = f"{topic_name}-many"
        self.kafka.create_topics(kafka_broker.address, {many: 3})
        producer = make_producer()
        producer.begin()
        for n in range(30):
            producer.produce(Message(many, b"%d" % n, partition=2))
        self.commit(producer, topic_name, 1, group)
        ends = {0: 0, 1: 0, 2: 31}
        eventually(lambda: self.kafka.end_offsets(kafka_broker.address, many) == ends, timeout_s=30)

    def test_any_thread_may_produce(
        self, make_producer: Make, output: Output, group: Member, four_partitions: str
    ) -> None:
        producer = make_producer()
        producer.begin()

        def work(name: int) -> None:
            for n in range(100):
                producer.produce(Message(output.topic, b"%d-%d" % (name, n)))

        threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.commit(producer, four_partitions, 1, group)
        # A broker writes the end of a transaction after it has promised to.
        read = eventually(lambda: len(found := output.read()) >= 400 and found, timeout_s=60)
        assert len(read) == 400
        for name in range(4):
            assert [value for value in read if value.startswith(b"%d-" % name)] == [
                b"%d-%d" % (name, n) for n in range(100)
            ]

    def test_what_is_aborted_is_never_read(
        self,
        make_producer: Make,
        output: Output,
        group: Member,
        kafka_broker: Any,
        four_partitions: str,
    ) -> None:
        producer = make_producer()
        producer.begin()
        producer.produce(Message(output.topic, b"aborted"))
        producer.abort(WAIT_S)
        producer.abort(WAIT_S)
        producer.begin()
        producer.produce(Message(output.topic, b"committed"))
        self.commit(producer, four_partitions, 3, group)
        output.shows([b"committed"])
        stored(kafka_broker.address, four_partitions, {0: 3}, self.kafka)

    # ---- zombies

    def test_opening_a_producer_fences_nobody(
        self, make_producer: Make, output: Output, group: Member, four_partitions: str
    ) -> None:
        producer = make_producer()
        producer.begin()
        producer.produce(Message(output.topic, b"leader's"))
        make_producer(fenced=False)
        self.commit(producer, four_partitions, 1, group)
        output.shows([b"leader's"])

    def test_a_zombies_commit_is_refused(
        self,
        make_producer: Make,
        output: Output,
        group: Member,
        kafka_broker: Any,
        four_partitions: str,
    ) -> None:
        zombie = make_producer()
        zombie.begin()
        zombie.produce(Message(output.topic, b"zombie's"))
        eventually(
            lambda: not output.is_stable,
            timeout_s=30,
            message="the broker has the zombie's message",
        )
        successor = make_producer()
        with pytest.raises(KafkaFenced) as refused:
            self.commit(zombie, four_partitions, 5, group)
        self.assert_refused_by_broker(refused.value)
        successor.begin()
        successor.produce(Message(output.topic, b"successor's"))
        self.commit(successor, four_partitions, 2, group)
        output.shows([b"successor's"])
        stored(kafka_broker.address, four_partitions, {0: 2}, self.kafka)

    def test_a_zombies_messages_are_refused_and_its_successor_is_not_disturbed(
        self,
        make_producer: Make,
        output: Output,
        group: Member,
        kafka_broker: Any,
        four_partitions: str,
    ) -> None:
        zombie = make_producer()
        zombie.begin()
        zombie.produce(Message(output.topic, b"zombie's first"))
        eventually(
            lambda: not output.is_stable,
            timeout_s=30,
            message="the broker has the zombie's message",
        )
        successor = make_producer()
        successor.begin()
        with pytest.raises(KafkaFenced) as refused:
            for n in range(1000):
                zombie.produce(Message(output.topic, b"zombie's later %d" % n))
            self.commit(zombie, four_partitions, 5, group)
        self.assert_refused_by_broker(refused.value)
        zombie.close()
        successor.produce(Message(output.topic, b"successor's"))
        self.commit(successor, four_partitions, 2, group)
        output.shows([b"successor's"])
        stored(kafka_broker.address, four_partitions, {0: 2}, self.kafka)

    def test_fencing_aborts_the_zombies_open_transaction_at_once(
        self, make_producer: Make, output: Output, group: Member
    ) -> None:
        zombie = make_producer(transaction_timeout_s=600.0)
        zombie.begin()
        zombie.produce(Message(output.topic, b"zombie's"))
        eventually(
            lambda: not output.is_stable,
            timeout_s=30,
            message="readers wait behind the open transaction",
        )
        make_producer()
        eventually(lambda: output.is_stable, timeout_s=30, message="readers need not wait any more")
        assert output.read() == []

    def test_a_replaced_members_offsets_are_refused(
        self,
        make_producer: Make,
        output: Output,
        group: Member,
        kafka_broker: Any,
        four_partitions: str,
    ) -> None:
        producer = make_producer()
        stale = group.metadata()
        with self.joined(kafka_broker.address, four_partitions):
            producer.begin()
            producer.produce(Message(output.topic, b"of a replaced member"))
            with pytest.raises(KafkaFenced, match=r"FENCED_INSTANCE_ID|FencedInstanceId"):
                producer.commit({Partition(four_partitions, 0): 4}, stale, WAIT_S)
            producer.abort(WAIT_S)
        assert output.read() == []
        assert self.kafka.committed(kafka_broker.address, four_partitions, four_partitions) == {}

    def test_a_former_generations_offsets_are_refused_and_the_producer_goes_on(
        self,
        make_producer: Make,
        output: Output,
        group: Member,
        kafka_broker: Any,
        four_partitions: str,
    ) -> None:
        producer = make_producer()
        stale = group.metadata()
        group.join_again()
        producer.begin()
        producer.produce(Message(output.topic, b"of a former generation"))
        with pytest.raises(MembershipLost):
            producer.commit({Partition(four_partitions, 0): 4}, stale, WAIT_S)
        producer.abort(WAIT_S)
        producer.begin()
        producer.produce(Message(output.topic, b"of this generation"))
        self.commit(producer, four_partitions, 5, group)
        output.shows([b"of this generation"])
        stored(kafka_broker.address, four_partitions, {0: 5}, self.kafka)

    # ---- errors

    def test_an_unknown_topic_fails_the_transaction_and_not_the_producer(
        self, make_producer: Make, output: Output, group: Member, four_partitions: str
    ) -> None:
        producer = make_producer()
        producer.begin()
        with pytest.raises(UnknownTopic, match="no-such-topic"):
            self.produce_and_commit(
                producer, Message("no-such-topic", b"lost"), four_partitions, group
            )
        producer.abort(WAIT_S)
        producer.begin()
        self.produce_and_commit(producer, Message(output.topic, b"found"), four_partitions, group)
        output.shows([b"found"])

    def test_a_message_too_large_for_its_topic_fails_the_transaction_and_not_the_producer(
        self,
        make_producer: Make,
        output: Output,
        group: Member,
        kafka_broker: Any,
        four_partitions: str,
    ) -> None:
        small = f"{four_partitions}-small"
        configs = {"max.message.bytes": "5000"}
        self.kafka.create_topics(kafka_broker.address, {small: 1}, configs)
        producer = make_producer()
        producer.begin()
        with pytest.raises(KafkaError, match=r"max\.message\.bytes"):
            self.produce_and_commit(producer, Message(small, b"x" * 6000), four_partitions, group)
        producer.abort(WAIT_S)
        producer.begin()
        self.produce_and_commit(producer, Message(output.topic, b"small"), four_partitions, group)
        output.shows([b"small"])

    def produce_and_commit(
        self, producer: TransactionalProducer, message: Message, topic: str, group: Member
    ) -> None:
        producer.produce(message)
        self.commit(producer, topic, 1, group)

    def test_nobody_there_is_said_when_opening(self, make_producer: Make) -> None:
        port = lease_port()
        with pytest.raises(ServersUnreachable):
            make_producer(address=port.address, open_timeout_s=0.5)
        port.release()

    # ---- brokers that go away

    @pytest.mark.parametrize("stage", ["before sending", "after sending"])
    def test_a_commit_is_completed_after_the_broker_was_away(
        self,
        make_producer: Make,
        output: Output,
        group: Member,
        kafka_broker: Any,
        four_partitions: str,
        stage: str,
    ) -> None:
        producer = make_producer()
        producer.begin()
        producer.produce(Message(output.topic, b"first"))
        self.commit(producer, four_partitions, 1, group)
        producer.begin()
        if stage == "after sending":
            producer.produce(Message(output.topic, b"second"))
            eventually(
                lambda: not output.is_stable, timeout_s=30, message="the broker has the message"
            )
        kafka_broker.kill()
        if stage == "before sending":
            producer.produce(Message(output.topic, b"second"))
        with pytest.raises(KafkaAway):
            producer.commit({Partition(four_partitions, 0): 2}, group.metadata(), 1.0)
        kafka_broker.start()
        self.commit(producer, four_partitions, 2, group)
        output.shows([b"first", b"second"])
        stored(kafka_broker.address, four_partitions, {0: 2}, self.kafka)

    def test_closing_needs_no_broker(
        self, make_producer: Make, output: Output, kafka_broker: Any
    ) -> None:
        before = set(threading.enumerate())
        producer = make_producer()
        producer.begin()
        producer.produce(Message(output.topic, b"sent"))
        kafka_broker.kill()
        producer.produce(Message(output.topic, b"not sent"))
        producer.close()
        producer.close()
        eventually(
            lambda: set(threading.enumerate()) <= before, timeout_s=30, message="its threads end"
        )
        with pytest.raises(KafkaError, match="not open"):
            producer.produce(Message(output.topic, b"too late"))
