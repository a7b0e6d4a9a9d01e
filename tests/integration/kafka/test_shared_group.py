"""A leader whose group others are in already: members with other rules, other deployments."""

from __future__ import annotations

import re
from contextlib import closing

import confluent_kafka
import pytest

from leaderq.cli.doctor import Verdict, check_kafka_career
from leaderq.errors import Deposed, KafkaError
from leaderq.kafka.groups import Deployment
from leaderq.kafka.topics import committed, end_offsets, stored_offsets
from leaderq.testing import eventually


@pytest.fixture
def has_caught_up(kafka_broker, four_partitions):
    def told() -> bool:
        ends = end_offsets(kafka_broker.address, four_partitions)
        stored = committed(kafka_broker.address, four_partitions, four_partitions)
        return sum(stored.values()) == sum(ends.values())

    return told


@pytest.mark.parametrize("client", ["kafka-python", "confluent"])
def test_b1_members_with_another_assignor_are_named_by_the_error_and_by_doctor(
    drive, feed, kafka_broker, four_partitions, client
):
    feed(0, 10)
    options = {
        "bootstrap.servers": kafka_broker.address,
        "group.id": four_partitions,
        "client.id": "their-app",
        "partition.assignment.strategy": "cooperative-sticky",
    }
    with closing(confluent_kafka.Consumer(options)) as other:
        other.subscribe([four_partitions])
        eventually(lambda: other.poll(0.2) is None and bool(other.assignment()), timeout_s=60)
        leader = drive(client=client)
        wanted = "'cooperative-sticky': 'their-app' at .*stop those others"
        with pytest.raises(KafkaError, match=wanted):
            leader.begin().run_until(lambda: False, within_s=60)
        career, settings = leader.career, leader.career.settings
        found = list(check_kafka_career(career, four_partitions, settings))
    (group,) = (one for one in found if one.check == "group")
    assert group.verdict is Verdict.FAILED
    assert re.search(wanted, group.detail)


@pytest.mark.parametrize(
    ("client", "offsets"),
    [("kafka-python", "kafka"), ("confluent", "kafka"), ("confluent", "transaction")],
)
def test_b2_a_leader_of_another_deployment_in_the_same_group_is_told_apart(
    drive, feed, has_caught_up, kafka_broker, client, offsets, four_partitions, znode_root, caplog
):
    feed(0, 10)
    where = kafka_broker.address, four_partitions
    leader = drive(client=client, offsets=offsets).begin()
    leader.run_until(has_caught_up)
    there = f"{znode_root}/another"
    rival = drive(settings={"root": there}, client=client, offsets=offsets).begin()
    assert "another leaderq deployment has led this group" in caplog.text
    assert f"root={znode_root}" in caplog.text
    feed(10, 20)
    rival.run_until(lambda: has_caught_up() and there in str(stored_offsets(*where)))
    with pytest.raises(Deposed):
        leader.run_until(lambda: False, within_s=30)
    told = f"another leaderq deployment, root '{there}', leads this group"
    eventually(lambda: told in caplog.text, message="the log names the other")
    here = Deployment.of(leader.career.session, znode_root)
    career, settings = leader.career, leader.career.settings
    found = list(check_kafka_career(career, four_partitions, settings, here))
    assert any(told in one.detail for one in found)
