"""What a queue costs the servers' memory: they are others' too."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Callable
from typing import Any

import pytest
from consumption import Stuck

from leaderq.queues import (
    DistributedIdQueue,
    DistributedQueue,
    RetryPolicy,
    SimpleDistributedQueue,
)
from leaderq.queues.consuming import engine
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
    told = subprocess.run(
        [jcmd, str(server.pid), "GC.heap_info"],
        capture_output=True,
        check=True,
        timeout=60,
        text=True,
    ).stdout
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


def offer_many(session: Session) -> None:
    with SimpleDistributedQueue(session, "/q") as queue:
        for _ in range(2):
            queue.offer_many([bytes(8000)] * 4400)
            while queue.poll_many(500):
                continue


def left_by(traffic: Callable[[Session], None], heap_mb: int) -> float:
    with ZooKeeperServer(heap_mb=heap_mb) as server, connect(server.address) as session:
        traffic(session)
        return live_mb(server)


@pytest.mark.parametrize("traffic", [put_many, offer_many][: len(HEAPS)])
@pytest.mark.parametrize("heap_mb", HEAPS)
def test_traffic_leaves_a_server_at_most_100_mb_more_than_single_creates_do(
    traffic: Callable[[Session], None], heap_mb: int
) -> None:
    assert left_by(traffic, heap_mb) - left_by(single_creates, heap_mb) < 100


def creates_of(count: int) -> Callable[[Session], None]:
    def create(session: Session) -> None:
        session.ensure_path("/q")
        for _ in range(count):
            session.create("/q/queue-", bytes(LARGE), sequential=True)

    return create


def puts_of(count: int) -> Callable[[Session], None]:
    def put(session: Session) -> None:
        with DistributedQueue(session, "/q") as queue:
            assert queue.put_many([bytes(LARGE)] * count, timeout_s=40) == count

    return put


@pytest.mark.parametrize(("heap_mb", "count"), [(256, 80), (512, 220), (1000, 480)][: len(HEAPS)])
def test_large_items_that_stay_cost_a_server_no_more_than_single_creates_do(
    heap_mb: int, count: int
) -> None:
    """The counts are about what the server bears of single creates."""
    assert left_by(puts_of(count), heap_mb) - left_by(creates_of(count), heap_mb) < 100


@pytest.mark.parametrize("lock_path", [None, "/locks"])
@pytest.mark.parametrize(("heap_mb", "count"), [(256, 70), (512, 130), (1000, 260)][: len(HEAPS)])
def test_a_consumer_that_meets_large_items_behind_small_ones_does_not_kill_the_server(
    lock_path: str | None, heap_mb: int, count: int
) -> None:
    small = 6000
    done: list[int] = []

    with ZooKeeperServer(heap_mb=heap_mb) as server, connect(server.address) as session:
        with DistributedQueue(session, "/q") as queue:
            queue.put_many([b"small"] * small)
            queue.put_many([bytes(LARGE)] * count)
        consumer = DistributedQueue(
            session, "/q", consumer=lambda value: done.append(len(value)), lock_path=lock_path
        )
        consumer.start()
        eventually(lambda: len(done) == small + count or not server.alive, timeout_s=40)
        assert server.alive
        assert sorted(done) == [5] * small + [LARGE] * count
        consumer.close()


def note_multis(session: Session) -> tuple[list[int], list[int]]:
    """The bytes of each multi from now on, and those under way with it."""
    sizes, under_way = list[int](), [0]
    send, lock = session._send_packed, threading.Lock()

    def noted(request: Any, convert: Any) -> Any:
        size = len(request.serialize()) if isinstance(request, Multi) else 0

        def count(change: int) -> None:
            with lock:
                under_way.append(under_way[-1] + change)

        sizes.append(size)
        count(size)
        answer = send(request, convert)
        answer.add_done_callback(lambda _: count(-size))
        return answer

    session._send_packed = noted  # type: ignore[method-assign]
    return sizes, under_way


@pytest.mark.parametrize(
    "lock_path, long", [(None, 1), (None, 1000), ("/locks", 1), ("/locks", 250)]
)
def test_multis_of_puts_claims_and_settlements_have_at_most_128_kb(
    session: Session, lock_path: str | None, long: int
) -> None:
    sizes, _ = note_multis(session)
    done: list[int] = []

    def work(value: bytes) -> None:
        done.append(len(value))
        if len(value) == 1000:
            raise ValueError("set aside")

    with DistributedIdQueue(session, "/q") as queue:
        for size, count in ((8000, 60), (10, 500), (1000, 300)):
            queue.put_many((bytes(size), "i" * long) for _ in range(count))
    retry = RetryPolicy(attempts=1)
    with DistributedIdQueue(
        session, "/q", consumer=work, lock_path=lock_path, retry=retry
    ) as queue:
        eventually(lambda: len(done) == 860 and queue.depth() == 0, timeout_s=40)
    assert 32 << 10 < max(sizes) <= 128 << 10


def test_a_writer_has_at_most_4_mb_and_one_multi_under_way(session: Session) -> None:
    _, under_way = note_multis(session)
    with DistributedQueue(session, "/q") as queue:
        assert queue.put_many([bytes(LARGE)] * 20) == 20
    assert 3 * LARGE < max(under_way) <= 5 << 20


def test_nothing_is_claimed_ahead_while_4_mb_wait_to_be_begun(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "HANGS_S", 60.0)
    stuck = Stuck(20)
    with DistributedQueue(session, "/q") as producer:
        producer.put_many([bytes(100_000)] * 220)
    options: Any = {"consumer": stuck, "claim_ahead": 1000, "final_flush_s": 60.0}
    with DistributedQueue(session, "/q", lock_path="/locks", **options) as queue:
        assert stuck.entered.wait(60)
        one = queue._consumption.engine
        try:
            eventually(
                lambda: one.ready.bytes > 4 << 20 and one._wanted() == 0 and not one._under_way
            )
            ahead = one.ready.bytes
        finally:
            stuck.released.set()
    assert ahead <= 8 << 20


def note_reads(session: Session) -> list[int]:
    """The bytes of each read of items, from now on."""
    asked: list[int] = []
    read = session.child_data_async

    def noted(parent: str, names: Any) -> Any:
        answer = read(parent, names)
        answer.add_done_callback(
            lambda one: asked.append(
                sum(len(item[0]) for item in one.result() if isinstance(item, tuple))
            )
        )
        return answer

    session.child_data_async = noted  # type: ignore[method-assign]
    return asked


def test_taking_from_a_simple_queue_and_browsing_ask_for_a_megabyte_at_a_time(
    session: Session,
) -> None:
    with (
        DistributedQueue(session, "/q") as queue,
        SimpleDistributedQueue(session, "/simple") as simple,
    ):
        values = [b"small"] * 1000 + [bytes(200_000)] * 40 + [b"small"] * 100
        queue.put_many(values)
        simple.offer_many(values)
        asked = note_reads(session)
        assert sum(1 for _ in queue.browse()) == len(values)
        taken: list[bytes] = []
        while found := simple.poll_many(50):
            taken += found
    assert taken == values
    assert max(asked) <= 1 << 20


@pytest.mark.parametrize("small", [0, 6])
def test_large_items_that_come_before_their_sizes_are_known_are_read_one_by_one(
    session: Session, small: int
) -> None:
    asked = note_reads(session)
    done: list[int] = []
    with DistributedQueue(session, "/q") as queue:
        for _ in range(small):
            queue.put(b"small")
            queue.take(60).ack()
        queue.put_many([bytes(LARGE)] * 8)
        while len(done) < 8:
            with queue.take(60) as item:
                done.append(len(item.value))
    assert LARGE <= max(asked) <= 1 << 20


@pytest.mark.parametrize("lock_path", [None, "/locks"])
def test_what_another_was_quicker_with_is_found_out_without_reading_its_neighbours_again(
    session: Session, opened: Callable[[], Session], lock_path: str | None
) -> None:
    other, done = opened(), list[bytes]()
    with DistributedQueue(session, "/q") as producer:
        names = [str(producer.put(bytes([number]) * 1000)) for number in range(10)]
    read, read_many, read_again = session.child_data_async, session.multi_read_async, list[str]()

    def late(parent: str, asked: Any) -> Any:
        answer = read(parent, asked)
        if names[3] in asked and other.exists(f"/q/{names[3]}"):
            answer.add_done_callback(lambda _: other.delete(f"/q/{names[3]}"))
        return answer

    def noted(reads: Any) -> Any:
        read_again.extend(one.path for one in reads if one.path.startswith("/q/"))
        return read_many(reads)

    session.child_data_async = late  # type: ignore[method-assign]
    session.multi_read_async = noted  # type: ignore[method-assign]
    with DistributedQueue(session, "/q", consumer=done.append, lock_path=lock_path):
        eventually(lambda: len(done) == 9)
    assert sorted(value[0] for value in done) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert not read_again


def test_what_did_not_fit_into_a_read_is_claimed_next_and_does_not_rest(session: Session) -> None:
    values = [bytes([n]) * 200_000 for n in range(20)]
    with DistributedQueue(session, "/q") as queue, SimpleDistributedQueue(session, "/s") as simple:
        simple.offer_many(values)
        taken: list[bytes] = []
        while found := simple.poll_many(50):
            taken += found
        assert [value[0] for value in taken] == list(range(20))
        queue.put_many(values)
        done: list[bytes] = []
        with DistributedQueue(session, "/q", consumer=done.append):
            eventually(lambda: len(done) == len(values))
        assert [value[0] for value in done] == list(range(20))
