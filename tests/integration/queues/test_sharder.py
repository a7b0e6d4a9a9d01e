"""Sharders on a real server: Curator's own tests of them, and beyond: starting at once, leaders
that go, strangers.
"""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from leaderq.errors import ConfigurationError, QueueClosed
from leaderq.queues import QueueSharder, QueueSharderPolicies, SimpleDistributedQueue
from leaderq.queues.wire.znodes import is_shard
from leaderq.testing import eventually
from leaderq.zookeeper import Session

CANDIDATE = re.compile(r"_c_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-latch-\d{10}")


@pytest.fixture
def sharder_of(session):
    with ExitStack() as stack:

        def make(by=None, allocator=SimpleDistributedQueue, *, id="", **policies):
            chosen = QueueSharderPolicies(**{"threshold_check_s": 0.05, **policies})
            one = QueueSharder(by or session, allocator, "/jobs", "/jobs-leader", chosen, id=id)
            stack.callback(one.close)
            return one

        yield make


def shards(session: Session) -> list[str]:
    return [name for name in session.children("/jobs") if is_shard(name)]


def test_shards_and_candidates_are_named_as_curators_and_nothing_else_is_below_the_root(
    sharder_of, session
):
    one = sharder_of(id="host 7")
    one.start()
    one.get_queue().offer(b"a")
    assert all(map(is_shard, session.children("/jobs")))
    (candidate,) = session.children("/jobs-leader")
    assert CANDIDATE.fullmatch(candidate)
    assert session.get(f"/jobs-leader/{candidate}")[0] == b"host 7"
    one.close()
    assert session.children("/jobs-leader") == []
    assert len(shards(session)) == 1


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


def test_an_allocator_that_fails_fails_the_start_and_leaves_the_line(sharder_of, session):
    class Broken(SimpleDistributedQueue):
        def start(self) -> None:
            raise ValueError("no")

    one = sharder_of(allocator=Broken)
    with pytest.raises(ValueError, match="no"):
        one.start()
    assert session.children("/jobs-leader") == []
    with pytest.raises(QueueClosed, match="not started"):
        one.get_queue()


@pytest.mark.parametrize(
    ("queue_path", "leader_path"), [("/a", "/a"), ("/a", "/a/b"), ("/a/b", "/a"), ("a", "/b")]
)
def test_paths_that_lie_in_each_other_are_refused(session, queue_path, leader_path):
    with pytest.raises(ConfigurationError):
        QueueSharder(session, SimpleDistributedQueue, queue_path, leader_path)
