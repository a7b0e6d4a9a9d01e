"""The reply to any single request between claim and acknowledgement is lost: nothing is lost,
nothing is done twice.
"""

from __future__ import annotations

import itertools
import struct

import pytest
from consumption import LOCKS, PATH, Flaky, consuming, fill, is_empty

from leaderq.queues.wire.payload import decode
from leaderq.testing import FaultProxy, ZooKeeperServer, eventually
from leaderq.threads import Retry
from leaderq.zookeeper import Session, connect

PING, SET_WATCHES = 11, 101


def run(straight: Session, proxy: FaultProxy, root: str, point: int, *, lock: bool) -> bool:
    """Consume with the reply to the ``point``-th request lost; gives whether there were so many."""
    values = [b"%d" % number for number in range(5)]
    fill(straight, [*values, b"bad"])
    straight.create(f"{PATH}/queue-", b"garbage", sequential=True)
    numbers = itertools.count()

    def is_the_one(request: bytes) -> bool:
        xid, kind = struct.unpack_from("!ii", request) if len(request) >= 8 else (0, PING)
        return kind not in (PING, SET_WATCHES) and xid > 0 and next(numbers) == point

    before = proxy.dropped
    session = connect(proxy.address + root, timeout_s=15.0)
    flaky = Flaky(1)
    proxy.drop_reply_to(is_the_one)
    try:
        with consuming(session, flaky, lock=lock, retry=Retry(attempts=10, first_s=0.01)):
            # Without a lock path the queue is empty for a moment, too, while the failed item is on
            # its way back into it.
            eventually(lambda: len(flaky.seen.values) == len(values) + 2, timeout_s=60)
            eventually(
                lambda: is_empty(straight) and straight.children(f"{PATH}-dead"), timeout_s=60
            )
        assert sorted(flaky.seen.values) == [*values, b"bad", b"bad"]
        (dead,) = straight.children(f"{PATH}-dead")
        assert list(decode(straight.get(f"{PATH}-dead/{dead}")[0]).items) == [b"garbage"]
        straight.delete(f"{PATH}-dead/{dead}")
        if lock:
            assert straight.children(LOCKS) == []
        eventually(lambda: straight.children(f"{PATH}-meta/members") == [])
    finally:
        proxy.heal()
        session.close(2.0)
    return proxy.dropped > before


@pytest.mark.parametrize("lock", [True, False], ids=["with-locks", "without"])
def test_a_lost_reply_at_any_point_loses_nothing_and_doubles_nothing(
    zookeeper_server: ZooKeeperServer, znode_root: str, lock: bool
) -> None:
    with (
        FaultProxy(zookeeper_server.address) as proxy,
        connect(zookeeper_server.address + znode_root) as straight,
    ):
        points = itertools.takewhile(
            lambda point: run(straight, proxy, znode_root, point, lock=lock), itertools.count()
        )
        assert len(list(points)) >= 10
