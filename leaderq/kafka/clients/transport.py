"""What careers reach Kafka through where ``client="kafka-python"``, looked up late.

A simulation replaces the attributes of this module by clients of its own cluster; so they are used
by attribute: ``transport.new_consumer(...)``.
"""

from __future__ import annotations

from leaderq.kafka.clients.consumer import ConsumerFactory
from leaderq.kafka.clients.kafka_python_consumer import KafkaPythonConsumer
from leaderq.kafka.clients.kafka_python_producer import IdempotentSender, KafkaPythonProducer

new_consumer: ConsumerFactory = KafkaPythonConsumer
"""Makes a consumer; see :class:`leaderq.kafka.clients.consumer.ConsumerClient`."""

new_producer = KafkaPythonProducer
"""Makes what produces in transactions; see
:class:`leaderq.kafka.clients.producer.TransactionalProducer`.
"""

new_idempotent_sender = IdempotentSender
"""Makes what sends dead letters."""
