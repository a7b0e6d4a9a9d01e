"""Brokers that restart, consumers that stall, processes that freeze."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from driving import Driver
from own_broker import own_broker  # noqa: F401  (the fixture kafka_broker)

from leaderq.kafka.topics import committed, end_offsets
from leaderq.testing import eventually
from leaderq.testing.freezing import freeze

Drive = Callable[..., Driver]
Feed = Callable[[int, int], list[bytes]]


@pytest.mark.parametrize(
    ("unclean", "offsets", "client"),
    [
        (False, "kafka", "confluent"),
        (True, "transaction", "kafka-python"),
        (True, "zookeeper", "confluent"),
    ],
)
def test_a_broker_restart_in_the_middle_loses_nothing(
    drive: Drive,
    feed: Feed,
    kafka_broker: Any,
    four_partitions: str,
    unclean: bool,
    offsets: str,
    client: str,
) -> None:
    values = feed(0, 600)
    leader = drive(max_records=25, offsets=offsets, client=client).begin()
    leader.run_until(lambda: len(leader.career.seen) >= 100)
    restarted = threading.Event()

    def restart() -> None:
        kafka_broker.kill() if unclean else kafka_broker.stop(keep_data=True)
        kafka_broker.start()
        restarted.set()

    thread = threading.Thread(target=restart)
    thread.start()
    leader.run_until(lambda: restarted.is_set() and len(leader.career.seen) >= 600, within_s=120)
    thread.join()
    handled = leader.career.values()
    # A transaction that the broker had to give up is done again from its first record; nobody sees
    # what it had produced.
    assert sorted(set(handled) if offsets == "transaction" else handled, key=int) == values
    ends = end_offsets(kafka_broker.address, four_partitions)
    leader.run_until(
        lambda: committed(kafka_broker.address, four_partitions, four_partitions) == ends
    )


ZOMBIE = """
import sys
sys.path.insert(0, sys.argv[1])
from driving import Driver, Recorder
from leaderq.config import Settings
from leaderq.errors import Deposed
from leaderq.events import EventBus
from leaderq.zookeeper import connect

topic, address, zookeeper = sys.argv[2:5]
career = type("Zombie", (Recorder,), {"topics": topic, "group": topic, "max_records": 10})()
career.settings = Settings(kafka=address, career=topic)
career.events, career.candidate_id, career.session = EventBus(), "zombie", connect(zookeeper)
career.prepare()
leader = Driver(career).begin()
try:
    while True:
        career.execute(leader.term)
        print(len(career.seen), flush=True)
except Deposed as exc:
    print("deposed", exc.reason.value, flush=True)
"""


# -- bug 22: a zombie commits offsets after the new leader has read them ---------------------------


def test_a_leader_frozen_and_thawed_is_fenced_and_fences_nobody(
    drive: Drive, feed: Feed, kafka_broker: Any, zookeeper_server: Any, four_partitions: str
) -> None:
    feed(0, 30)
    here = str(Path(__file__).parent)
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
