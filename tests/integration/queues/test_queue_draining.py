"""A drain on real znodes: beside consumers, through lost answers, when its session ends, and what
it leaves behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from producing import create_all
from reply_rules import is_multi

from leaderq.queues.admin import QueueAdmin, QueueDrain
from leaderq.queues.wire.payload import encode
from leaderq.queues.wire.znodes import QueuePaths
from leaderq.zookeeper import Session, connect

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
                return is_multi(request) and next(seen, None) is None

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
