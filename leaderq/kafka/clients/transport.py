"""The clients through which careers and sinks reach Kafka, looked up late.

A simulation replaces ``new_consumer`` and ``new_producer`` of this module by clients of its own
cluster; so they are used by attribute. The extra ``confluent`` is loaded only where it is asked
for.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from leaderq.errors import MissingPiece
from leaderq.kafka.clients.client_options import ClientLibrary
from leaderq.kafka.clients.consumer import ConsumerFactory
from leaderq.kafka.clients.kafka_python_consumer import KafkaPythonConsumer
from leaderq.kafka.clients.kafka_python_producer import KafkaPythonProducer
from leaderq.kafka.clients.producer import ProducerFactory

new_consumer: ConsumerFactory = KafkaPythonConsumer
new_producer: ProducerFactory = KafkaPythonProducer


def consumers_of(library: ClientLibrary) -> ConsumerFactory:
    """Return what makes a consumer of ``library``; raises ``MissingPiece`` if it is missing."""
    return new_consumer if library is ClientLibrary.KAFKA_PYTHON else _confluent("Consumer")


def producers_of(library: ClientLibrary) -> ProducerFactory:
    """Return what makes a producer of ``library``; raises ``MissingPiece`` if it is missing."""
    return new_producer if library is ClientLibrary.KAFKA_PYTHON else _confluent("Producer")


def _confluent(kind: str) -> Any:
    try:
        module = import_module(f"leaderq.kafka.clients.confluent_{kind.lower()}")
        return getattr(module, f"Confluent{kind}")
    except ImportError as exc:
        raise MissingPiece(
            f"the Kafka client 'confluent' cannot be used ({exc}): pip install 'leaderq[confluent]'"
        ) from exc
