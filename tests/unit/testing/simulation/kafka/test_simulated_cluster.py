"""The simulated cluster: transactions, brokers that leave, late requests, logs; and groups: who is
let in, and whose commits are refused with what.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from simulated_time import ManualTime

from leaderq.kafka import Partition
from leaderq.kafka.record import Record
from leaderq.testing.simulation.kafka.cluster import BrokerCluster, ClusterSettings, ProducedPart
from leaderq.testing.simulation.kafka.consumer_group import (
    GroupMembership,
    StoredOffset,
)
from leaderq.testing.simulation.kafka.error_codes import ErrorCode, RefusedByBroker
from leaderq.testing.simulation.kafka.transactions import ProducerIdentity

WHERE = Partition("t", 0)
NOBODY = GroupMembership("g")
NINE = {WHERE: StoredOffset(9)}


@pytest.fixture
def time() -> ManualTime:
    return ManualTime()


def made(time: ManualTime, **changes: Any) -> BrokerCluster:
    settings = {"initial_rebalance_delay_s": 0.0, "marker_s": 0.0, **changes}
    cluster = BrokerCluster(time, ClusterSettings(**settings))
    cluster.create_topic("t", 1)
    return cluster


@pytest.fixture
def cluster(time: ManualTime) -> BrokerCluster:
    return made(time)


def refusal(act: Callable[[], object]) -> ErrorCode:
    with pytest.raises(RefusedByBroker) as refused:
        act()
    return refused.value.code


def there(broker: int | None) -> int:
    assert broker is not None
    return broker


def produced(cluster: BrokerCluster, who: ProducerIdentity, value: bytes, at: int = 0) -> int:
    row = Record("t", 0, -1, 1, None, value)
    leader = there(cluster.leader_of(WHERE))
    return cluster.produce(leader, ProducedPart(WHERE, [row], who, at))


def seen(cluster: BrokerCluster) -> list[bytes]:
    return [row.value for row in cluster.log_of(WHERE).read(0, 100).records]


def identified(cluster: BrokerCluster, timeout_s: float = 60.0) -> ProducerIdentity:
    broker = there(cluster.coordinator_of("id"))
    return cluster.initialize_producer(broker, "id", timeout_s)


# ---- transactions


def test_the_end_of_a_transaction_is_promised_first_and_written_later(time: ManualTime) -> None:
    cluster = made(time, marker_s=0.5)
    me = identified(cluster)
    produced(cluster, me, b"one")
    cluster.end_transaction(0, me, is_committed=True)
    cluster.end_transaction(0, me, is_committed=True)  # the answer was lost
    assert seen(cluster) == []
    assert refusal(lambda: identified(cluster)) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert refusal(lambda: produced(cluster, me, b"two", 1)) is ErrorCode.CONCURRENT_TRANSACTIONS
    time.pass_(0.5)
    cluster.advance()
    assert seen(cluster) == [b"one"]
    identified(cluster)


def test_a_request_arrives_though_nobody_waits_for_it_any_more(
    cluster: BrokerCluster, time: ManualTime
) -> None:
    sent = cluster.send(0, lambda _: cluster.commit(0, NOBODY, NINE), there_s=3.0)
    time.pass_(2.9)
    cluster.advance()
    assert cluster.group("g").offsets == {}
    time.pass_(5.0)
    cluster.advance()
    assert cluster.group("g").offsets == NINE
    assert sent.done_s == sent.arrives_s == 1003.0


# ---- brokers


def test_another_replica_leads_after_a_while_under_a_new_epoch(time: ManualTime) -> None:
    cluster = made(time, brokers=3, failover_s=2.0)
    leader = there(cluster.leader_of(WHERE))
    me = cluster.initialize_producer(leader, None, 0)
    produced(cluster, me, b"before")
    cluster.stop(leader)
    assert cluster.leader_of(WHERE) is None
    time.pass_(2.0)
    cluster.advance()
    assert cluster.leader_of(WHERE) not in (None, leader)
    produced(cluster, me, b"after", 1)
    assert seen(cluster) == [b"before", b"after"]
    assert [row.leader_epoch for row in cluster.log_of(WHERE).read(0, 9).records] == [0, 1]
    part = ProducedPart(WHERE, [], me, 2)
    cluster.start(leader)
    code = refusal(lambda: cluster.produce(leader, part))
    assert code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_broker_that_thaws_late_refuses_what_it_leads_no_more(time: ManualTime) -> None:
    cluster = made(time, brokers=3, failover_s=1.0, broker_session_s=9.0)
    broker = there(cluster.coordinator_of("g"))
    cluster.freeze(broker)
    sent = cluster.send(broker, lambda _: cluster.commit(broker, NOBODY, NINE))
    time.pass_(10.0)
    cluster.advance()
    assert cluster.coordinator_of("g") != broker
    cluster.start(broker)
    assert sent.error is not None
    assert sent.error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert cluster.group("g").offsets == {}
