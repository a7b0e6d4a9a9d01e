"""What doctor finds at a career whose user may do little, at a broker that minds."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

import pytest
from guarded_broker import PASSWORD, PLAIN_USERS, USER
from kafka.admin import ACL, ACLPermissionType, KafkaAdminClient, ResourcePattern
from kafka.admin import ACLOperation as Operation
from kafka.admin import ResourceType as Kind

from leaderq.cli.doctor import Finding, Verdict, check_kafka_career
from leaderq.config import Settings
from leaderq.kafka import KafkaLeaderCareer, Record, dead_letter
from leaderq.kafka.topics import create_topics
from leaderq.term import Term
from leaderq.testing import KafkaBroker, eventually


@pytest.fixture
def broker():
    """Who comes by the plain listener may do anything; by the guarded one, what it is allowed."""
    properties = {
        "listener.name.plain.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.plain.plain.sasl.jaas.config": PLAIN_USERS,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with KafkaBroker(listeners={"PLAIN": "SASL_PLAINTEXT"}, properties=properties) as started:
        yield started


class Billing(KafkaLeaderCareer):
    topics = "clicks"
    on_error = dead_letter()

    def handle(self, records: Sequence[Record], term: Term) -> None: ...


def allow(broker: KafkaBroker, operation: Operation, kind: Kind, name: str) -> None:
    pattern = ResourcePattern(kind, name)
    access = ACL(f"User:{USER}", "*", operation, ACLPermissionType.ALLOW, pattern)
    with closing(KafkaAdminClient(bootstrap_servers=broker.address)) as admin:
        admin.create_acls([access])


def test_doctor_tells_which_right_is_missing_until_none_is(broker):
    create_topics(broker.address, {"clicks": 2})
    guard = {"kafka_protocol": "SASL_PLAINTEXT", "kafka_mechanism": "PLAIN"}
    login = {"kafka_user": USER, "kafka_password": PASSWORD}
    settings = Settings(kafka=broker.address_of("PLAIN"), **guard, **login)

    def found() -> dict[str, Finding]:
        return {each.check: each for each in check_kafka_career(Billing(), "billing", settings)}

    def says(what: str, sentence: str) -> bool:
        return sentence in found()[what].detail

    assert says("topic clicks", "this user may not see it, or it is not there")
    assert says("topic billing-dead", "it needs WRITE, and CREATE if it is missing")
    allow(broker, Operation.DESCRIBE, Kind.TOPIC, "clicks")
    eventually(lambda: says("topic clicks", "it needs the operation READ"))
    assert "needs READ on group 'billing'" in found()["group"].detail
    allow(broker, Operation.READ, Kind.TOPIC, "clicks")
    allow(broker, Operation.WRITE, Kind.TOPIC, "billing-dead")
    allow(broker, Operation.READ, Kind.GROUP, "billing")
    eventually(lambda: says("topic billing-dead", "is not there, and this user may not create it"))
    allow(broker, Operation.CREATE, Kind.TOPIC, "billing-dead")
    eventually(lambda: all(each.verdict is not Verdict.FAILED for each in found().values()))
