"""Sharders on a real server: Curator's own tests of them, and beyond: starting at once, leaders
that go, rotation, strangers.
"""

from __future__ import annotations

import itertools
import logging
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from kazoo.client import KazooClient

from leaderq.errors import ConfigurationError, ConnectionLost, QueueClosed
from leaderq.queues import (
    DistributedQueue,
    QueueSharder,
    QueueSharderPolicies,
    SimpleDistributedQueue,
    sharding,
)
from leaderq.queues.sharding import Latch
from leaderq.queues.wire.znodes import is_shard, new_shard_name
from leaderq.testing import eventually
from leaderq.zookeeper import Session, connect, end_session

Open = Callable[[], Session]
Make = Callable[..., QueueSharder[Any]]
CANDIDATE = re.compile(r"_c_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-latch-\d{10}")


def shards(session: Session) -> list[str]:
    return [name for name in session.children("/jobs") if is_shard(name)]


def depths(session: Session) -> list[int]:
    stats = [session.exists(f"/jobs/{name}") for name in shards(session)]
    return [stat.num_children for stat in stats if stat is not None]


# -- equivalents of Curator's TestQueueSharder


def test_items_are_spread_evenly_over_as_many_shards_as_they_need(sharder_of, session):
    """The threshold is looked at now and then, so a shard is filled somewhat above it; never much
    below.
    """
    one = sharder_of(
        allocator=DistributedQueue, new_queue_threshold=100, threshold_check_s=0.01, max_queues=50
    )
    one.start()
    for number in range(100):
        known = one.shard_count
        for _ in range(10):
            one.get_queue().put(b"%d" % number)
        if min(depths(session)) >= 100:
            eventually(lambda known=known: one.shard_count > known)
    found = sorted(depths(session))
    assert sum(found) == 1000
    assert all(depth >= 90 for depth in found[1:])  # the last one may just have been made
    assert 5 <= len(found) <= 11


def test_two_sharders_come_to_the_same_shards(sharder_of, opened, session):
    first = sharder_of(new_queue_threshold=10, max_queues=5)
    second = sharder_of(opened(), new_queue_threshold=10, max_queues=5)
    first.start()
    second.start()
    turns = itertools.cycle((first, second))

    def fills_five() -> bool:
        next(turns).get_queue().offer(b"x")
        return first.shard_count == 5

    # so many items that each shard in turn is seen to be full
    eventually(fills_five, interval_s=0.001)
    for _ in range(100):
        next(turns).get_queue().offer(b"x")
    eventually(lambda: sorted(first.queue_paths) == sorted(second.queue_paths))
    assert len(shards(session)) == 5


def test_items_over_several_shards_are_all_consumed_and_a_new_sharder_finds_the_same_shards(
    sharder_of, session
):
    lock = threading.Lock()
    consumed: list[bytes] = []

    def consume(item: bytes) -> None:
        with lock:
            consumed.append(item)

    one = sharder_of()
    one.start()
    for _ in range(3):
        session.create(f"/jobs/{new_shard_name()}")
    eventually(lambda: one.shard_count == 4)
    paths = one.queue_paths
    for number in range(8):
        one.get_queue().offer(b"%d" % number)
    taken = [item for queue in one._queues.values() for item in queue.poll_many(8)]
    assert sorted(taken) == [b"%d" % number for number in range(8)]
    one.close()
    framed = sharder_of(
        allocator=lambda client, path: DistributedQueue(client, path, consumer=consume)
    )
    framed.start()
    assert sorted(framed.queue_paths) == sorted(paths)
    for number in range(8):
        framed.get_queue().put(b"%d" % number)
    eventually(lambda: sorted(consumed) == [b"%d" % number for number in range(8)])


# -- the wire


def test_shards_and_candidates_are_named_as_curators_and_nothing_else_is_below_the_root(
    sharder_of, session
):
    one = sharder_of(id="host 7")
    one.start()
    one.get_queue().offer(b"a")
    assert all(map(is_shard, session.children("/jobs")))
    (candidate,) = session.children("/jobs-leader")
    assert CANDIDATE.fullmatch(candidate)
    data, stat = session.get(f"/jobs-leader/{candidate}")
    assert data == b"host 7"
    assert stat.ephemeral_owner == session.id
    one.close()
    assert session.children("/jobs-leader") == []
    assert len(shards(session)) == 1


def test_consumers_put_nothing_but_items_where_a_java_sharder_would_find_it(sharder_of, session):
    consumed: list[bytes] = []

    def allocate(client: Session, path: str) -> DistributedQueue[bytes]:
        return DistributedQueue(
            client, path, consumer=consumed.append, lock_path=path.replace("/jobs/", "/locks/")
        )

    one = sharder_of(allocator=allocate)
    one.start()
    one.get_queue().put(b"a")
    eventually(lambda: consumed == [b"a"])
    assert all(map(is_shard, session.children("/jobs")))


def test_foreign_children_are_told_of_and_left_alone(sharder_of, session, caplog):
    session.ensure_path("/jobs/stranger")
    session.create("/jobs/queue-", sequential=True)
    one = sharder_of()
    with caplog.at_level(logging.WARNING, logger="leaderq"):
        one.start()
        one.get_queue().offer(b"a")
    assert len(one.queue_paths) == 1
    assert caplog.text.count("stranger") == 1
    assert len(session.children("/jobs")) == 3


# -- who makes shards


def test_sharders_that_start_at_once_make_one_shard(sharder_of, opened, session):
    many = [sharder_of(opened()) for _ in range(6)]
    together = threading.Barrier(6)

    def start(one: QueueSharder[Any]) -> list[str]:
        together.wait()
        one.start()
        return one.queue_paths

    with ThreadPoolExecutor(6) as pool:
        known = list(pool.map(start, many))
    assert len(shards(session)) == 1
    assert all(paths == known[0] for paths in known)
    eventually(lambda: sum(one.is_leader for one in many) == 1)


def test_a_shard_of_another_process_is_taken_up_at_once(sharder_of, opened, session):
    one = sharder_of(threshold_check_s=1000.0)
    one.start()
    session.create(f"/jobs/{new_shard_name()}")
    eventually(lambda: one.shard_count == 2)
    session.delete(one.queue_paths[0])
    eventually(lambda: one.shard_count == 1)


def test_when_the_leader_goes_another_makes_the_shards(sharder_of, opened, session):
    by = opened()
    first = sharder_of(by, new_queue_threshold=5)
    first.start()
    second = sharder_of(new_queue_threshold=5)
    second.start()
    eventually(lambda: first.is_leader and not second.is_leader)
    by.close()
    eventually(lambda: second.is_leader)
    for _ in range(5):
        second.get_queue().offer(b"x")
    eventually(lambda: second.shard_count == 2)


def test_a_candidate_whose_session_ended_stands_again(
    sharder_of, opened, session, zookeeper_server
):
    by = opened()
    one = sharder_of(by, threshold_check_s=1000.0)
    one.start()
    first = by.id
    assert end_session(zookeeper_server.address, by.credentials, timeout_s=60.0)
    eventually(lambda: by.id not in (None, first), timeout_s=60)

    def stands_alone() -> bool:  # what it said of the session before may hold for a moment yet
        (candidate,) = session.children("/jobs-leader")
        return session.exists(f"/jobs-leader/{candidate}").ephemeral_owner == by.id

    eventually(stands_alone)
    eventually(lambda: one.is_leader)


def test_a_candidate_of_a_session_that_is_over_is_not_taken_for_ours(opened, session):
    """It stands beside the new one for a while (CURATOR-696); here its session simply lives on."""
    latch = Latch(opened(), "/line", lambda: None, id="me")
    assert latch.look()
    former = latch.node
    latch._session = session
    assert latch.look()
    assert latch.node != former
    assert [f"/line/{name}" for name in session.children("/line")] == [latch.node]
    assert session.exists(latch.node).ephemeral_owner == session.id


def test_a_java_leader_in_front_is_respected(sharder_of, opened, session):
    """Any candidate before ours leads; while it does, we add nothing, but use what is there."""
    session.ensure_path("/jobs-leader")
    java = opened()
    theirs = java.create(
        "/jobs-leader/_c_6f1b1a0e-9a51-4d7a-8e36-0123456789ab-latch-",
        ephemeral=True,
        sequential=True,
    )
    session.ensure_path(f"/jobs/{new_shard_name()}")
    one = sharder_of(new_queue_threshold=1)
    one.start()
    one.get_queue().offer(b"a")
    eventually(lambda: one._plan.needs_one_more)
    assert not one.is_leader
    assert one.shard_count == 1
    java.delete(theirs)
    eventually(lambda: one.shard_count == 2)


def test_where_nobody_can_lead_one_makes_the_first_shard_all_the_same(
    sharder_of, opened, session, monkeypatch, caplog
):
    monkeypatch.setattr(sharding, "FIRST_SHARD_S", 0.2)
    session.ensure_path("/jobs-leader/000")
    many = [sharder_of(opened()) for _ in range(3)]
    monkeypatch.setattr(type(session), "timeout_s", 0.1)
    with ThreadPoolExecutor(3) as pool, caplog.at_level(logging.WARNING, logger="leaderq"):
        list(pool.map(lambda one: one.start(), many))
    assert len(shards(session)) == 1
    assert "first in the line, nobody can lead path=/jobs-leader/000" in caplog.text


def test_an_allocator_that_fails_fails_the_start_and_leaves_the_line(sharder_of, opened, session):
    class Broken(SimpleDistributedQueue):
        def start(self) -> None:
            raise ValueError("no")

    one = sharder_of(allocator=Broken)
    with pytest.raises(ValueError, match="no"):
        one.start()
    assert session.children("/jobs-leader") == []
    with pytest.raises(QueueClosed, match="not started"):
        one.get_queue()


def test_lost_replies_make_no_second_shard_and_no_second_candidate(
    zookeeper_server, fault_proxy, znode_root, session, sharder_of
):
    proxy = fault_proxy(zookeeper_server.address)
    with connect(proxy.address + znode_root, timeout_s=30.0) as far:
        for nth in range(1, 14):
            left = [nth]

            def is_nth(request: bytes, left: list[int] = left) -> bool:
                left[0] -= request[4:8] not in (b"\x00\x00\x00\x0b", b"\xff\xff\xff\xf5")
                return left[0] == 0

            proxy.drop_reply_to(is_nth)
            one = QueueSharder(
                far, SimpleDistributedQueue, f"/jobs{nth}", f"/leader{nth}", QueueSharderPolicies()
            )
            one.start()
            proxy.heal()
            assert len(session.children(f"/jobs{nth}")) == 1
            eventually(lambda one=one: one.is_leader)
            assert len(session.children(f"/leader{nth}")) == 1
            one.close()


# -- its life


def test_a_sharder_may_be_closed_twice_and_not_started_again(sharder_of):
    one = sharder_of()
    one.start()
    one.start()
    queue = one.get_queue()
    one.close()
    one.close()
    with pytest.raises(QueueClosed):
        queue.offer(b"a")
    with pytest.raises(QueueClosed):
        one.get_queue()
    with pytest.raises(QueueClosed):
        one.start()


def test_a_start_without_servers_says_so(zookeeper_server, fault_proxy, znode_root):
    proxy = fault_proxy(zookeeper_server.address)
    with connect(proxy.address + znode_root, timeout_s=10.0) as far:
        proxy.refuse()
        one = QueueSharder(far, SimpleDistributedQueue, "/jobs", "/leader")
        with pytest.raises(ConnectionLost):
            one.start(timeout_s=0.3)
        proxy.heal()
        one.start(timeout_s=60)
        one.close()


@pytest.mark.parametrize(
    ("queue_path", "leader_path"),
    [("/a", "/a"), ("/a", "/a/b"), ("/a/b", "/a"), ("/", "/a"), ("a", "/b")],
)
def test_paths_that_lie_in_each_other_are_refused(session, queue_path, leader_path):
    with pytest.raises(ConfigurationError):
        QueueSharder(session, SimpleDistributedQueue, queue_path, leader_path)


def test_a_kazoo_client_serves_as_well(zookeeper_server, znode_root):
    client = KazooClient(zookeeper_server.address)
    client.start()
    try:
        with QueueSharder(
            client, SimpleDistributedQueue, f"{znode_root}/jobs", f"{znode_root}/leader"
        ) as one:
            one.get_queue().offer(b"a")
            assert one.get_queue().take() == b"a"
    finally:
        client.stop()
        client.close()
