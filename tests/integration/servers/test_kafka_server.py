"""Kafka brokers as leaderq.testing runs them."""

from __future__ import annotations

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import KafkaError
from kafka.structs import TopicPartition

from leaderq.errors import ServerFailed
from leaderq.testing import FaultProxy, KafkaBroker, KafkaCluster, eventually


def create_topic(address: str, name: str, *, copies: int = 1) -> None:
    admin = KafkaAdminClient(bootstrap_servers=address)
    admin.create_topics([NewTopic(name, 1, copies)])
    admin.close()


def produce(address: str, topic: str, *values: bytes) -> None:
    producer = KafkaProducer(bootstrap_servers=address, acks="all")
    for value in values:
        producer.send(topic, value).get(timeout=30)
    producer.close()


def consume(address: str, topic: str, count: int) -> list[bytes]:
    consumer = KafkaConsumer(bootstrap_servers=address, enable_auto_commit=False)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    values: list[bytes] = []

    def poll() -> bool:
        values.extend(record.value for record in consumer.poll(200).get(partition, []))
        return len(values) >= count

    try:
        eventually(poll, timeout_s=30, message=f"{count} records of {topic} are there")
    finally:
        consumer.close()
    return values


def test_records_are_there_after_a_kill_and_after_a_restart(topic_name: str) -> None:
    with KafkaBroker() as broker:
        address, folder = broker.address, broker.folder
        create_topic(address, topic_name)
        produce(address, topic_name, b"1", b"2")
        broker.kill()
        broker.start()
        produce(address, topic_name, b"3")
        broker.restart()
        assert broker.address == address
        assert consume(address, topic_name, 3) == [b"1", b"2", b"3"]
    assert not folder.exists()


def test_clients_that_begin_at_the_fault_proxy_stay_behind_it(
    kafka_broker: KafkaBroker, kafka_fault_proxy: FaultProxy, topic_name: str
) -> None:
    create_topic(kafka_broker.address, topic_name)
    producer = KafkaProducer(
        bootstrap_servers=kafka_fault_proxy.address,
        request_timeout_ms=5000,
        delivery_timeout_ms=6000,
    )
    try:
        producer.send(topic_name, b"1").get(timeout=30)
        kafka_fault_proxy.black_hole()
        lost = producer.send(topic_name, b"2")
        with pytest.raises(KafkaError):
            lost.get(timeout=30)
    finally:
        producer.close(timeout=1)
    kafka_fault_proxy.heal()
    produce(kafka_fault_proxy.address, topic_name, b"3")
    assert consume(kafka_broker.address, topic_name, 2) == [b"1", b"3"]


def test_a_cluster_keeps_what_was_written_when_a_broker_is_killed(
    kafka_cluster: KafkaCluster, topic_name: str
) -> None:
    create_topic(kafka_cluster.address, topic_name, copies=3)
    produce(kafka_cluster.address, topic_name, b"1")
    kafka_cluster.members[0].kill()
    survivors = ",".join(member.address for member in kafka_cluster.members[1:])
    assert consume(survivors, topic_name, 1) == [b"1"]
    kafka_cluster.members[0].start()
    assert kafka_cluster.alive


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
