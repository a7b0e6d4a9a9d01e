"""Consuming on the real server: in which order items come, how they are acknowledged, and what a
consumer lives through.
"""

from __future__ import annotations

import pytest
from consumption import LOCKING, LOCKS, PATH, Flaky, Held, Seen, consuming, fill, is_empty, taken

from leaderq.errors import BadVersion, QueueClosed
from leaderq.queues.consumers import QueueConsumer, QueueOptions
from leaderq.queues.consuming import Consumption
from leaderq.queues.wire.names import QueueKind
from leaderq.queues.wire.payload import decode
from leaderq.queues.wire.znodes import QueuePaths
from leaderq.testing import eventually
from leaderq.threads import Retry
from leaderq.zookeeper import Create, SessionState, SetData, connect


@LOCKING
def test_items_come_in_the_order_in_which_they_were_put_and_leave_nothing_behind(
    session, lock, monkeypatch
):
    # A consumer that gets no processor looks as if it hung, and others may have what is next.
    monkeypatch.setattr("leaderq.queues.consuming.engine.HANGS_S", 60.0)
    values = [b"%04d" % number for number in range(700)]
    fill(session, values)
    seen = Seen()
    with consuming(session, seen, lock=lock):
        assert seen.wait_for(700) == values
        late = fill(session, [b"late"])
        assert seen.wait_for(701)[-1] == b"late", late
        eventually(lambda: is_empty(session))
    assert session.children(f"{PATH}-meta/members") == []
    if lock:
        assert session.children(LOCKS) == []
    else:
        assert session.children(f"{PATH}-meta/tallies") == []


def test_the_users_own_writes_go_with_the_acknowledgement_or_not_at_all(session):
    session.create("/total", b"0")
    fill(session, [b"a"])
    with consuming(session) as queue:
        item = taken(queue)
        with pytest.raises(BadVersion) as failure:
            item.ack([SetData("/total", b"1", version=0), SetData("/total", b"2", version=9)])
        assert failure.value.index == 1
        assert session.get("/total")[0] == b"0"
        assert not is_empty(session)
        assert item.ack([SetData("/total", b"1", version=0), Create("/receipt")])[1] == "/receipt"
        assert session.get("/total")[0] == b"1"
        assert is_empty(session)
        with pytest.raises(QueueClosed):
            item.ack()


def test_a_batch_consumer_gets_many_and_what_failed_comes_alone(session):
    fill(session, [b"%02d" % number for number in range(20)])
    batches: list[list[bytes]] = []

    def consume(values: list[bytes]) -> None:
        batches.append(list(values))
        if b"07" in values and len(batches) < 20:
            raise ValueError("one of them is bad")

    retry = Retry(attempts=10, first_s=0.01)
    with consuming(session, consume_batch=consume, batch_items=6, retry=retry):
        eventually(lambda: is_empty(session))
    assert all(len(batch) <= 6 for batch in batches)
    assert {one for batch in batches for one in batch} == {b"%02d" % one for one in range(20)}
    failed = next(batch for batch in batches if b"07" in batch)
    assert all([value] in batches for value in failed if len(failed) > 1)


def test_closing_does_not_wait_for_a_consumer_that_hangs_and_what_it_does_is_acknowledged_later(
    session,
):
    fill(session, [b"a"])
    held = Held()
    queue: Consumption[bytes] = Consumption(
        session, QueuePaths(PATH, LOCKS), QueueKind.PLAIN, QueueOptions(consumer=held)
    )
    queue.start()
    assert held.entered.wait(60)
    assert queue.close(0.1) is False
    assert not is_empty(session)
    held.released.set()
    eventually(lambda: is_empty(session) and session.children(LOCKS) == [])
    eventually(lambda: session.children(f"{PATH}-meta/members") == [])


def test_a_queue_consumer_hears_of_the_connection(session):
    class Hearing(QueueConsumer[bytes]):
        def __init__(self) -> None:
            self.states: list[SessionState] = []
            self.seen = Seen()

        def consume(self, value: bytes) -> None:
            self.seen(value)

        def state_changed(self, state: SessionState) -> None:
            self.states.append(state)
            raise RuntimeError("harmless")

    hearing = Hearing()
    with consuming(session, hearing):
        session.drop_connection()
        eventually(
            lambda: (
                SessionState.SUSPENDED in hearing.states
                and hearing.states[-1] is SessionState.CONNECTED
            )
        )
        fill(session, [b"a"])
        assert hearing.seen.wait_for(1) == [b"a"]


@pytest.mark.parametrize("point", range(4))
def test_a_lost_reply_to_a_write_loses_nothing_and_doubles_nothing(
    proxy, session, znode_root, point
):
    """The same without locks, for every request, lost before or after: ``tests/simulation``."""
    before = iter(range(point))

    def is_meant(request: bytes) -> bool:
        is_multi = request[4:8] == (14).to_bytes(4, "big")
        return is_multi and next(before, None) is None

    fill(session, [b"a", b"b", b"bad"])
    session.create(f"{PATH}/queue-", b"garbage", sequential=True)
    flaky = Flaky(1)
    with connect(proxy.address + znode_root, timeout_s=15.0) as far:
        proxy.drop_reply_to(is_meant)
        with consuming(far, flaky, retry=Retry(attempts=10, first_s=0.01)):
            eventually(lambda: len(flaky.seen.values) == 4)
            eventually(lambda: is_empty(session) and session.children(f"{PATH}-dead"))
    assert proxy.dropped == 1
    assert sorted(flaky.seen.values) == [b"a", b"b", b"bad", b"bad"]
    (dead,) = session.children(f"{PATH}-dead")
    assert list(decode(session.get(f"{PATH}-dead/{dead}")[0]).items) == [b"garbage"]
    assert session.children(LOCKS) == []
    eventually(lambda: session.children(f"{PATH}-meta/members") == [])
