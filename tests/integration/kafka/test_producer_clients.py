"""Both client libraries behind the producer contract."""

from __future__ import annotations

from typing import Any

import pytest
from own_broker import own_broker  # noqa: F401  (the fixture kafka_broker)
from producer_contract import RealProducerContract

from leaderq.errors import KafkaFenced
from leaderq.kafka.clients.confluent_consumer import ConfluentConsumer
from leaderq.kafka.clients.confluent_producer import ConfluentProducer
from leaderq.kafka.clients.kafka_python_consumer import KafkaPythonConsumer
from leaderq.kafka.clients.kafka_python_producer import KafkaPythonProducer
from leaderq.kafka.clients.producer import Message
from leaderq.testing import eventually


class TestKafkaPythonProducer(RealProducerContract):
    factory = KafkaPythonProducer
    consumers = KafkaPythonConsumer
    fenced_causes = ("ProducerFencedError", "InvalidProducerEpochError")


class TestConfluentProducer(RealProducerContract):
    factory = ConfluentProducer
    consumers = ConfluentConsumer
    fenced_causes = ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "_FENCED")

    @pytest.mark.parametrize("confused", [False, True])
    def test_a_producer_fenced_between_two_messages_says_so_at_the_next(
        self, make_producer, output, confused, capfd
    ):
        zombie: Any = make_producer()
        zombie.begin()
        make_producer()
        zombie.produce(Message(output.topic, b"zombie's"))
        eventually(lambda: zombie._fatal() is not None)
        # what Python makes of an error raised between two callbacks, if the second has swallowed it
        if confused:

            def lost(*_: object) -> None:
                raise SystemError("returned NULL without setting an exception")

            with pytest.raises(KafkaFenced, match="newer"):
                zombie._call("producing", lost)
        else:
            with pytest.raises(KafkaFenced, match="newer"):
                zombie.produce(Message(output.topic, b"zombie's next"))
        zombie.close()
        assert capfd.readouterr() == ("", "")  # although the error is fatal
