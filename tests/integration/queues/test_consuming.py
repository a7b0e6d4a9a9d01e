"""Consuming on the real server: in which order items come, and how they are acknowledged."""

from __future__ import annotations

import time

import pytest
from consumption import LOCKING, LOCKS, PATH, Seen, consuming, fill, is_empty

from leaderq.errors import (
    BadVersion,
    ConfigurationError,
    QueueClosed,
)
from leaderq.queues.consumers import QueueOptions
from leaderq.queues.wire.names import QueueKind, id_of, prefix_for
from leaderq.testing import eventually
from leaderq.threads import Retry
from leaderq.zookeeper import Create, Session, SetData

QUICK = Retry(attempts=3, first_s=0.01, jitter=0)


@LOCKING
def test_items_come_in_the_order_in_which_they_were_put_and_leave_nothing_behind(
    session: Session, lock: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
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


@LOCKING
def test_an_item_taken_is_acknowledged_at_the_end_of_its_block(
    session: Session, lock: bool
) -> None:
    (name,) = fill(session, [b"a"])
    with consuming(session, lock=lock) as queue:
        with queue.take(60) as item:
            assert (item.value, item.name, item.attempt) == (b"a", name, 1)
            assert abs(item.enqueued.timestamp() - time.time()) < 3600
            assert is_empty(session) is not lock
        assert is_empty(session)
        assert queue.take(0.05) is None


@LOCKING
def test_an_item_comes_again_when_its_block_fails_and_counts_its_attempts(
    session: Session, lock: bool
) -> None:
    fill(session, [b"a"])
    with consuming(session, lock=lock, retry=QUICK) as queue:
        for attempt in (1, 2):
            with pytest.raises(ZeroDivisionError), queue.take(60) as item:
                assert item.attempt == attempt
                1 / 0  # noqa: B018
        item = queue.take(60)
        assert item is not None
        assert item.attempt == 3
        item.ack()
        assert is_empty(session)


def test_the_users_own_writes_go_with_the_acknowledgement_or_not_at_all(session: Session) -> None:
    session.create("/total", b"0")
    fill(session, [b"a"])
    with consuming(session) as queue:
        item = queue.take(60)
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


def test_requeue_puts_an_item_to_the_tail_with_its_id(session: Session) -> None:
    fill(session, [b"a"], QueueKind.ID, id="x")
    fill(session, [b"b"], QueueKind.ID, id="y")
    with consuming(session, kind=QueueKind.ID) as queue:
        queue.take(60).requeue()
        with queue.take(60) as item:
            assert (item.value, id_of(item.name)) == (b"b", "y")
        with queue.take(60) as item:
            assert (item.value, id_of(item.name), item.attempt) == (b"a", "x", 2)


def test_a_plan_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="not both"):
        QueueOptions(consumer=print, consume_batch=print)
    with pytest.raises(ConfigurationError, match="cannot be called"):
        QueueOptions(consumer=3)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="attempts=0"):
        Retry(attempts=0)
    assert prefix_for(QueueKind.PLAIN) == "queue-"
