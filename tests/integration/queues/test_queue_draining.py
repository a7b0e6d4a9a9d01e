"""A drain on real znodes: beside consumers, through lost answers, when its session ends, and what
it leaves behind.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from producing import create_all

from leaderq import retrying
from leaderq.errors import LeaderqError, RequestRefused
from leaderq.queues import DistributedQueue
from leaderq.queues.admin import QueueAdmin, QueueDrain
from leaderq.queues.wire.payload import encode
from leaderq.queues.wire.znodes import QueuePaths
from leaderq.testing import eventually
from leaderq.zookeeper import Session, connect

MULTI = 14
Put = Callable[[int], list[bytes]]


@pytest.fixture
def session(unrooted: Session) -> Session:
    return unrooted


@pytest.fixture
def put(session: Session, places: QueuePaths) -> Put:
    def make(count: int) -> list[bytes]:
        items = [b"%04d" % n for n in range(count)]
        create_all(session, f"{places.path}/queue-", (encode([one]) for one in items))
        return items

    return make


def drained(draining: QueueDrain, limit: int | None = None) -> list[bytes]:
    out: list[bytes] = []
    for batch in draining.batches(limit):
        for one in batch:
            out += one.items or ()
            draining.keep(one)
    return out


def aside(session: Session, places: QueuePaths) -> list[str]:
    return session.children(f"{places.meta}/drained")


@pytest.mark.parametrize("is_locking", [False, True])
def test_a_lost_answer_to_any_of_its_multis_loses_and_doubles_nothing(
    zookeeper_server, fault_proxy, session, places, put, is_locking
):
    where = places if is_locking else QueuePaths(places.path)
    for nth in range(1, 8):
        wanted = put(600)
        proxy = fault_proxy(zookeeper_server.address)
        with connect(proxy.address) as cut:
            seen = iter(range(nth))

            def is_nth(request: bytes, seen: Iterator[int] = seen) -> bool:
                is_multi = len(request) >= 8 and struct.unpack_from("!i", request, 4)[0] == MULTI
                return is_multi and next(seen, None) is None

            proxy.drop_reply_to(is_nth)
            with QueueAdmin(cut, where).drain() as draining:
                assert drained(draining) == wanted
        assert proxy.dropped == 1, nth
        assert (
            session.children(places.path),
            aside(session, places),
            session.children(places.lock_path or ""),
        ) == (
            [],
            [],
            [],
        )


def test_what_was_not_kept_goes_back_to_its_place_with_its_data(session, places, put):
    wanted = put(40)
    before = [(one.name, one.data) for one in QueueAdmin(session, places).browse()]
    with pytest.raises(ZeroDivisionError), QueueAdmin(session, places).drain() as draining:
        batch = next(draining.batches())
        assert len(batch) == len(aside(session, places)) == 16
        draining.keep(batch[0])
        draining.keep(batch[2])
        raise ZeroDivisionError
    assert [(one.name, one.data) for one in QueueAdmin(session, places).browse()] == [
        before[1],
        *before[3:],
    ]
    assert aside(session, places) == []
    with QueueAdmin(session, places).drain() as draining:
        assert drained(draining, limit=3) == [wanted[1], *wanted[3:5]]
        assert drained(draining) == wanted[5:]


def test_a_batch_of_which_nothing_can_be_read_stays_where_it_is_and_ends_no_drain(session, places):
    create_all(session, f"{places.path}/queue-", [b"corrupt"] * 3)
    with QueueAdmin(session, places).drain() as draining:
        assert list(draining.batches(corrupt_too=False)) == []
    assert len(session.children(places.path)) == 3


def test_consumers_and_a_drain_share_a_queue_without_loss_or_double(
    session, zookeeper_server, places, put
):
    wanted = put(1500)
    consumed: list[bytes] = []
    with connect(zookeeper_server.address) as theirs:
        queue = DistributedQueue(
            theirs, places.path, lock_path=places.lock_path, consumer=consumed.append
        )
        with queue, QueueAdmin(session, places).drain() as draining:
            out: list[bytes] = []

            def is_empty() -> bool:
                out.extend(drained(draining))
                return queue.depth() == 0

            eventually(is_empty, timeout_s=60)
    assert sorted(out + consumed) == wanted
    assert aside(session, places) == []


def test_consumers_that_stand_by_get_what_a_drain_puts_back(session, zookeeper_server, places, put):
    consumed: list[bytes] = []
    with connect(zookeeper_server.address) as theirs:
        queue = DistributedQueue(
            theirs, places.path, lock_path=places.lock_path, consumer=consumed.append
        )
        with queue:
            first = put(40)
            eventually(lambda: consumed == first)
            queue.pause()
            wanted = put(40)
            with QueueAdmin(session, places).drain() as draining:
                next(draining.batches())
            assert aside(session, places) == []
            queue.resume()
            # They may have seen the queue without those set aside, and then begin with what was
            # left in it.
            eventually(lambda: sorted(consumed) == sorted(first + wanted))


def test_a_drain_whose_session_ends_writes_nothing_more_and_the_next_one_finds_all(
    session, zookeeper_server, places, put, monkeypatch
):
    monkeypatch.setattr(retrying, "PATIENCE_S", 5.0)
    wanted = put(50)
    # less than the next one waits for it
    with connect(zookeeper_server.address, timeout_s=8.0) as lost:
        draining = QueueAdmin(lost, places).drain()
        with pytest.raises(LeaderqError), draining:
            batch = next(draining.batches())
            lost.replace("the test wants it")
            with QueueAdmin(session, places).drain() as next_one:
                assert drained(next_one) == wanted
            for one in batch:
                draining.keep(one)
    assert (session.children(places.path), aside(session, places)) == ([], [])


def test_one_drains_at_a_time_and_another_waits_until_it_is_done_or_gives_up(
    session, zookeeper_server, places, put, monkeypatch
):
    wanted = put(3)
    with connect(zookeeper_server.address, timeout_s=30.0) as second:  # for so long it waits
        with QueueAdmin(session, places).drain():
            with (
                monkeypatch.context() as hasty,
                pytest.raises(RequestRefused, match=rf"by .*:{os.getpid()}; one at a time"),
            ):
                hasty.setattr(type(second), "timeout_s", 0.5)
                QueueAdmin(second, places).drain().__enter__()
            out: list[bytes] = []

            def wait_and_drain() -> None:
                with QueueAdmin(second, places).drain() as draining:
                    out.extend(drained(draining))

            waiting = ThreadPoolExecutor(1)
            waited = waiting.submit(wait_and_drain)
            eventually(lambda: len(session.children(f"{places.meta}/drains")) == 2)
        waited.result(60)
        waiting.shutdown()
    assert out == wanted


def test_a_name_that_is_there_again_is_not_overwritten_by_what_was_set_aside(session, places):
    session.ensure_path(f"{places.meta}/drained")
    session.create(f"{places.meta}/drained/queue-0000000000", encode([b"old"]))
    session.create(f"{places.path}/queue-", encode([b"new"]), sequential=True)
    with QueueAdmin(session, places).drain() as draining:
        assert drained(draining) == [b"new", b"old"]


def test_a_drain_is_woken_by_what_comes(session, zookeeper_server, places, put):
    put(2)
    with QueueAdmin(session, places).drain() as draining, ThreadPoolExecutor(1) as pool:
        assert len(drained(draining)) == 2
        draining.settle()
        waiting = pool.submit(draining.await_items, 120)
        eventually(lambda: places.path in zookeeper_server.ask("wchp"))
        assert not waiting.done()
        put(1)
        waiting.result(60)
        assert drained(draining) == [b"0000"]
