"""Careers on a cluster of three, each of which is killed, frozen or restarted: no term fails.

All clients go through the same faults at once, each career in a group of its own, so that whichever
broker fails leads partitions, groups and transactions of some of them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import pytest
from driving import Driver, Forwarding, Recorder
from kafka import KafkaAdminClient
from kafka_roles import partition_leader
from producer_contract import Output

from leaderq.errors import OffsetOutOfRange
from leaderq.kafka import Partition
from leaderq.kafka.topics import create_topics, describe_topics, end_offsets, produce
from leaderq.testing import eventually

FROZEN_S = 4.0  # longer than the cluster misses a broker (3 s)


@pytest.fixture
def kafka_broker(kafka_cluster):
    return kafka_cluster


@pytest.fixture
def four_partitions(kafka_cluster, topic_name):
    create_topics(kafka_cluster.address, {topic_name: 4}, replication=3)
    return topic_name


def kill(member: Any) -> None:
    member.kill()
    member.start()


def freeze(member: Any) -> None:
    member.freeze()
    time.sleep(FROZEN_S)  # the fault itself
    member.thaw()


def restart(member: Any) -> None:
    member.stop(keep_data=True)
    member.start()


@contextmanager
def feeding(address: str, topic: str) -> Iterator[list[bytes]]:
    values: list[bytes] = []
    is_over = threading.Event()

    def feed() -> None:
        while not is_over.is_set():
            chunk = [b"%d" % number for number in range(len(values), len(values) + 50)]
            produce(address, topic, ((value, value) for value in chunk))
            values.extend(chunk)
            is_over.wait(0.2)

    with ThreadPoolExecutor(1) as thread:
        fed = thread.submit(feed)
        try:
            yield values
        finally:
            is_over.set()
        fed.result()


class Handling(Recorder):
    """Effects that nobody undoes."""

    max_records = 50
    output: Output

    def results(self) -> list[bytes]:
        return list(dict.fromkeys(self.values()))  # at least once


class Producing(Forwarding, Handling):
    def results(self) -> list[bytes]:
        return self.output.read()


@pytest.fixture
def make_leaders(drive, kafka_cluster, topic_name):
    def make(topic: str) -> list[Driver]:
        made = []
        for client in ("kafka-python", "confluent"):
            for kind in (Handling, Producing):
                name = f"{topic_name}-{client}-{kind.offsets}"
                create_topics(kafka_cluster.address, {f"{name}-out": 1}, replication=3)
                output = Output(kafka_cluster.address, f"{name}-out")
                more = {"topics": topic, "group": name, "output": output, "out": output.topic}
                made.append(drive(kind, {"career": name}, client=client, **more))
        return made

    return make


def test_each_broker_of_three_may_fail_in_turn_and_no_term_does(
    make_leaders, kafka_cluster, four_partitions
):
    leaders, topic_name = make_leaders(four_partitions), four_partitions

    def lead(leader: Driver) -> None:
        consumer = leader.career._assembly.consumer
        # raises what would fail the term
        leader.begin().run_until(lambda: bool(ends) and consumer.loaded == ends, within_s=200)

    ends: dict[Partition, int] = {}
    with ThreadPoolExecutor(len(leaders)) as threads:
        leading = [threads.submit(lead, leader) for leader in leaders]
        with feeding(kafka_cluster.address, topic_name) as fed:
            for member, fault in zip(kafka_cluster.members, (kill, freeze, restart), strict=True):
                fault(member)
        for number, end in end_offsets(kafka_cluster.address, topic_name).items():
            ends[Partition(topic_name, number)] = end
        for each in leading:
            each.result()
    for leader in leaders:
        where = f"{leader.career.client} {leader.career.offsets}"
        assert sorted(leader.career.results(), key=int) == fed, where


def test_a_log_that_was_cut_off_and_written_again_stops_each_leader_that_had_read_further(
    make_leaders, kafka_cluster, four_partitions
):
    address, topic = kafka_cluster.address, f"{four_partitions}-cut"

    def values(first: int, end: int) -> list[tuple[None, bytes]]:
        return [(None, b"%d" % number) for number in range(first, end)]

    configs = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    create_topics(address, {topic: 1}, replication=2, configs=configs)
    leaders = make_leaders(topic)
    leads = partition_leader(kafka_cluster, topic)
    with closing(KafkaAdminClient(bootstrap_servers=address)) as admin:
        (told,) = admin.describe_topics([topic])
    numbers = told["partitions"][0]["replica_nodes"]
    copies = [kafka_cluster.members[number - 1] for number in numbers]
    (follows,) = (member for member in copies if member is not leads)
    produce(address, topic, values(0, 100))
    follows.kill()
    eventually(lambda: describe_topics(address, [topic])[topic].in_sync == 1, timeout_s=60)
    produce(address, topic, values(100, 200))
    for leader in leaders:
        consumer = leader.career._assembly.consumer
        leader.begin().run_until(lambda of=consumer: of.loaded == {Partition(topic, 0): 200})
        leader.end()
    leads.kill()
    with ThreadPoolExecutor(1) as background:
        starting = background.submit(follows.start)  # until it knows all three
        eventually(lambda: not describe_topics(address, [topic])[topic].leaderless, timeout_s=60)
        leads.start()
        starting.result()
    produce(address, topic, values(1000, 1200))
    for leader in leaders:
        where = f"{leader.career.client} {leader.career.offsets}"
        print(where)  # shown if the next fails
        leader.begin()
        with pytest.raises(OffsetOutOfRange, match="cut off"):
            leader.run_until(lambda: False, within_s=20)
        assert len(leader.career.results()) == 200, where
