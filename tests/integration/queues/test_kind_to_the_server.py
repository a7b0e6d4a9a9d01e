"""What a queue costs the servers' memory: they are others' too."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from leaderq.queues import DistributedIdQueue, DistributedQueue, Retry
from leaderq.testing import ZooKeeperServer, eventually
from leaderq.testing.java import find_java
from leaderq.zookeeper import Session, connect
from leaderq.zookeeper.wire import Multi

KEPT = 520
"""A few more transactions than a server keeps in memory."""
LARGE = 1_000_000
HEAPS = (256, 512, 1000) if "LEADERQ_TEST_SOAK" in os.environ else (256,)
"""Megabytes of a server; ``make queue-soak`` tries them all."""


def live_mb(server: ZooKeeperServer) -> float:
    """What is left of the server's heap after a collection."""
    jcmd = find_java().program.with_name("jcmd")
    if not jcmd.exists():
        pytest.skip(f"{jcmd} is not there: the Java that was found cannot tell about its heap")
    subprocess.run([jcmd, str(server.pid), "GC.run"], capture_output=True, check=True, timeout=60)
    command = [jcmd, str(server.pid), "GC.heap_info"]
    told = subprocess.run(command, capture_output=True, check=True, timeout=60, text=True).stdout
    return sum(int(used) for used in re.findall(r"(?:generation|heap).*?used (\d+)K", told)) / 1024


def single_creates(session: Session) -> None:
    session.ensure_path("/q")
    for begin in range(0, KEPT, 130):
        made = [
            session.create_async("/q/queue-", bytes(8000), sequential=True)
            for _ in range(begin, begin + 130)
        ]
        for one in [made.result() for made in made]:
            session.delete(one)


def put_many(session: Session) -> None:
    with DistributedQueue(session, "/q") as queue:
        for _ in range(2):
            queue.put_many([bytes(8000)] * 4400)
            queue.purge()


def left_by(traffic: Callable[[Session], None], heap_mb: int) -> float:
    with ZooKeeperServer(heap_mb=heap_mb) as server, connect(server.address) as session:
        traffic(session)
        return live_mb(server)


@pytest.mark.parametrize("heap_mb", HEAPS)
def test_traffic_leaves_a_server_at_most_100_mb_more_than_single_creates_do(heap_mb):
    assert left_by(put_many, heap_mb) - left_by(single_creates, heap_mb) < 100


@pytest.mark.parametrize("lock_path", [None, "/locks"])
@pytest.mark.parametrize(("heap_mb", "count"), [(256, 70), (512, 130), (1000, 260)][: len(HEAPS)])
def test_a_consumer_that_meets_large_items_behind_small_ones_does_not_kill_the_server(
    lock_path, heap_mb, count
):
    small = 6000
    done: list[int] = []

    def work(value: bytes) -> None:
        done.append(len(value))

    with ZooKeeperServer(heap_mb=heap_mb) as server, connect(server.address) as session:
        with DistributedQueue(session, "/q") as queue:
            queue.put_many([b"small"] * small)
            queue.put_many([bytes(LARGE)] * count)
        with DistributedQueue(session, "/q", consumer=work, lock_path=lock_path):
            eventually(lambda: len(done) == small + count or not server.alive)
            assert server.alive
            assert sorted(done) == [5] * small + [LARGE] * count


@pytest.mark.parametrize(
    "lock_path, long", [(None, 1), (None, 1000), ("/locks", 1), ("/locks", 250)]
)
def test_multis_of_puts_claims_and_settlements_have_at_most_128_kb(session, lock_path, long):
    send, sizes, done = session._send_packed, list[int](), list[int]()

    def noted(request: Any, convert: Any) -> Any:
        sizes.append(len(request.serialize()) if isinstance(request, Multi) else 0)
        return send(request, convert)

    def work(value: bytes) -> None:
        done.append(len(value))
        if len(value) == 1000:
            raise ValueError("set aside")

    session._send_packed = noted
    with DistributedIdQueue(session, "/q") as queue:
        for size, count in ((8000, 60), (10, 500), (1000, 300)):
            queue.put_many((bytes(size), "i" * long) for _ in range(count))
    retry = Retry(attempts=1)
    with DistributedIdQueue(
        session, "/q", consumer=work, lock_path=lock_path, retry=retry
    ) as queue:
        eventually(lambda: len(done) == 860 and queue.depth() == 0)
    assert 32 << 10 < max(sizes) <= 128 << 10
