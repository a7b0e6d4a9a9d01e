"""Brokers that restart, consumers that stall, processes that freeze."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from own_broker import own_broker  # noqa: F401  (the fixture kafka_broker)

from leaderq.kafka import Partition, Record
from leaderq.kafka.clients.confluent_consumer import ConfluentConsumer
from leaderq.kafka.clients.consumer import ConsumerSettings, LogTruncated
from leaderq.kafka.clients.kafka_python_consumer import KafkaPythonConsumer
from leaderq.kafka.record import Offset
from leaderq.kafka.topics import committed, create_topics, end_offsets, produce
from leaderq.testing import eventually
from leaderq.testing.freezing import freeze


def test_a_broker_restart_in_the_middle_loses_nothing(drive, feed, kafka_broker, four_partitions):
    values = feed(0, 600)
    leader = drive(max_records=25, offsets="transaction").begin()
    leader.run_until(lambda: len(leader.career.seen) >= 100)
    with ThreadPoolExecutor(1) as pool:
        restarting = pool.submit(lambda: (kafka_broker.kill(), kafka_broker.start()))
        leader.run_until(lambda: restarting.done() and len(leader.career.seen) >= 600, within_s=120)
        restarting.result()
    # A transaction that the broker had to give up is done again from its first record; nobody sees
    # what it had produced.
    assert sorted(set(leader.career.values()), key=int) == values
    ends = end_offsets(kafka_broker.address, four_partitions)
    leader.run_until(
        lambda: committed(kafka_broker.address, four_partitions, four_partitions) == ends
    )


@pytest.mark.parametrize("factory", [KafkaPythonConsumer, ConfluentConsumer])
def test_a_position_behind_the_end_of_its_leaders_log_is_refused_whatever_was_written_since(
    factory, kafka_broker, topic_name
):
    """A broker that restarts leads with a new epoch; an unclean election: test_three_brokers.py."""
    address, at = kafka_broker.address, Partition(topic_name, 0)
    create_topics(address, {topic_name: 1})

    def read(offset: int) -> Record:
        with closing(
            factory(ConsumerSettings(address, (topic_name,), topic_name, "m", membership=False))
        ) as consumer:
            consumer.open()
            eventually(lambda: consumer.join(lambda: None, 1.0))
            consumer.seek({at: offset})
            while not (polled := consumer.poll(1.0, 1)):  # eventually() would go on after an error
                pass
            return polled[at][0]

    produce(address, topic_name, [(None, b"before")] * 10)
    was = read(0).leader_epoch
    kafka_broker.kill()
    kafka_broker.start()
    produce(address, topic_name, [(None, b"after")] * 10)
    assert read(Offset(10, was)).value == b"after"
    for _ in range(3):  # what is not known yet is not taken for an answer
        with pytest.raises(LogTruncated, match="cut off"):
            read(Offset(15, was))


ZOMBIE = """
import sys
sys.path[:0] = sys.argv[1].split(":")
from driving import Driver, Recorder, given
from leaderq.errors import Deposed
from leaderq.zookeeper import connect

topic, address, zookeeper = sys.argv[2:5]
career = type("Zombie", (Recorder,), {"topics": topic, "group": topic, "max_records": 10})()
given(career, connect(zookeeper), "zombie", kafka=address, career=topic).prepare()
leader = Driver(career).begin()
try:
    while True:
        career.execute(leader.term)
        print(len(career.seen), flush=True)
except Deposed as exc:
    print("deposed", exc.reason.value, flush=True)
"""


def test_a_leader_frozen_and_thawed_is_fenced_and_fences_nobody(
    drive, feed, kafka_broker, zookeeper_server, four_partitions
):
    feed(0, 30)
    here = os.pathsep.join(sys.path)
    places = [here, four_partitions, kafka_broker.address, zookeeper_server.address]
    zombie = subprocess.Popen(
        [sys.executable, "-c", ZOMBIE, *places], stdout=subprocess.PIPE, text=True
    )

    def stored() -> int:
        return sum(committed(kafka_broker.address, four_partitions, four_partitions).values())

    try:
        eventually(lambda: stored() == 30, timeout_s=60)
        freeze(zombie.pid)
        leader = drive().begin()
        feed(30, 60)
        leader.run_until(lambda: len(leader.career.seen) >= 30)
        os.kill(zombie.pid, signal.SIGCONT)
        told, _ = zombie.communicate(timeout=60)
        assert told.splitlines()[-1] == "deposed fenced"
        feed(60, 90)
        leader.run_until(lambda: len(leader.career.seen) >= 60)
    finally:
        zombie.kill()
        zombie.communicate()
