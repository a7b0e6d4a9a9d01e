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
    ConsumerGroup,
    GroupMembership,
    GroupState,
    JoinAnswer,
    StoredOffset,
)
from leaderq.testing.simulation.kafka.error_codes import ErrorCode, RefusedByBroker
from leaderq.testing.simulation.kafka.partition_log import PartitionLog, ProducerStamp
from leaderq.testing.simulation.kafka.transactions import BrokerTransactionState, ProducerIdentity

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


def test_another_end_than_the_promised_one_is_refused(cluster: BrokerCluster) -> None:
    me = identified(cluster)
    code = refusal(lambda: cluster.end_transaction(0, me, is_committed=True))
    assert code is ErrorCode.INVALID_TXN_STATE  # nothing has begun
    produced(cluster, me, b"one")
    cluster.end_transaction(0, me, is_committed=False)
    code = refusal(lambda: cluster.end_transaction(0, me, is_committed=True))
    assert code is ErrorCode.INVALID_TXN_STATE
    assert seen(cluster) == []


def test_the_time_out_is_of_one_transaction_not_of_the_next(
    cluster: BrokerCluster, time: ManualTime
) -> None:
    me = identified(cluster, timeout_s=5.0)
    for at in range(4):
        produced(cluster, me, b"%d" % at, at)
        time.pass_(3.0)
        cluster.advance()
        cluster.end_transaction(0, me, is_committed=True)
    assert seen(cluster) == [b"0", b"1", b"2", b"3"]


def test_markers_wait_for_a_partition_that_nobody_leads(time: ManualTime) -> None:
    cluster = made(time, brokers=2, replication=1)
    me = identified(cluster)
    leader = there(cluster.leader_of(WHERE))
    coordinator = there(cluster.coordinator_of("id"))
    produced(cluster, me, b"one")
    cluster.stop(leader)
    time.pass_(10)
    cluster.advance()
    coordinator = there(cluster.coordinator_of("id"))
    cluster.end_transaction(coordinator, me, is_committed=True)
    assert cluster.transactions.state_of("id") is BrokerTransactionState.ENDING
    cluster.start(leader)
    time.pass_(1)
    cluster.advance()
    assert seen(cluster) == [b"one"]


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


def test_a_frozen_broker_does_when_it_thaws_what_it_was_asked(
    cluster: BrokerCluster, time: ManualTime
) -> None:
    cluster.freeze(0)
    sent = cluster.send(0, lambda _: cluster.commit(0, NOBODY, NINE))
    time.pass_(5)
    cluster.advance()
    assert not sent.is_done
    cluster.start(0)
    assert sent.is_done
    assert cluster.group("g").offsets == NINE


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


def rows(*values: bytes) -> list[Record]:
    return [Record("t", 0, -1, 1, None, value) for value in values]


def values_read(log: PartitionLog, offset: int = 0, *, is_stable: bool = True) -> list[bytes]:
    return [row.value for row in log.read(offset, 100, is_stable=is_stable).records]


@pytest.fixture
def log() -> PartitionLog:
    return PartitionLog("t", 0)


def test_the_oldest_of_two_open_transactions_holds_it(log: PartitionLog) -> None:
    log.append(rows(b"first"), ProducerStamp(1, 0, 0, transactional=True))
    log.append(rows(b"second"), ProducerStamp(2, 0, 0, transactional=True))
    log.end_transaction(1, 0, is_committed=True)
    assert values_read(log) == [b"first"]
    log.end_transaction(2, 0, is_committed=False)
    assert values_read(log) == [b"first"]
    assert log.read(0, 100).next_offset == 4


def test_only_the_records_of_the_aborted_transaction_are_passed_over(log: PartitionLog) -> None:
    log.append(rows(b"aborted"), ProducerStamp(1, 0, 0, transactional=True))
    log.append(rows(b"plain"))
    log.append(rows(b"aborted too"), ProducerStamp(1, 0, 1, transactional=True))
    log.end_transaction(1, 0, is_committed=False)
    log.append(rows(b"kept"), ProducerStamp(1, 0, 2, transactional=True))
    log.end_transaction(1, 0, is_committed=True)
    assert values_read(log) == [b"plain", b"kept"]


def test_a_former_epoch_is_refused_once_the_log_has_seen_a_newer_one(log: PartitionLog) -> None:
    log.append(rows(b"a"), ProducerStamp(1, 0, 0, transactional=True))
    log.end_transaction(1, 1, is_committed=False)
    with pytest.raises(RefusedByBroker) as refused:
        log.append(rows(b"late"), ProducerStamp(1, 0, 1, transactional=True))
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_batch_behind_a_gap_is_refused(log: PartitionLog) -> None:
    log.append(rows(b"a"), ProducerStamp(1, 0, 0))
    with pytest.raises(RefusedByBroker) as refused:
        log.append(rows(b"c"), ProducerStamp(1, 0, 2))
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


SEVEN = {WHERE: StoredOffset(7, 3, "a note")}
SESSION_S, REBALANCE_S = 10.0, 60.0


@pytest.fixture
def timers(cluster: BrokerCluster, time: ManualTime) -> Any:
    """The cluster's; what is due is done when time passes."""
    cluster.pass_ = lambda seconds: (time.pass_(seconds), cluster.advance())  # type: ignore[attr-defined]
    return cluster


@pytest.fixture
def group(timers: Any) -> ConsumerGroup:
    return ConsumerGroup("g", timers, 0.0)


def asked(group: ConsumerGroup, name: str | None, member_id: str = "") -> list[Any]:
    """Ask to join; the list has the answer, once it is there."""
    answers: list[Any] = []
    who = GroupMembership("g", member_id, name)
    group.join(who, ("t",), SESSION_S, REBALANCE_S, answers.append)
    return answers


def led_in(group: ConsumerGroup, name: str | None = "leader") -> GroupMembership:
    """Join a group whose members all wait for this, as its leader, and bring the assignment."""
    (answer,) = asked(group, name)
    assert isinstance(answer, JoinAnswer)
    group.sync(answer.membership, {answer.membership.member_id: (WHERE,)}, lambda _: None)
    return answer.membership


def test_an_empty_group_waits_for_more_members_if_it_is_told_to(timers: Any) -> None:
    group = ConsumerGroup("g", timers, 3.0)
    first = asked(group, "one")
    timers.pass_(2.9)
    second = asked(group, "two")
    assert not first
    timers.pass_(0.2)
    assert first[0].membership.generation_id == second[0].membership.generation_id == 1
    assert [answer.is_leader for (answer,) in (first, second)] == [True, False]


def test_a_rebalance_waits_for_every_member_and_its_heartbeat_tells(group: ConsumerGroup) -> None:
    me = led_in(group)
    newcomer = asked(group, "other")
    assert (newcomer, group.state) == ([], GroupState.PREPARING)
    assert refusal(lambda: group.heartbeat(me)) is ErrorCode.REBALANCE_IN_PROGRESS
    group.commit(me, SEVEN)  # what was handled before may still be committed
    mine = asked(group, "leader", me.member_id)
    assert mine[0].is_leader
    assert [name for name, _, _ in mine[0].members] == ["leader", "other"]
    assert newcomer[0].membership.generation_id == 2


def test_no_commit_is_accepted_while_a_rebalance_completes(group: ConsumerGroup) -> None:
    me = led_in(group)
    newcomer = asked(group, "other")
    (mine,) = asked(group, "leader", me.member_id)
    code = refusal(lambda: group.commit(mine.membership, SEVEN))
    assert code is ErrorCode.REBALANCE_IN_PROGRESS
    given: list[Any] = []
    group.sync(newcomer[0].membership, None, given.append)
    assert given == []  # until the leader has said who gets what
    group.sync(mine.membership, {newcomer[0].membership.member_id: (WHERE,)}, lambda _: None)
    assert given == [(WHERE,)]


def test_a_rebalance_does_not_wait_for_a_member_whose_session_ends(
    group: ConsumerGroup, timers: Any
) -> None:
    led_in(group)
    newcomer = asked(group, "other")
    timers.pass_(SESSION_S)
    assert newcomer[0].is_leader
    assert group.instances == ("other",)


def test_a_leader_that_dies_before_its_assignment_is_not_waited_for(
    group: ConsumerGroup, timers: Any
) -> None:
    me = led_in(group)
    newcomer = asked(group, "other")
    asked(group, "leader", me.member_id)
    waiting: list[Any] = []
    group.sync(newcomer[0].membership, None, waiting.append)
    timers.pass_(SESSION_S - 1)
    group.heartbeat(newcomer[0].membership)
    timers.pass_(2)
    assert waiting == [ErrorCode.REBALANCE_IN_PROGRESS]
    assert asked(group, "other", newcomer[0].membership.member_id)[0].is_leader


def test_removing_a_name_makes_the_group_stop_waiting_for_it(group: ConsumerGroup) -> None:
    me = led_in(group)
    newcomer = asked(group, "other")
    group.remove(["leader", "nobody"])
    assert newcomer[0].membership.generation_id == 2
    assert refusal(lambda: group.commit(me, SEVEN)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_dynamic_member_that_does_not_join_in_time_is_left_behind(
    group: ConsumerGroup, timers: Any
) -> None:
    me = led_in(group, name=None)
    newcomer = asked(group, "other")
    for _ in range(int(REBALANCE_S / 5)):
        assert not newcomer
        with pytest.raises(RefusedByBroker):
            group.heartbeat(me)
        timers.pass_(5)
    assert newcomer[0].is_leader
    assert refusal(lambda: group.commit(me, SEVEN)) is ErrorCode.UNKNOWN_MEMBER_ID
