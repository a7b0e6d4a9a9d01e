"""The main job under every kind of change of leadership: 200,000 records, 20 changes, each record
billed once and in order.

The nemesis kills, freezes, cuts off, transfers and stops leaders while records keep coming. The
checker does not rest on Kafka's offsets or on leaderq's own word: each record carries the number
that its feeder gave it, the ledger says in which order and by which term it was billed.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from cluster import Cluster, Nemesis
from feeding import PARTITIONS, Feeder

from leaderq.kafka.topics import committed, create_topics, end_offsets
from leaderq.testing import eventually

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

from ad_billing.audit import audit, entries_of, reading
from ad_billing.feed import numbered
from ad_billing.traffic import generated

RECORDS = 200_000
CHANGES = 20


@pytest.fixture
def cluster(
    zookeeper_server, kafka_broker, fault_proxy, znode_root, topic_name, tmp_path
) -> Iterator[Cluster]:
    create_topics(kafka_broker.address, {topic_name: PARTITIONS})
    made = Cluster(
        "billing_career:Billing",
        career="billing",
        zookeeper=zookeeper_server.address,
        kafka=kafka_broker.address,
        proxy=fault_proxy,
        root=znode_root,
        environment={"TOPIC": topic_name, "AD_BILLING_LEDGER": str(tmp_path / "ledger.sqlite3")},
    )
    yield made
    made.close()


@pytest.mark.timeout(600)
def test_twenty_changes_of_every_kind_bill_each_of_200_000_records_once_and_in_order(
    cluster, kafka_broker, topic_name, tmp_path
):
    ledger = tmp_path / "ledger.sqlite3"
    nemesis = Nemesis(cluster)
    faults = itertools.cycle(
        [
            nemesis.kill,
            nemesis.freeze,
            nemesis.transfer,
            nemesis.cut_off,
            nemesis.kill,
            nemesis.step_down,
            nemesis.stop,
        ]
    )
    feeder = Feeder(kafka_broker.address, topic_name, numbered(generated(RECORDS)))
    first_term = cluster.led(supervised=True).term
    for fault in itertools.islice(faults, CHANGES):
        progress = billed(ledger)
        feeding = feeder.feed(RECORDS // CHANGES)
        view = cluster.led(supervised=True)
        cluster.eventually(lambda progress=progress: billed(ledger) > progress, "the leader bills")
        fault(view)
        feeding.join()
    last = cluster.led(supervised=True)
    assert feeder.fed == RECORDS
    assert last.term - first_term >= CHANGES
    eventually(lambda: billed(ledger) >= RECORDS, timeout_s=60, message="all records are billed")
    result = audit(entries_of(ledger), RECORDS)
    assert result.problems == []
    assert result.billed == RECORDS
    ends = end_offsets(kafka_broker.address, topic_name)
    eventually(lambda: committed(kafka_broker.address, "billing", topic_name) == ends, timeout_s=60)


def billed(ledger: Path) -> int:
    """How many bills stand in the ledger."""
    if not ledger.exists():
        return 0
    with closing(reading(ledger)) as connection:
        return connection.execute("SELECT COUNT(*) FROM billed").fetchone()[0]
