"""The transactional producer on confluent-kafka."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from own_broker import own_broker  # noqa: F401  (the fixture kafka_broker)
from producer_contract import Make, Member, Output, ProducerContract, Stage

from leaderq.errors import KafkaFenced, MissingPiece
from leaderq.kafka.clients import confluent_connection
from leaderq.kafka.clients.confluent_producer import ConfluentProducer
from leaderq.kafka.clients.producer import Message
from leaderq.kafka.topics import create_topics
from leaderq.testing import eventually

confluent_kafka = pytest.importorskip("confluent_kafka", reason="pip install 'leaderq[confluent]'")


class ConfluentMember(Member):
    """On librdkafka's consumer, whose own thread keeps the membership."""

    def __init__(self, address: str, topic: str) -> None:
        self.consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": address,
                "group.id": topic,
                "group.instance.id": "leader",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "log_level": 0,
                "error_cb": lambda _error: None,
            }
        )
        self.address, self.topics = address, [topic]
        self.joins = 0
        self._join()

    def _join(self) -> None:
        before = self.joins

        def assigned(_consumer: Any, _partitions: Any) -> None:
            self.joins += 1

        self.consumer.subscribe(self.topics, on_assign=assigned)

        def joined() -> bool:
            self.consumer.poll(0.1)
            return self.joins > before

        eventually(joined, timeout_s=30, message="the consumer is a member")

    def metadata(self) -> Any:
        return self.consumer.consumer_group_metadata()

    def join_again(self) -> None:
        more = f"{self.topics[0]}-more"
        create_topics(self.address, {more: 1})
        self.topics.append(more)
        self._join()

    def close(self) -> None:
        self.consumer.close()


class TestConfluentProducer(ProducerContract):
    """The contract, with confluent-kafka."""

    factory = ConfluentProducer
    member = ConfluentMember
    fenced_causes = ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "_FENCED")

    def test_even_a_fatal_error_prints_nothing(
        self, stage: Stage, capfd: pytest.CaptureFixture[str]
    ) -> None:
        zombie = stage.make()
        zombie.begin()
        stage.make()
        zombie.produce(Message(stage.output.topic, b"zombie's"))
        with pytest.raises(KafkaFenced):
            stage.commit(zombie, 1)
        zombie.close()
        assert capfd.readouterr() == ("", "")

    @pytest.mark.parametrize("confused", [False, True])
    def test_a_producer_fenced_between_two_messages_says_so_at_the_next(
        self, make_producer: Make, output: Output, confused: bool
    ) -> None:
        zombie: Any = make_producer()
        zombie.begin()
        make_producer()
        zombie.produce(Message(output.topic, b"zombie's"))
        eventually(
            lambda: zombie._fatal() is not None,
            timeout_s=30,
            message="the client has heard, and nobody has asked it",
        )
        # what Python makes of an error raised between two callbacks, if the second has swallowed it
        if confused:

            def lost(*_: object) -> None:
                raise SystemError("returned NULL without setting an exception")

            with pytest.raises(KafkaFenced, match="newer"):
                zombie._call("producing", lost)
        else:
            with pytest.raises(KafkaFenced, match="newer"):
                zombie.produce(Message(output.topic, b"zombie's next"))


def test_a_library_that_is_not_installed_is_told_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(MissingPiece, match=r"pip install 'leaderq\[confluent\]'"):
        confluent_connection.require()
