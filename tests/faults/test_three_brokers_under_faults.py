"""Careers of every store on three brokers: leaders and brokers fail, strangers join the group and
leave.

The long run, for ``make faults``: about ten minutes a store. ``make test`` has a short one
(``tests/integration/kafka/test_three_brokers.py``).
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any

import confluent_kafka
import pytest
from cluster import Cluster, Nemesis
from feeding import PARTITIONS, Feeder, plain
from kafka_roles import group_coordinator, partition_leader, transaction_coordinator
from stores import HandledFiles, OutputTopic, Results
from verdicts import exactly_once, skipped

from leaderq.election import View
from leaderq.kafka.assembly import transactional_id
from leaderq.kafka.topics import committed, create_topics, end_offsets

FAULTS = int(os.environ.get("LEADERQ_TEST_FAULTS", "0"))
SEED = int(os.environ.get("LEADERQ_TEST_SEED", random.randrange(10**6)))
SHARE = 200
FROZEN_S = 5.0
pytestmark = [
    pytest.mark.timeout(3600),
    pytest.mark.skipif(
        not FAULTS, reason="ten minutes for each store: make faults (LEADERQ_TEST_FAULTS=30)"
    ),
]


@pytest.fixture
def kafka_broker(kafka_cluster: Any) -> Any:
    """Three in the place of one."""
    return kafka_cluster


@pytest.fixture
def feeder(kafka_cluster: Any, topic_name: str) -> Feeder:
    for name in (topic_name, f"{topic_name}-output"):
        create_topics(kafka_cluster.address, {name: PARTITIONS}, replication=3)
    return Feeder(kafka_cluster.address, topic_name, plain())


class Brokers:
    """What befalls the broker that leads a partition, the group or the transactions."""

    def __init__(self, brokers: Any, topic: str, root: str) -> None:
        name = transactional_id(topic, topic, root)
        self._roles: dict[str, Callable[[], Any]] = {
            "partition": lambda: partition_leader(brokers, topic),
            "group": lambda: group_coordinator(brokers, topic),
            "transactions": lambda: transaction_coordinator(brokers, name),
        }

    def faults(self, store: str) -> list[Callable[[View], None]]:
        """Each fault on each role that the store knows."""
        roles = [role for role in self._roles if role != "transactions" or store == "transaction"]
        return [
            partial(fault, role)
            for role in roles
            for fault in (self.kill, self.freeze, self.restart)
        ]

    def kill(self, role: str, _view: View) -> None:
        broker = self._roles[role]()
        broker.kill()
        broker.start()

    def freeze(self, role: str, _view: View) -> None:
        broker = self._roles[role]()
        broker.freeze()
        time.sleep(FROZEN_S)  # the fault itself
        broker.thaw()

    def restart(self, role: str, _view: View) -> None:
        broker = self._roles[role]()
        broker.stop(keep_data=True)
        broker.start()


def told(fault: Any) -> str:
    """What it is called, and whom it befalls."""
    return (
        f"{fault.func.__name__} {fault.args[0]}" if isinstance(fault, partial) else fault.__name__
    )


@contextmanager
def strangers(address: str, group: str) -> Iterator[None]:
    """Members of the group that come, are given partitions, read, commit nothing, and leave."""

    def visit() -> None:
        while not over.wait(5.0):
            visitor = confluent_kafka.Consumer(
                {
                    "bootstrap.servers": address,
                    "group.id": group,
                    "enable.auto.commit": False,
                    "auto.offset.reset": "earliest",
                    "partition.assignment.strategy": "range",
                    "log_level": 0,
                    "error_cb": lambda _error: None,
                }
            )
            visitor.subscribe([group])
            end = time.monotonic() + 5.0
            while time.monotonic() < end and not over.is_set():
                visitor.poll(0.1)
            visitor.close()

    over = threading.Event()
    thread = threading.Thread(target=visit)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("client", ["kafka-python", "confluent"])
@pytest.mark.parametrize("store", ["kafka", "transaction", "zookeeper", "sqlite", "postgres"])
def test_records_are_handled_as_promised_whatever_befalls_leaders_and_brokers(
    a_cluster: Callable[..., Cluster],
    results_of: Callable[[str], Results],
    feeder: Feeder,
    kafka_cluster: Any,
    topic_name: str,
    znode_root: str,
    store: str,
    client: str,
) -> None:
    def handled() -> int:
        return len({(one.partition, one.offset) for one in results.results()})

    print(f"LEADERQ_TEST_SEED={SEED} LEADERQ_TEST_FAULTS={FAULTS}")
    results = results_of(store)
    more = {"CLIENT": client, "FLAKY": "0.05", "RUDE": "1"}
    cluster = a_cluster(results, kafka_cluster.address, environment=more)
    kinds = [
        *Nemesis(cluster).faults,
        *Brokers(kafka_cluster, topic_name, znode_root).faults(store),
    ]
    order = random.Random(SEED)
    rounds = iter(lambda: order.sample(kinds, len(kinds)), None)
    with strangers(kafka_cluster.address, topic_name):
        for fault in islice((fault for each in rounds for fault in each), FAULTS):
            before = handled()
            feeding = feeder.feed(SHARE)
            cluster.eventually(
                lambda before=before: handled() > before, "the leader works", timeout_s=120
            )
            view = cluster.led(supervised=True)
            print(
                f"term {view.term} of {view.leader}: {told(fault)}, {handled()} of {feeder.fed}"
                " handled",
                flush=True,
            )
            fault(view)
            feeding.join()
        cluster.led(supervised=True)
        try:
            cluster.eventually(
                lambda: handled() >= feeder.fed, "all records are handled", timeout_s=60
            )
        except AssertionError:
            print(f"{handled()} of {feeder.fed}; ends {feeder.ends()}")
            print(f"committed {committed(kafka_cluster.address, topic_name, topic_name)}")
            if isinstance(results, OutputTopic):
                again = OutputTopic(kafka_cluster.address, f"{topic_name}-output", PARTITIONS)
                print(
                    f"stable {end_offsets(kafka_cluster.address, again.environment['OUTPUT'])},"
                    f" read {len(again.all_results())}"
                )
                again.close()
            raise
    cluster.close()
    ends = {where.number: end for where, end in feeder.ends().items()}
    failed = [line for line in cluster.said("term_ended") if line.get("reason") == "failed"]
    found = results.all_results() if isinstance(results, OutputTopic) else results.results()
    print(
        f"{store} {client}: {feeder.fed} records, {len(found)} handled or stored, {len(failed)}"
        f" failed terms of {view.term}"
    )
    if isinstance(results, HandledFiles):
        assert skipped(results.handled(), ends) == []
    else:
        assert exactly_once(found, ends) == []
    assert failed == []
