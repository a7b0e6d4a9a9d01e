"""Offsets in one transaction with what was produced: taking over, committing, undoing, and what
goes wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from own_broker import own_broker  # noqa: F401  (the fixture kafka_broker)
from producer_contract import Output, stored

from leaderq.errors import Deposed, KafkaError, KafkaFenced
from leaderq.kafka.clients.consumer import (
    BatchLost,
    ConsumerClient,
    ConsumerSettings,
    KafkaAway,
    MembershipLost,
    Offsets,
)
from leaderq.kafka.clients.kafka_python_consumer import KafkaPythonConsumer
from leaderq.kafka.clients.kafka_python_producer import KafkaPythonProducer
from leaderq.kafka.clients.producer import Message, ProducerSettings, TransactionalProducer
from leaderq.kafka.record import Partition
from leaderq.kafka.stores import transaction_offsets
from leaderq.kafka.stores.transaction_offsets import TransactionOffsets
from leaderq.term import Reason
from leaderq.testing import eventually

TERM: Any = None  # the store passes it on to nobody


def allowed() -> None:
    """The term lasts."""


class Leader:
    """A store and a consumer, as a term has them."""

    def __init__(self, address: str, topic: str) -> None:
        self.address, self.topic = address, topic
        self.made: list[TransactionalProducer] = []
        self.store = TransactionOffsets(self._make)
        self.consumer = self.new_drain()

    def _make(self) -> TransactionalProducer:
        self.made.append(
            KafkaPythonProducer(ProducerSettings(self.address, transactional_id=self.topic))
        )
        return self.made[-1]

    def new_drain(self) -> ConsumerClient:
        consumer = KafkaPythonConsumer(
            ConsumerSettings(
                address=self.address, topics=(self.topic,), group=self.topic, member="leader"
            )
        )
        consumer.open()
        return consumer

    def take_over(self) -> Leader:
        def fenced() -> bool:
            try:
                return self.store.fence(self.consumer, TERM, allowed, 1.0)
            except KafkaAway:
                return False

        eventually(fenced, timeout_s=30, message="the leader takes over")
        return self

    def load(self) -> dict[int, int]:
        return {
            where.number: at for where, at in self.store.load(self.consumer, TERM, 20.0).items()
        }

    def at(self, offset: int) -> Offsets:
        return {Partition(self.topic, 0): offset}

    def commit(self, offset: int) -> None:
        """As a consumer thread would: again, while Kafka is unreachable or the membership is to be
        joined again.
        """

        def committed() -> bool:
            try:
                return self.store.commit(self.consumer, TERM, self.at(offset)).done(20.0)
            except (KafkaAway, MembershipLost):
                self.consumer.attend(1.0)
                return False

        for _ in range(30):
            if committed():
                return
        raise AssertionError("the offsets could not be committed")

    def close(self) -> None:
        self.store.close()
        self.consumer.close()


@pytest.fixture
def lead(kafka_broker: Any, four_partitions: str) -> Iterator[Callable[[], Leader]]:
    """Make a leader that has not taken over yet; all are closed afterwards."""
    made: list[Leader] = []

    def make() -> Leader:
        made.append(Leader(kafka_broker.address, four_partitions))
        return made[-1]

    yield make
    for leader in made:
        leader.close()


@pytest.fixture
def output(kafka_broker: Any, topic_name: str) -> Output:
    """A topic to produce to."""
    return Output(kafka_broker.address, f"{topic_name}-out")


def test_offsets_and_messages_are_committed_together(
    lead: Callable[[], Leader], output: Output
) -> None:
    leader = lead().take_over()
    assert leader.load() == {}
    for n in range(3):
        leader.store.produce(Message(output.topic, b"%d" % n))
    assert output.read() == []
    leader.commit(10)
    leader.commit(11)
    leader.store.produce(Message(output.topic, b"3"))
    leader.commit(12)
    output.shows([b"0", b"1", b"2", b"3"])
    assert leader.load() == {0: 12}


def test_a_process_whose_term_is_over_fences_nobody(
    lead: Callable[[], Leader], output: Output
) -> None:
    leader, late = lead().take_over(), lead()

    def refused() -> None:
        raise Deposed(term=1, reason=Reason.FENCED)

    with pytest.raises(Deposed):
        eventually_raises(lambda: late.store.fence(late.consumer, TERM, refused, 1.0))
    leader.store.produce(Message(output.topic, b"undisturbed"))
    leader.commit(1)
    output.shows([b"undisturbed"])


def eventually_raises(act: Callable[[], Any]) -> None:
    """Repeat what says "not yet", or that Kafka is unreachable."""
    for _ in range(20):
        with suppress(KafkaAway):
            act()


def test_a_zombie_can_neither_commit_nor_confirm(
    lead: Callable[[], Leader], output: Output
) -> None:
    zombie = lead().take_over()
    zombie.store.produce(Message(output.topic, b"committed in time"))
    zombie.commit(1)
    zombie.store.produce(Message(output.topic, b"zombie's"))
    successor = lead().take_over()
    assert successor.load() == {0: 1}
    with pytest.raises(
        KafkaFenced, match=r"ProducerFencedError|InvalidProducerEpochError|FencedInstanceIdError"
    ):
        zombie.store.commit(zombie.consumer, TERM, zombie.at(2)).done(30.0)
    zombie.close()
    successor.store.produce(Message(output.topic, b"successor's"))
    successor.commit(2)
    output.shows([b"committed in time", b"successor's"])
    assert successor.load() == {0: 2}


def test_taking_over_ends_the_transaction_that_a_zombie_left_open(
    lead: Callable[[], Leader], output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unfinished(deadline: float) -> None:
        raise KafkaAway("frozen before the end")

    zombie = lead().take_over()
    zombie.commit(1)
    monkeypatch.setattr(zombie.made[-1], "_complete", unfinished)
    zombie.store.produce(Message(output.topic, b"zombie's"))
    with pytest.raises(KafkaAway, match="frozen"):
        zombie.store.commit(zombie.consumer, TERM, zombie.at(5)).done(30.0)
    assert not output.is_stable
    successor = lead().take_over()
    eventually(lambda: output.is_stable, message="the transaction is ended, without a new one")
    assert successor.load() == {0: 1}
    assert output.read() == []


def test_a_broker_restart_amid_a_committing_neither_loses_nor_repeats(
    lead: Callable[[], Leader], output: Output, kafka_broker: Any, four_partitions: str
) -> None:
    leader = lead().take_over()
    leader.commit(1)
    for n in range(200):
        leader.store.produce(Message(output.topic, b"%d" % n))
    committing = leader.store.commit(leader.consumer, TERM, leader.at(2))
    kafka_broker.kill()
    kafka_broker.start()
    try:
        done = committing.done(20.0)
    except (KafkaAway, MembershipLost):
        done = False
    if not done:
        leader.commit(2)
    output.shows([b"%d" % n for n in range(200)])
    stored(kafka_broker.address, four_partitions, {0: 2})


@pytest.mark.parametrize("happened", [True, False])
def test_after_a_new_drain_the_offsets_tell_whether_an_unanswered_committing_happened(
    lead: Callable[[], Leader], output: Output, happened: bool
) -> None:
    leader = lead().take_over()
    leader.commit(1)
    leader.store.produce(Message(output.topic, b"once"))
    real = leader.made[-1].commit

    def unanswered(offsets: Offsets, group: Any, timeout_s: float) -> None:
        if happened:
            real(offsets, group, timeout_s)
        raise KafkaAway("no answer came")

    leader.made[-1].commit = unanswered  # type: ignore[method-assign]
    with pytest.raises(KafkaAway):
        leader.store.commit(leader.consumer, TERM, leader.at(2)).done(30.0)
    leader.consumer.close()
    leader.consumer = leader.new_drain()
    leader.take_over()
    assert len(leader.made) == 2
    assert leader.load() == {0: 2 if happened else 1}
    leader.commit(2)
    output.shows([b"once"])
    assert leader.load() == {0: 2}


@pytest.mark.parametrize(
    "said", [KafkaFenced("for its epoch"), KafkaAway("nothing, ever")], ids=["fenced", "nothing"]
)
def test_a_transaction_that_the_broker_gave_up_does_not_end_the_term(
    lead: Callable[[], Leader],
    output: Output,
    said: KafkaError,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leader = lead()
    monkeypatch.setattr(transaction_offsets, "TRANSACTION_TIMEOUT_S", 0.0)
    leader.take_over()
    leader.store.produce(Message(output.topic, b"given up"))

    def refused(offsets: Offsets, group: Any, timeout_s: float) -> None:
        raise said

    leader.made[-1].commit = refused  # type: ignore[method-assign]
    with pytest.raises(BatchLost, match="open for more than 0 s"):
        leader.store.commit(leader.consumer, TERM, leader.at(1)).done(30.0)
    assert leader.take_over().load() == {}
    leader.store.produce(Message(output.topic, b"done again"))
    leader.commit(1)
    output.shows([b"done again"])
