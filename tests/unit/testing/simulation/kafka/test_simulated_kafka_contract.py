"""The simulated clients behind the contracts that both real ones pass; no server is needed."""

from __future__ import annotations

import pytest
from consumer_contract import ConsumerContract
from producer_contract import ProducerContract
from simulated_surroundings import SimulatedSurroundings, kafka_at

from leaderq.kafka.clients import consumer, producer
from leaderq.testing.simulation.kafka.consumer import SimulatedConsumer
from leaderq.testing.simulation.kafka.producer import SimulatedProducer


def simulated_consumer(settings: consumer.ConsumerSettings) -> SimulatedConsumer:
    return SimulatedConsumer(kafka_at(settings.address), settings)


def simulated_producer(settings: producer.ProducerSettings) -> SimulatedProducer:
    return SimulatedProducer(kafka_at(settings.address), settings)


class TestSimulatedConsumer(ConsumerContract):
    factory = staticmethod(simulated_consumer)
    kafka = SimulatedSurroundings
    frozen_s = 0.5
    session_s = 1.0

    @pytest.fixture(autouse=True)
    def _news_of_topics_soon(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(SimulatedConsumer, "metadata_s", 0.2)


class TestSimulatedProducer(ProducerContract):
    factory = staticmethod(simulated_producer)
    consumers = staticmethod(simulated_consumer)
    kafka = SimulatedSurroundings
    fenced_causes = ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")
