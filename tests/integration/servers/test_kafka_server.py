"""Kafka brokers as leaderq.testing runs them."""

from __future__ import annotations

import pytest
from kafka.admin import KafkaAdminClient, NewTopic

from leaderq.errors import ServerFailed
from leaderq.testing import KafkaBroker


def test_a_further_listener_has_its_own_port_and_credentials() -> None:
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    properties = {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secure.plain.sasl.jaas.config": f'{login} user_alice="wonderland";',
    }
    with KafkaBroker(listeners={"SECURE": "SASL_PLAINTEXT"}, properties=properties) as broker:
        options = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": "alice",
        }
        admin = KafkaAdminClient(
            bootstrap_servers=broker.address_of("SECURE"),
            sasl_plain_password="wonderland",
            **options,
        )
        admin.create_topics([NewTopic("hers", 1, 1)])
        admin.close()


def test_a_broker_that_cannot_start_says_why() -> None:
    broker = KafkaBroker(properties={"num.io.threads": "many"})
    with pytest.raises(ServerFailed, match=r"num\.io\.threads"):
        broker.start()
    assert not broker.alive
    assert broker.log_paths == []
