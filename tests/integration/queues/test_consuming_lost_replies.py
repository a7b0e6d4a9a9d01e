"""The reply to any single request between claim and acknowledgement is lost: nothing is lost,
nothing is done twice. The same without locks, and with lost requests: ``tests/simulation``.
"""

from __future__ import annotations

from consumption import LOCKS, PATH, Flaky, consuming, fill, is_empty
from reply_rules import at_every_point

from leaderq.queues.wire.payload import decode
from leaderq.testing import FaultProxy, eventually
from leaderq.threads import Retry
from leaderq.zookeeper import Session, connect


def test_a_lost_reply_at_any_point_loses_nothing_and_doubles_nothing(
    proxy: FaultProxy, session: Session, znode_root: str
) -> None:
    values = [b"%d" % number for number in range(5)]

    def consume(_point: int) -> None:
        fill(session, [*values, b"bad"])
        session.create(f"{PATH}/queue-", b"garbage", sequential=True)
        flaky = Flaky(1)
        with (
            connect(proxy.address + znode_root, timeout_s=15.0) as far,
            consuming(far, flaky, retry=Retry(attempts=10, first_s=0.01)),
        ):
            eventually(lambda: len(flaky.seen.values) == len(values) + 2, timeout_s=60)
            eventually(lambda: is_empty(session) and session.children(f"{PATH}-dead"), timeout_s=60)
        assert sorted(flaky.seen.values) == [*values, b"bad", b"bad"]
        (dead,) = session.children(f"{PATH}-dead")
        assert list(decode(session.get(f"{PATH}-dead/{dead}")[0]).items) == [b"garbage"]
        session.delete(f"{PATH}-dead/{dead}")
        assert session.children(LOCKS) == []
        eventually(lambda: session.children(f"{PATH}-meta/members") == [])

    assert at_every_point(proxy, consume) >= 10
