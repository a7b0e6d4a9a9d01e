"""Servers that answer and refuse, or do not have what is asked for: one sentence, the right exit
code, no traceback, no secret.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from leaderq.testing import KafkaBroker, ZooKeeperServer

ZOOKEEPER_USERS = """
Server {
    org.apache.zookeeper.server.auth.DigestLoginModule required
    user_biller="right";
};
"""
KAFKA_USERS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="admin" password="admin-secret" user_admin="admin-secret" user_biller="right";'
)
DRAIN = """
from leaderq import KafkaLeaderCareer

class Drain(KafkaLeaderCareer):
    topics = "no-such-topic"

    def handle(self, records, term):
        pass
"""


@pytest.fixture
def drain(folder: Path) -> str:
    (folder / "drain.py").write_text(DRAIN)
    return "drain:Drain"


@pytest.fixture(scope="module")
def guarded_zookeeper() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(jaas=ZOOKEEPER_USERS) as server:
        yield server


@pytest.fixture(scope="module")
def guarded_kafka() -> Iterator[KafkaBroker]:
    properties = {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.guarded.plain.sasl.jaas.config": KAFKA_USERS,
    }
    with KafkaBroker(listeners={"GUARDED": "SASL_PLAINTEXT"}, properties=properties) as broker:
        yield broker


def last_line(done) -> str:
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()[-1]


def test_wrong_credentials_for_zookeeper_are_said_and_nothing_secret_is_shown(
    shell, guarded_zookeeper
):
    login = {
        "zookeeper": guarded_zookeeper.address,
        "zookeeper_auth": "sasl",
        "zookeeper_user": "biller",
    }
    done = shell("run", "billing:AdBilling", **login, zookeeper_password="wrong-secret")
    assert done.returncode == 2, done.stderr
    assert guarded_zookeeper.address in last_line(done)
    assert "biller" in last_line(done)
    assert "wrong-secret" not in done.stderr
    assert shell("status", **login, zookeeper_password="right").returncode == 0


def test_wrong_credentials_for_kafka_are_said_and_nothing_secret_is_shown(
    shell, zookeeper_server, guarded_kafka, drain, root
):
    done = shell(
        "run",
        drain,
        zookeeper=zookeeper_server.address,
        root=root,
        kafka=guarded_kafka.address_of("GUARDED"),
        kafka_protocol="SASL_PLAINTEXT",
        kafka_mechanism="PLAIN",
        kafka_user="biller",
        kafka_password="wrong-secret",
    )
    assert done.returncode == 2, done.stderr
    assert guarded_kafka.address_of("GUARDED") in last_line(done)
    assert "check user, password" in last_line(done)
    assert "wrong-secret" not in done.stderr
